#include "kube/api/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/foreign_json.h"
#include "base/printable.h"
#include "base/text_parts.h"

namespace adaptdl::kube {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxMessageLength = 2000;
constexpr std::int64_t kMaxRetry = 3600;  // seconds

std::string_view meaning_of(int code) {
  constexpr std::pair<int, std::string_view> kMeanings[] = {{400, "Bad Request"},
                                                            {401, "Unauthorized"},
                                                            {403, "Forbidden"},
                                                            {404, "Not Found"},
                                                            {405, "Method Not Allowed"},
                                                            {407, "Proxy Authentication Required"},
                                                            {409, "Conflict"},
                                                            {410, "Gone"},
                                                            {413, "Request Entity Too Large"},
                                                            {415, "Unsupported Media Type"},
                                                            {422, "Unprocessable Entity"},
                                                            {429, "Too Many Requests"},
                                                            {500, "Internal Server Error"},
                                                            {502, "Bad Gateway"},
                                                            {503, "Service Unavailable"},
                                                            {504, "Gateway Timeout"}};
  for (const auto& [known, meaning] : kMeanings)
    if (known == code) return meaning;
  return "";
}

std::string code_text(int code) {
  const std::string_view meaning = meaning_of(code);
  return meaning.empty() ? fmt::format("HTTP {}", code) : fmt::format("HTTP {} {}", code, meaning);
}

// Returns a message for a response that is not a Status, such as one from a proxy or another kind of server.
std::string message_of_text(int code, std::string_view body) {
  const std::string head = lower(body.substr(0, 2 * kMaxMessageLength));
  if (head.find("<html") == std::string::npos) {
    const std::string line = one_line(body);
    return line.empty() || lower(line) == lower(meaning_of(code)) ? code_text(code) : line;
  }
  const std::size_t begin = head.find("<title>");
  const std::size_t end = head.find("</title>");
  std::string title;
  if (begin != std::string::npos && end != std::string::npos && end > begin)
    title = one_line(body.substr(begin + 7, end - begin - 7));
  return fmt::format("{} with a web page{}; this is not an API server", code_text(code),
                     title.empty() ? "" : fmt::format(" ('{}')", title));
}

std::string text_of(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? one_line(at->get_ref<const std::string&>()) : "";
}

}  // namespace

ApiError::ApiError(const std::string& message, int code, std::string reason, json details, std::string continue_token,
                   std::string server_message)
    : Error(message),
      code_(code),
      reason_(std::move(reason)),
      details_(std::move(details)),
      continue_token_(std::move(continue_token)),
      server_message_(std::move(server_message)) {}

Status parse_status(int code, std::string_view body) {
  const json object = parse_foreign_json(body);
  Status status;
  if (!object.is_object() || text_of(object, "kind") != "Status") {
    status.message = message_of_text(code, body);
    return status;
  }
  status.message = text_of(object, "message");
  status.reason = text_of(object, "reason");
  if (status.message.empty()) status.message = status.reason.empty() ? code_text(code) : status.reason;
  if (const auto metadata = object.find("metadata"); metadata != object.end() && metadata->is_object())
    status.continue_token = text_of(*metadata, "continue");
  const auto details = object.find("details");
  if (details == object.end() || !details->is_object()) return status;
  status.details = *details;
  const auto retry = details->find("retryAfterSeconds");
  if (retry != details->end() && retry->is_number_integer()) {
    const auto seconds = std::min<std::int64_t>(retry->get<std::int64_t>(), kMaxRetry);
    if (seconds > 0) status.retry_after = std::chrono::seconds(seconds);
  }
  return status;
}

}  // namespace adaptdl::kube
