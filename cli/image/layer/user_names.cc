#include "image/layer/user_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "base/text_parts.h"

namespace adaptdl::image {
namespace {

std::optional<unsigned> id_number(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // The largest value means "no change" in system calls.
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value == ~0u) return {};
  return value;
}

// Returns the fields of all lines that have at least `fields` fields and are not comments.
std::vector<std::vector<std::string>> records(std::string_view file, std::size_t fields) {
  std::vector<std::vector<std::string>> result;
  for (const std::string& line : split(file, '\n')) {
    std::vector<std::string> record = split(line, ':');
    if (record.size() >= fields && !line.starts_with('#')) result.push_back(std::move(record));
  }
  return result;
}

gid_t find_group(std::string_view name, std::string_view file) {
  for (const std::vector<std::string>& record : records(file, 3))
    if (record[0] == name)
      if (const auto id = id_number(record[2])) return *id;
  if (const auto id = id_number(name)) return *id;
  throw Error(fmt::format("group '{}' not found in the image's /etc/group", one_line(name, 100)));
}

}  // namespace

bool names_users(std::string_view name) {
  if (name.empty()) return false;
  const std::vector<std::string> parts = split(name, ':');
  return std::any_of(parts.begin(), parts.end(), [](const std::string& part) { return !id_number(part); });
}

UserIds find_user(std::string_view name, std::string_view passwd, std::string_view group) {
  const std::size_t colon = name.find(':');
  const std::string_view user = name.substr(0, colon);
  const std::optional<unsigned> id = id_number(user);
  UserIds result{id.value_or(0), 0, {}, "/"};
  std::string login;
  for (const std::vector<std::string>& record : records(passwd, 4)) {
    const std::optional<unsigned> own = id_number(record[2]);
    const bool matches = record[0] == user || (own && (id == own || (user.empty() && *own == 0)));
    if (!own || !matches) continue;
    login = record[0];
    result.user = *own;
    result.group = id_number(record[3]).value_or(0);
    if (record.size() > 5 && record[5].starts_with('/')) result.home = record[5];
    break;
  }
  if (login.empty() && !id && !user.empty())
    throw Error(fmt::format("user '{}' not found in the image's /etc/passwd", one_line(user, 100)));
  if (colon != std::string_view::npos && colon + 1 < name.size()) {
    result.group = find_group(name.substr(colon + 1), group);
    return result;
  }
  for (const std::vector<std::string>& record : records(group, 4)) {
    const std::vector<std::string> members = split(record[3], ',');
    const std::optional<unsigned> further = id_number(record[2]);
    if (further && !login.empty() && std::find(members.begin(), members.end(), login) != members.end())
      result.groups.push_back(*further);
  }
  return result;
}

}  // namespace adaptdl::image
