#include "image/layer/blob_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "base/printable.h"

namespace adaptdl::image {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kBlobDraftPrefix = "draft-";

[[noreturn]] void fail_blob(std::string_view what, const fs::path& file) {
  const char* why = std::strerror(errno);
  throw Error(fmt::format("cannot {} '{}': {}", what, file.string(), why));
}

void mark_used(const fs::path& file) { ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0); }

std::string read_whole(const Fd& fd, const fs::path& file) {
  std::string bytes;
  char buffer[64 << 10];
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno != EINTR) fail_blob("read", file);
    if (count == 0) return bytes;
    if (count > 0) bytes.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

BlobStore::BlobStore(fs::path directory) : directory_(std::move(directory)) {
  std::error_code error;
  // Layers are unpacked next to the blobs, and other users must not run set-id files from them. An existing directory
  // keeps its mode, which its owner chose.
  if (fs::create_directories(directory_, error)) ::chmod(directory_.c_str(), 0700);
  if (!error) fs::create_directories(directory_ / "blobs" / "sha256", error);
  if (error) throw Error(fmt::format("cannot create the directory '{}': {}", directory_.string(), error.message()));
}

fs::path BlobStore::path_of(const std::string& digest) const {
  return directory_ / "blobs" / digest.substr(0, digest.find(':')) / hex_of(digest);
}

std::optional<fs::path> BlobStore::find(const std::string& digest, std::optional<std::uint64_t> size) const {
  const fs::path file = path_of(digest);
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  if (size && *size != static_cast<std::uint64_t>(info.st_size)) return {};
  mark_used(file);
  return file;
}

std::optional<std::string> BlobStore::read(const std::string& digest) const {
  const fs::path file = path_of(digest);
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return {};
  if (!fd) fail_blob("read", file);
  std::string bytes = read_whole(fd, file);
  Digester digester = Digester::of(digest);
  digester.update(bytes);
  if (digester.digest() != digest) {
    remove(digest);
    return {};
  }
  mark_used(file);
  return bytes;
}

void BlobStore::check(const std::string& digest) const {
  const Fd fd(::open(path_of(digest).c_str(), O_RDONLY | O_CLOEXEC));
  Digester digester = Digester::of(digest);
  std::string piece(std::size_t{1} << 20, '\0');
  ssize_t count = -1;
  while (fd && ((count = ::read(fd.get(), piece.data(), piece.size())) > 0 || (count < 0 && errno == EINTR)))
    if (count > 0) digester.update(std::string_view(piece).substr(0, static_cast<std::size_t>(count)));
  if (count != 0 || digester.digest() != digest) remove(digest);
}

BlobStore::Draft::Draft(const BlobStore& store, std::string_view algorithm) : store_(store), digester_(algorithm) {
  std::string name = store.directory_ / "blobs" / fmt::format("{}XXXXXX", kBlobDraftPrefix);
  fd_ = Fd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd_) fail_blob("write to", store.directory_ / "blobs");
  file_ = name;
  // The lock is held until the draft is closed or the process ends; until then remove_drafts() skips the file.
  ::flock(fd_.get(), LOCK_EX);
}

BlobStore::Draft::~Draft() {
  if (!file_.empty()) ::unlink(file_.c_str());
}

void BlobStore::Draft::write(std::string_view bytes) {
  digester_.update(bytes);
  size_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) fail_blob("write to", store_.directory_ / "blobs");
    if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string BlobStore::Draft::commit(const std::string& expected) {
  std::string digest = digester_.digest();
  if (!expected.empty() && digest != expected)
    throw Error(fmt::format("digest mismatch: got {}, expected {}", digest, one_line(expected, 160)));
  const fs::path file = store_.path_of(digest);
  if (::fchmod(fd_.get(), 0644) != 0 || ::rename(file_.c_str(), file.c_str()) != 0) {
    std::error_code error;  // the directory for another algorithm may not exist yet
    fs::create_directories(file.parent_path(), error);
    if (::rename(file_.c_str(), file.c_str()) != 0) fail_blob("write", file);
  }
  file_.clear();
  fd_.reset();
  return digest;
}

std::string BlobStore::put(std::string_view bytes) const {
  std::string digest = sha256(bytes);
  if (find(digest, bytes.size())) return digest;
  Draft draft(*this);
  draft.write(bytes);
  return draft.commit();
}

std::vector<BlobStore::Info> BlobStore::list() const {
  std::vector<Info> blobs;
  for (const std::string algorithm : {"sha256", "sha512"}) {
    std::error_code error;
    for (const fs::directory_entry& file : fs::directory_iterator(directory_ / "blobs" / algorithm, error)) {
      Info info{algorithm + ":" + file.path().filename().string(), 0, {}};
      struct stat status {};
      if (!is_digest(info.digest) || ::lstat(file.path().c_str(), &status) != 0) continue;
      info.size = static_cast<std::uint64_t>(status.st_size);
      info.used = std::chrono::system_clock::from_time_t(status.st_mtim.tv_sec);
      blobs.push_back(std::move(info));
    }
  }
  return blobs;
}

bool BlobStore::remove(const std::string& digest) const {
  if (::unlink(path_of(digest).c_str()) == 0) return true;
  if (errno != ENOENT) fail_blob("remove", path_of(digest));
  return false;
}

std::uint64_t BlobStore::remove_drafts() const {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const fs::directory_entry& file : fs::directory_iterator(directory_ / "blobs", error)) {
    if (!file.path().filename().string().starts_with(kBlobDraftPrefix)) continue;
    const Fd fd(::open(file.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat info {};
    if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || ::fstat(fd.get(), &info) != 0 || info.st_nlink == 0)
      continue;
    // Skip drafts that were committed a moment ago, or created but not locked yet.
    if (std::chrono::system_clock::now() - std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec) <
        std::chrono::seconds(5))
      continue;
    if (::unlink(file.path().c_str()) == 0) bytes += static_cast<std::uint64_t>(info.st_size);
  }
  return bytes;
}

}  // namespace adaptdl::image
