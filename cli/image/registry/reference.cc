#include "image/registry/reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"
#include "image/base/digest.h"

namespace adaptdl::image {
namespace {

constexpr std::size_t kMaxRepositoryLength = 255, kMaxTagLength = 128;

bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_alphanumeric(char c) { return is_digit(c) || is_lower(c) || is_upper(c); }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

template <class Test>
bool all_of(std::string_view text, Test test) {
  return std::all_of(text.begin(), text.end(), test);
}

bool is_host_label(std::string_view label) {
  return !label.empty() && label.front() != '-' && label.back() != '-' &&
         all_of(label, [](char c) { return is_alphanumeric(c) || c == '-'; });
}

bool is_port(std::string_view port) { return !port.empty() && port.size() <= 5 && all_of(port, is_digit); }

bool is_address(std::string_view address) {
  return std::count(address.begin(), address.end(), ':') >= 2 &&
         all_of(address, [](char c) { return is_hex(c) || c == ':' || c == '.'; });
}

// Accepts letters and digits, separated by a single '.', one or two '_', or any number of '-'.
bool is_component(std::string_view text) {
  const auto plain = [](char c) { return is_lower(c) || is_digit(c); };
  if (text.empty() || !plain(text.front()) || !plain(text.back())) return false;
  for (std::size_t at = 0; at < text.size();) {
    if (plain(text[at])) {
      ++at;
      continue;
    }
    const std::size_t end = text.find_first_not_of(text[at], at), count = end - at;
    if (!plain(text[end]) || !(text[at] == '-' || (text[at] == '.' && count == 1) || (text[at] == '_' && count <= 2)))
      return false;
    at = end;
  }
  return true;
}

bool is_tag(std::string_view tag) {
  return !tag.empty() && tag.size() <= kMaxTagLength && tag.front() != '.' && tag.front() != '-' &&
         all_of(tag, [](char c) { return is_alphanumeric(c) || c == '_' || c == '.' || c == '-'; });
}

// The first component is a registry if it looks like a host; otherwise it belongs to a repository on Docker Hub.
bool looks_like_host(std::string_view text) {
  return text == "localhost" || text.find_first_of(".:[") != std::string_view::npos ||
         std::any_of(text.begin(), text.end(), is_upper);
}

[[noreturn]] void refuse_reference(std::string_view text, std::string_view part, std::string_view value,
                                   std::string_view rule) {
  throw UsageError(
      fmt::format("invalid image name '{}': {} '{}' {}", one_line(text, 300), part, one_line(value, 300), rule));
}

}  // namespace

bool is_registry(std::string_view text) {
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos || !is_address(text.substr(1, end - 1))) return false;
    const std::string_view rest = text.substr(end + 1);
    return rest.empty() || (rest.front() == ':' && is_port(rest.substr(1)));
  }
  const std::size_t colon = text.find(':');
  return std::ranges::all_of(split(text.substr(0, colon), '.'), is_host_label) &&
         (colon == std::string_view::npos || is_port(text.substr(colon + 1)));
}

bool is_repository(std::string_view text) {
  return text.size() <= kMaxRepositoryLength && std::ranges::all_of(split(text, '/'), is_component);
}

Reference Reference::parse(std::string_view text) {
  Reference reference;
  std::string_view rest = text;
  if (const std::size_t at = rest.find('@'); at != std::string_view::npos) {
    reference.digest = rest.substr(at + 1);
    rest = rest.substr(0, at);
    if (!is_digest(reference.digest))
      refuse_reference(text, "digest", reference.digest,
                       "must be 'sha256:' followed by 64, or 'sha512:' followed by 128, lowercase hexadecimal digits");
  }
  if (rest.find("://") != std::string_view::npos)
    refuse_reference(text, "name", rest, "must not be a URL; remove http:// or https://");
  const std::size_t slash = rest.find('/');
  if (slash != std::string_view::npos && looks_like_host(rest.substr(0, slash))) {
    reference.registry = rest.substr(0, slash);
    rest.remove_prefix(slash + 1);
    if (!is_registry(reference.registry))
      refuse_reference(text, "registry", reference.registry, "must be HOST or HOST:PORT");
  }
  if (const std::size_t colon = rest.rfind(':'); colon != std::string_view::npos) {
    reference.tag = rest.substr(colon + 1);
    rest = rest.substr(0, colon);
    if (!is_tag(reference.tag))
      refuse_reference(text, "tag", reference.tag,
                       "must be 1 to 128 letters, digits, '_', '.' or '-', and must not begin with '.' or '-'");
  }
  if (reference.registry.empty() || reference.registry == "index.docker.io") reference.registry = kDockerHub;
  const bool official = reference.registry == kDockerHub && rest.find('/') == std::string_view::npos;
  reference.repository = (official ? "library/" : "") + std::string(rest);
  if (rest.empty()) refuse_reference(text, "repository", rest, "must not be empty");
  if (std::any_of(rest.begin(), rest.end(), is_upper)) refuse_reference(text, "repository", rest, "must be lowercase");
  if (reference.repository.size() > kMaxRepositoryLength)
    refuse_reference(text, "repository", rest,
                     fmt::format("must not be longer than {} characters", kMaxRepositoryLength));
  if (!is_repository(rest))
    refuse_reference(text, "repository", rest,
                     "must be lowercase letters and digits, separated by '/', '.', '_', '__' or '-'");
  if (official && rest.size() == 64 && all_of(rest, is_hex))
    refuse_reference(text, "repository", rest, "looks like an image ID; use a name");
  return reference;
}

std::string Reference::version() const { return !digest.empty() ? digest : !tag.empty() ? tag : "latest"; }

std::string Reference::full() const {
  return fmt::format("{}/{}{}{}{}{}", registry, repository, tag.empty() ? "" : ":", tag, digest.empty() ? "" : "@",
                     digest);
}

std::string Reference::brief() const {
  std::string text = full();
  if (registry != kDockerHub) return text;
  const std::size_t slash = repository.find('/');
  if (slash != std::string::npos && looks_like_host(std::string_view(repository).substr(0, slash))) return text;
  text.erase(0, kDockerHub.size() + 1);
  constexpr std::string_view kOfficial = "library/";
  if (!text.starts_with(kOfficial)) return text;
  std::string shorter = text.substr(kOfficial.size());
  const std::string name = repository.substr(kOfficial.size());
  const bool same = name.find('/') == std::string::npos && !(name.size() == 64 && all_of(name, is_hex));
  return same ? shorter : text;
}

}  // namespace adaptdl::image
