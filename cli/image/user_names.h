// Users and groups as an image names them: in USER, RUN and --chown.
//
// Threading: plain functions.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

struct UserIds {
  uid_t user = 0;
  gid_t group = 0;
  std::vector<gid_t> groups;  // the further ones that /etc/group has for the user; none if `name` gives a group
  std::string home = "/";
};

// Whether "name:group" needs the image's files to be looked up: some part of it is no number.
bool names_users(std::string_view name);

// Of "user", "user:group", with names or numbers; "" is root. `passwd` and `group` are the contents of the image's
// files, "" for none. A number that passwd does not know has group 0. Throws Error that says which name is not there.
UserIds find_user(std::string_view name, std::string_view passwd, std::string_view group);

}  // namespace adaptdl::image
