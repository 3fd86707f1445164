#include "kube/api/resource.h"

#include <fmt/format.h>

#include "adaptdl/error.h"

namespace adaptdl::kube {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

void append_segment(std::string& path, std::string_view segment) {
  // Even when escaped, these would refer to another path.
  if (segment == "." || segment == "..") throw UsageError(fmt::format("'{}' is not a valid resource name", segment));
  path += '/';
  for (const char c : segment) {
    if (is_plain(c))
      path += c;
    else
      path += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
}

}  // namespace

std::string path(const Resource& resource, std::string_view name_space, std::string_view name,
                 std::string_view subresource) {
  std::string path = resource.group.empty() ? "/api" : "/apis";
  if (!resource.group.empty()) append_segment(path, resource.group);
  append_segment(path, resource.version);
  if (!name_space.empty()) {
    append_segment(path, "namespaces");
    append_segment(path, name_space);
  }
  append_segment(path, resource.plural);
  if (!name.empty()) append_segment(path, name);
  if (!subresource.empty()) append_segment(path, subresource);
  return path;
}

bool is_older_version(std::string_view a, std::string_view b) {
  if (!is_number(a) || !is_number(b)) return false;
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace adaptdl::kube
