// One-line errors, with the remedy, for requests that a registry refuses.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/error.h"
#include "http/http.h"

namespace adaptdl::image {

class RegistryError : public Error {
 public:
  RegistryError(const std::string& message, int status, std::vector<std::string> codes = {},
                std::optional<std::chrono::seconds> retry_after = {})
      : Error(message), status_(status), codes_(std::move(codes)), retry_after_(retry_after) {}

  int status() const { return status_; }  // the HTTP status
  bool has_code(std::string_view code) const;
  std::optional<std::chrono::seconds> retry_after() const { return retry_after_; }
  // Returns whether the same request may succeed later.
  bool may_pass() const;

 private:
  int status_;
  std::vector<std::string> codes_;
  std::optional<std::chrono::seconds> retry_after_;
};

// The contents of a refusal's body; both fields may be empty.
struct Refusal {
  std::vector<std::string> codes;  // such as DENIED
  std::string message;             // one line
};
Refusal parse_refusal(std::string_view body);

// Creates the error for a response. `what` describes the failed operation, such as "cannot push x/y:z". `credentials`
// is the source of the credentials that were sent; empty if none were sent.
RegistryError refusal_error(const std::string& what, const std::string& registry, const http::Response& response,
                            const std::string& credentials);

}  // namespace adaptdl::image
