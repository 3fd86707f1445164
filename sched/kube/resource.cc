#include "kube/resource.h"

#include <fmt/format.h>

#include "adaptdl/error.h"

namespace adaptdl::kube {
namespace {

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
         c == '_' || c == '~';
}

void append(std::string& path, std::string_view segment) {
  // Escaped or not, these would name something else.
  if (segment == "." || segment == "..") throw UsageError(fmt::format("'{}' can be no name in a cluster", segment));
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
  if (!resource.group.empty()) append(path, resource.group);
  append(path, resource.version);
  if (!name_space.empty()) {
    append(path, "namespaces");
    append(path, name_space);
  }
  append(path, resource.plural);
  if (!name.empty()) append(path, name);
  if (!subresource.empty()) append(path, subresource);
  return path;
}

}  // namespace adaptdl::kube
