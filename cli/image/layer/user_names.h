// Resolves an image's users and groups, for USER, RUN and --chown.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

struct UserIds {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  // the user's supplementary groups in /etc/group; empty if `name` specifies a group
  std::string home = "/";
};

// Returns whether resolving "name:group" requires the image's files, because a part of it is not a number.
bool names_users(std::string_view name);

// Resolves "user" or "user:group", as names or numbers; "" is root. `passwd` and `group` are the contents of the
// image's files, "" if missing. A user ID that is not in `passwd` has group 0. Throws an Error that names the missing
// user or group.
UserIds find_user(std::string_view name, std::string_view passwd, std::string_view group);

}  // namespace adaptdl::image
