// The translation of a request to libcurl's options, and of libcurl's errors to exceptions.
//
// Lifetime: the request and the transfer must outlive the use of the handle.
#pragma once

#include <string>

#include "http/curl.h"
#include "http/http.h"

namespace adaptdl::http {

// The lists that libcurl refers to during a request, and the buffer for the details of an error.
struct Transfer {
  List headers, connect_to;
  char detail[CURL_ERROR_SIZE] = "";
};

// Sets where and how to connect: URL, TLS, proxy, connect timeout. Throws Error on a malformed URL.
void set_target(CURL* handle, const Request& request, Transfer& transfer);
// Does the same, and sets method, headers, body and timeout.
void set_request(CURL* handle, const Request& request, Transfer& transfer);

// Throws the error that `code` means.
[[noreturn]] void fail(CURL* handle, CURLcode code, const Request& request, const Transfer& transfer);

}  // namespace adaptdl::http
