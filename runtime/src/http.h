// The one wrapper of libcurl: an HTTP(S) request, with bounds on its time and size.
//
// Threading: `send` may be called from any thread. Lifetime: nothing is kept between calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "adaptdl/error.h"

namespace adaptdl::http {

struct Request {
  std::string method = "GET";
  std::string url;                   // http or https; others are refused
  std::vector<std::string> headers;  // "Name: value"
  std::string body;                  // sent if it is not empty, or the method is PUT, POST or PATCH
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds timeout = std::chrono::seconds(60);  // of all of it, to the last byte; 0: none
  std::size_t max_body = std::size_t{16} << 20;                  // bytes of the answer; a larger one is an error
};

struct Response {
  int status = 0;
  std::string body;
};

// No answer came: the server cannot be reached, or ends in the middle. Trying again may help. (What cannot get better,
// such as a malformed URL or an answer that is too large, is a plain Error.)
class ConnectionError : public Error {
  using Error::Error;
};

// The answer, whatever its status; redirects are not followed. Proxies are taken from the environment as libcurl does,
// but never for this machine itself. Throws ConnectionError and Error, naming method and URL.
Response send(const Request& request);

// `text` as one segment of a URL's path.
std::string escape(const std::string& text);

}  // namespace adaptdl::http
