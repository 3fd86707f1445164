// What a request is to libcurl: its options, and what its errors say.
//
// Threading: none of its own. Lifetime: the request and the transfer outlive the use of the handle.
#pragma once

#include <string>

#include "http/curl.h"
#include "http/http.h"

namespace adaptdl::http {

// Lists that libcurl refers to while a request is under way, and the place where it leaves details of an error.
struct Transfer {
  List headers, connect_to;
  char detail[CURL_ERROR_SIZE] = "";
};

// Sets where and how to connect: URL, TLS, proxy, time to connect. Throws Error for a malformed URL.
void set_target(CURL* handle, const Request& request, Transfer& transfer);
// Sets method, headers, body and time besides.
void set_request(CURL* handle, const Request& request, Transfer& transfer);

// Throws what `code` stands for.
[[noreturn]] void fail(CURL* handle, CURLcode code, const Request& request, const Transfer& transfer);

}  // namespace adaptdl::http
