#include "ray/package.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "kube/copy/libarchive.h"
#include "kube/copy/sha256.h"

namespace adaptdl::ray {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{256} << 10;
// The time of all files in a package: the first day that a zip file can represent.
constexpr std::time_t kTime = 315'619'200;

[[noreturn]] void fail(const std::string& action) {
  throw Error(fmt::format("cannot {}: {}", action, std::strerror(errno)));
}

// Finds the files of a project, and maps their names in the package to their paths.
class Search {
 public:
  explicit Search(const PackageOptions& options) : options_(options) {}

  std::map<std::string, fs::path> files() {
    if (!options_.project.empty()) add(options_.project, "");
    for (const PackageFile& file : options_.files) found_[file.name] = file.source;
    return std::move(found_);
  }

 private:
  void add(const fs::path& directory, const std::string& prefix) {
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
      const std::string name = prefix + at->path().filename().string();
      // Links to directories are not followed, because they may lead out of the project or form a cycle.
      const bool directory_here = fs::is_directory(at->symlink_status(error));
      if (options_.excludes(name, directory_here)) continue;
      if (directory_here) {
        add(at->path(), name + '/');
      } else if (fs::is_regular_file(fs::status(at->path(), error))) {
        found_[name] = at->path();
      } else {
        options_.notice(fmt::format("skipped '{}': not a file or directory", at->path().string()));
      }
      error.clear();
    }
    if (error) throw Error(fmt::format("cannot read directory '{}': {}", directory.string(), error.message()));
  }

  const PackageOptions& options_;
  std::map<std::string, fs::path> found_;
};

// Writes a zip file to a file descriptor, and computes the file's digest.
class ZipWriter {
 public:
  explicit ZipWriter(int fd) : fd_(fd), handle_(kube::libarchive().archive_write_new()) {
    expect(library_.archive_write_set_format_zip(handle_.get()));
    library_.archive_write_set_bytes_per_block(handle_.get(), 0);
    expect(library_.archive_write_open(handle_.get(), this, nullptr, &ZipWriter::write, nullptr));
  }

  void add(const std::string& name, const fs::path& source) {
    const Fd file(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) fail("read file '" + source.string() + "'");
    const std::unique_ptr<archive_entry, Free> entry(library_.archive_entry_new());
    library_.archive_entry_set_pathname(entry.get(), name.c_str());
    library_.archive_entry_set_mtime(entry.get(), kTime, 0);
    library_.archive_entry_set_filetype(entry.get(), AE_IFREG);
    library_.archive_entry_set_perm(entry.get(), (status.st_mode & 0100) != 0 ? 0755 : 0644);
    library_.archive_entry_set_size(entry.get(), status.st_size);
    expect(library_.archive_write_header(handle_.get(), entry.get()));
    std::string piece(kPiece, '\0');
    for (std::uint64_t left = static_cast<std::uint64_t>(status.st_size); left > 0;) {
      const ssize_t got = ::read(file.get(), piece.data(), std::min<std::uint64_t>(left, piece.size()));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read file '" + source.string() + "'");
      if (got == 0)
        throw Error(fmt::format("cannot read file '{}': it was truncated during the read", source.string()));
      expect(library_.archive_write_data(handle_.get(), piece.data(), static_cast<std::size_t>(got)));
      left -= static_cast<std::uint64_t>(got);
    }
  }

  // Completes the file and returns its digest.
  std::string finish() {
    expect(library_.archive_write_close(handle_.get()));
    return digest_.hex();
  }
  std::uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(archive* opened) const { kube::libarchive().archive_write_free(opened); }
    void operator()(archive_entry* entry) const { kube::libarchive().archive_entry_free(entry); }
  };

  static la_ssize_t write(archive*, void* object, const void* bytes, std::size_t size) {
    auto* self = static_cast<ZipWriter*>(object);
    ssize_t written = 0;
    do written = ::write(self->fd_, bytes, size);
    while (written < 0 && errno == EINTR);
    if (written < 0) {
      self->error_ = errno;
      return -1;
    }
    self->digest_.update({static_cast<const char*>(bytes), static_cast<std::size_t>(written)});
    self->size_ += static_cast<std::uint64_t>(written);
    return written;
  }

  void expect(la_ssize_t result) const {
    if (result >= ARCHIVE_WARN) return;
    const char* why = library_.archive_error_string(handle_.get());
    throw Error(fmt::format("cannot create the package: {}", error_ != 0      ? std::strerror(error_)
                                                             : why != nullptr ? why
                                                                              : "libarchive failed"));
  }

  const kube::Libarchive& library_ = kube::libarchive();
  const int fd_;
  int error_ = 0;
  std::uint64_t size_ = 0;
  kube::Sha256 digest_;
  std::unique_ptr<archive, Free> handle_;
};

}  // namespace

Package::Package(const PackageOptions& options) {
  std::error_code error;
  std::string path = (fs::temp_directory_path(error) / "adaptdl-package-XXXXXX").string();
  const Fd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) fail("create a file in directory '" + fs::path(path).parent_path().string() + "'");
  path_ = path;
  try {
    ZipWriter writer(file.get());
    for (const auto& [name, source] : Search(options).files()) writer.add(name, source);
    name_ = fmt::format("_ray_pkg_adaptdl_{}.zip", writer.finish().substr(0, 32));
    size_ = writer.size();
  } catch (...) {
    fs::remove(path_, error);
    throw;
  }
}

Package::~Package() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace adaptdl::ray
