#include "image/layer/copy_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "base/printable.h"
#include "image/base/failed_call.h"
#include "image/layer/rooted_tree.h"

namespace adaptdl::image {
namespace {

void copy_directory(int from, const std::string& path, RootedTree& to) {
  const auto fail = [&] { fail_call(fmt::format("cannot copy '{}'", one_line("/" + path, 200))); };
  const int copy = ::openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(copy < 0 ? nullptr : ::fdopendir(copy), &::closedir);
  if (!listing) fail();
  errno = 0;
  while (const dirent* each = ::readdir(listing.get())) {
    const std::string name = each->d_name;
    if (name == "." || name == "..") continue;
    const Entry entry = read_entry(from, name, path.empty() ? name : path + "/" + name);
    if (entry.type == Entry::Type::kFile) {
      const Fd file(::openat(from, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      if (!file) fail();
      to.make(entry, read_content(file.get(), entry.path));
    } else if (entry.type == Entry::Type::kSymlink) {
      to.make(entry, {});
    } else if (entry.type == Entry::Type::kDirectory) {
      to.make(entry, {});
      const Fd inside(::openat(from, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!inside) fail();
      copy_directory(inside.get(), entry.path, to);
    }
    errno = 0;
  }
  if (errno != 0) fail();
}

}  // namespace

void copy_tree(const Fd& from, Fd to) {
  RootedTree tree(std::move(to), nullptr);
  copy_directory(from.get(), "", tree);
  tree.finish();
}

}  // namespace adaptdl::image
