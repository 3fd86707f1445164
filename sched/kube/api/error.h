// Errors that an API server reports. (If there is no answer at all, http::ConnectionError is thrown.)
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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
  // Returns whether the object does not exist. A server that does not know the object's kind, such as one that is
  // starting, also responds with a 404, but does not name the object.
  bool missing_object() const { return not_found() && details_.contains("name"); }
  bool conflict() const { return code_ == 409; }
  bool gone() const { return code_ == 410; }  // the resourceVersion or continue token is too old

 private:
  int code_;
  std::string reason_;
  nlohmann::json details_;
  std::string continue_token_, server_message_;
};

// The cluster does not have the resource AdaptDLJob. Thrown for a 404 that names no object, in response to a request
// for AdaptDLJobs.
class KindNotInstalled : public ApiError {
 public:
  explicit KindNotInstalled(ApiError error) : ApiError(std::move(error)) {}
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
