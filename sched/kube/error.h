// What goes wrong between a client and an API server. (No answer at all is an http::ConnectionError.)
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "adaptdl/error.h"

namespace adaptdl::kube {

// The API server refused. The message is one line: what was asked (verb and path, never a body), and the server's
// message; of a 401 or 403 also which context and user it was, and what to do.
class ApiError : public Error {
 public:
  ApiError(const std::string& message, int code, std::string reason, nlohmann::json details,
           std::string continue_token = {}, std::string server_message = {});
  int code() const { return code_; }                     // the HTTP status
  const std::string& reason() const { return reason_; }  // metav1.StatusReason, as "NotFound"; empty if none was given
  const nlohmann::json& details() const { return details_; }             // Status.details, or null
  const std::string& server_message() const { return server_message_; }  // Status.message
  // Of a list that got too old on its way: with this the rest can still be had, though of a later version.
  const std::string& continue_token() const { return continue_token_; }
  bool not_found() const { return code_ == 404; }
  bool conflict() const { return code_ == 409; }
  bool gone() const { return code_ == 410; }  // a resourceVersion or continue token that is too old

 private:
  int code_;
  std::string reason_;
  nlohmann::json details_;
  std::string continue_token_, server_message_;
};

// A metav1.Status, whatever the server sent (a proxy's HTML page among it).
struct Status {
  std::string message, reason;
  nlohmann::json details;
  std::string continue_token;
  std::optional<std::chrono::seconds> retry_after;
};
Status parse_status(int code, std::string_view body);

}  // namespace adaptdl::kube
