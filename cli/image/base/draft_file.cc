#include "image/base/draft_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::image {

DraftFile::DraftFile(std::filesystem::path file) : file_(std::move(file)) {
  std::random_device random;
  do {
    draft_ = fmt::format("{}.draft-{:08x}{:08x}", file_.string(), random(), random());
    fd_ = Fd(::open(draft_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  } while (!fd_ && errno == EEXIST);
  if (!fd_) fail();
}

DraftFile::~DraftFile() {
  if (fd_ && !committed_) ::unlink(draft_.c_str());
}

void DraftFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail();
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void DraftFile::commit() {
  if (::rename(draft_.c_str(), file_.c_str()) != 0) fail();
  committed_ = true;
}

void DraftFile::fail() const {
  throw Error(one_line(fmt::format("cannot write '{}': {}", file_.string(), std::strerror(errno))));
}

}  // namespace adaptdl::image
