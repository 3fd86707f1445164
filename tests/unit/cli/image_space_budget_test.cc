#include "image/base/space_budget.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "adaptdl/error.h"
#include "another_process.h"
#include "image/layer/unpack.h"
#include "image_tar.h"
#include "image_temporary.h"

namespace image_space_budget_test {

using namespace adaptdl;
using namespace adaptdl::image;
namespace fs = std::filesystem;

TEST_CASE("an image's layers together use at most 95% of free space and inodes") {
  if (::geteuid() != 0) return;
  const Temporary temporary;
  for (const char* name : {"1", "2"})
    write_file(temporary / (name + std::string(".layer")),
               Tar().file("f", std::string(std::size_t{2} << 20, 'x')).whole());
  const std::string message = testing::in_another_process([&]() -> std::string {
    fs::create_directory(temporary / "disk");
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", (temporary / "disk").c_str(), "tmpfs", 0, "size=4m,nr_inodes=1000") != 0)
      return "skipped";
    SpaceBudget budget(temporary / "disk");
    UnpackOptions options;
    options.budget = &budget;
    unpack_layer(temporary / "1.layer", "", temporary / "disk/1", options);
    try {
      unpack_layer(temporary / "2.layer", "", temporary / "disk/2", options);
    } catch (const Error& error) {
      try {
        SpaceBudget(temporary / "disk").take(0, 1000);
      } catch (const Error& other) {
        return fmt::format("{}; {}; {}", error.what(), other.what(), fs::exists(temporary / "disk/2"));
      }
    }
    return "unpacked";
  });
  if (message == "skipped") return;
  const std::string more = "no space left: the unpacked image needs more than 95% of the ",
                    disk = (temporary / "disk").string();
  CHECK(message.starts_with("layer 2.layer: " + more + "3 MiB free in '" + disk + "'; " + more));
  CHECK_MESSAGE(message.ends_with("inodes free in '" + disk + "'; false"), message);
}

}  // namespace image_space_budget_test
