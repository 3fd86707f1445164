// Tests user names in images, and subordinate IDs on the host.
#include <doctest/doctest.h>

#include <functional>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "image/layer/id_map.h"
#include "image/layer/user_names.h"

namespace image_users_test {

using namespace adaptdl::image;
using ::testing::error_of;

namespace {

constexpr const char* kPasswd =
    "# users\nroot:x:0:0:root:/root:/bin/sh\nmaker:x:500:501::/home/maker:/bin/sh\n8080:x:9:9::/:\nbroken:x\n";
constexpr const char* kGroup = "root:x:0:\nmakers:x:501:\ntools:x:502:other,maker\nwheel:x:10:root,maker\n";

UserIds find(std::string_view name) { return find_user(name, kPasswd, kGroup); }

}  // namespace

TEST_CASE("a user given by name has its primary group, supplementary groups and home") {
  const UserIds maker = find("maker");
  CHECK(maker.user == 500);
  CHECK(maker.group == 501);
  CHECK(maker.groups == std::vector<gid_t>{502, 10});
  CHECK(maker.home == "/home/maker");
}

TEST_CASE("a user given by ID is looked up, but need not exist") {
  CHECK(find("500").group == 501);
  CHECK(find("77").user == 77);
  CHECK(find("77").group == 0);
  CHECK(find("77").home == "/");
}

TEST_CASE("a user name that consists of digits takes precedence over an ID") { CHECK(find("8080").user == 9); }

TEST_CASE("an explicit group replaces all groups of the user") {
  const UserIds user = find("maker:tools");
  CHECK(user.group == 502);
  CHECK(user.groups.empty());
  CHECK(find("70:71").group == 71);
  CHECK(find(":tools").user == 0);
  CHECK(find(":tools").group == 502);
}

TEST_CASE("an empty user name means root") {
  CHECK(find("").user == 0);
  CHECK(find("").home == "/root");
  CHECK(find_user("", "", "").user == 0);
  CHECK(find_user("0", "", "").group == 0);
}

TEST_CASE("the error for an unknown user or group contains the name") {
  CHECK_GOLDEN(error_of([] { find("none"); }));
  CHECK_GOLDEN(error_of([] { find("maker:none"); }));
  CHECK_GOLDEN(error_of([] { find("4294967295"); }));
  CHECK_GOLDEN(error_of([] { find("-1"); }));
}

TEST_CASE("names of users and groups require the image's /etc/passwd and /etc/group, and IDs do not") {
  CHECK(names_users("maker"));
  CHECK(names_users("0:tools"));
  CHECK(!names_users("0:0"));
  CHECK(!names_users("1000"));
  CHECK(!names_users(""));
}

TEST_CASE("subordinate ID ranges follow the user's own ID, and invalid lines are ignored") {
  const std::vector<IdRange> ids =
      subordinate_ids("other:1:5\nme:100000:65536\n1000:400000:10\nme:x:3\nme:1\nme:7:0\n", "me", 1000, 1000);
  REQUIRE(ids.size() == 3);
  CHECK(ids[0].inside == 0);
  CHECK(ids[0].outside == 1000);
  CHECK(ids[1].inside == 1);
  CHECK(ids[1].outside == 100000);
  CHECK(ids[1].count == 65536);
  CHECK(ids[2].inside == 65537);
  CHECK(ids[2].outside == 400000);
  CHECK(subordinate_ids("", "me", 1000, 1000).size() == 1);
}

}  // namespace image_users_test
