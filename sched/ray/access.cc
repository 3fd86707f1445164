#include "ray/access.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "base/text_parts.h"

namespace adaptdl::ray {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_http(const std::string& address) { return address.starts_with("http://") || address.starts_with("https://"); }

std::string choose_address(const std::string& address) {
  if (!address.empty()) {
    if (is_http(address)) return address;
    throw UsageError(fmt::format(
        "invalid Ray address '{}': expected the URL of the job server, such as http://HEAD:8265", one_line(address)));
  }
  for (const char* name : {"RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"}) {
    const std::string value = variable(name);
    if (value.empty()) continue;
    if (is_http(value)) return value;
    throw UsageError(fmt::format("invalid {} '{}': expected the URL of the job server, such as http://HEAD:8265", name,
                                 one_line(value)));
  }
  throw UsageError("no Ray cluster is known; use --ray http://HEAD:8265, or set RAY_API_SERVER_ADDRESS");
}

// Returns the content of a token file without whitespace around it.
std::string read_token(const fs::path& path, const char* from) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::string_view token = trimmed(text);
  if (!file.good() && !file.eof())
    throw Error(fmt::format("cannot read the Ray token file '{}' ({}): {}", path.string(), from, std::strerror(errno)));
  if (token.empty()) throw Error(fmt::format("the Ray token file '{}' ({}) is empty", path.string(), from));
  return std::string(token);
}

std::string find_token() {
  if (const std::string token = variable("RAY_AUTH_TOKEN"); !token.empty()) return token;
  if (const std::string path = variable("RAY_AUTH_TOKEN_PATH"); !path.empty())
    return read_token(path, "RAY_AUTH_TOKEN_PATH");
  const std::string home = variable("HOME");
  const fs::path path = fs::path(home) / ".ray/auth_token";
  std::error_code error;
  return !home.empty() && fs::exists(path, error) ? read_token(path, "default") : "";
}

bool is_header_text(const std::string& text) { return text.find_first_of("\r\n") == std::string::npos; }

}  // namespace

Access find_access(const std::string& address) {
  Access access{.url = choose_address(address), .headers = {}};
  while (access.url.ends_with('/')) access.url.pop_back();
  if (const std::string token = find_token(); !token.empty()) {
    if (!is_header_text(token)) throw Error("the Ray token contains a line break");
    access.headers.push_back("Authorization: Bearer " + token);
  }
  if (const std::string text = variable("RAY_JOB_HEADERS"); !text.empty()) {
    const nlohmann::json headers = parse_foreign_json(text);
    if (!headers.is_object()) throw UsageError("invalid RAY_JOB_HEADERS: expected a JSON object of headers");
    for (const auto& [name, value] : headers.items()) {
      if (!value.is_string() || !is_header_text(name) || !is_header_text(value.get<std::string>()))
        throw UsageError(fmt::format("invalid RAY_JOB_HEADERS: header '{}' must be a line of text", one_line(name)));
      access.headers.push_back(name + ": " + value.get<std::string>());
    }
  }
  return access;
}

}  // namespace adaptdl::ray
