// Errors that an API server reports. (If there is no answer at all, http::ConnectionError is thrown.)
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/error.h"

namespace adaptdl::kube {

// The API server refused a request. The message is one line: the verb and path of the request (never a body) and the
// server's message; for a 401 or 403 also the context, the user, and what to do.
class ApiError : public Error {
 public:
  ApiError(const std::string& message, int code, std::string reason, nlohmann::json details,
           std::string continue_token = {}, std::string server_message = {});
  int code() const { return code_; }                     // the HTTP status
  const std::string& reason() const { return reason_; }  // metav1.StatusReason, such as "NotFound"; empty if missing
  const nlohmann::json& details() const { return details_; }             // Status.details, or null
  const std::string& server_message() const { return server_message_; }  // Status.message
  // After a list's continue token has expired, this token continues the list at a later resourceVersion.
  const std::string& continue_token() const { return continue_token_; }
  bool not_found() const { return code_ == 404; }
  bool conflict() const { return code_ == 409; }
  bool gone() const { return code_ == 410; }  // the resourceVersion or continue token is too old

 private:
  int code_;
  std::string reason_;
  nlohmann::json details_;
  std::string continue_token_, server_message_;
};

// A metav1.Status. It can be built from any response, including a proxy's HTML page.
struct Status {
  std::string message, reason;
  nlohmann::json details;
  std::string continue_token;
  std::optional<std::chrono::seconds> retry_after;
};
Status parse_status(int code, std::string_view body);

}  // namespace adaptdl::kube
