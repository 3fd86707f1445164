// Translates requests to libcurl's options, and libcurl's errors to exceptions.
//
// Lifetime: the request and the transfer must remain valid while the handle is used.
#pragma once

#include <string>

#include "http/curl.h"
#include "http/http.h"

namespace adaptdl::http {

// The lists that libcurl refers to during a request, and the buffer for error details.
struct Transfer {
  List headers, connect_to;
  char detail[CURL_ERROR_SIZE] = "";
};

// Sets where and how to connect: URL, TLS, proxy, connect timeout. Throws Error on a malformed URL.
void set_target(CURL* handle, const Request& request, Transfer& transfer);
// Does what set_target does, and also sets method, headers, body and timeout.
void set_request(CURL* handle, const Request& request, Transfer& transfer);

// Throws the error that corresponds to `code`.
[[noreturn]] void fail(CURL* handle, CURLcode code, const Request& request, const Transfer& transfer);

}  // namespace adaptdl::http
