#include "kube/copy/pack.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "kube/copy/libarchive.h"
#include "kube/copy/temporary_file.h"

namespace adaptdl::kube {
namespace {

namespace fs = std::filesystem;
using Kind = PackedEntry::Kind;
using Inode = std::pair<dev_t, ino_t>;

void add_entries(const fs::path& directory, const std::string& prefix, std::map<Inode, std::string>& first_names,
                 const std::function<void(const std::string&)>& notice, std::vector<PackedEntry>& all) {
  std::error_code error;
  std::vector<fs::path> names;
  fs::directory_iterator found(directory, error);
  for (; !error && found != fs::directory_iterator(); found.increment(error)) names.push_back(found->path().filename());
  if (error) throw Error(fmt::format("cannot read directory '{}': {}", directory.string(), error.message()));
  std::ranges::sort(names);
  for (const fs::path& name : names) {
    const fs::path path = directory / name;
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) fail("read '" + path.string() + "'");
    PackedEntry entry;
    entry.name = prefix + name.string();
    entry.mode = status.st_mode & 07777;
    entry.modified = status.st_mtime;
    if (S_ISDIR(status.st_mode)) {
      entry.kind = Kind::kDirectory;
      all.push_back(entry);
      add_entries(path, entry.name + '/', first_names, notice, all);
      continue;
    }
    if (S_ISLNK(status.st_mode)) {
      entry.kind = Kind::kLink;
      entry.to = fs::read_symlink(path).string();
    } else if (!S_ISREG(status.st_mode)) {
      if (notice) notice(fmt::format("skipped '{}': not a file, directory or symbolic link", path.string()));
      continue;
    } else if (const auto [first, added] = first_names.try_emplace({status.st_dev, status.st_ino}, entry.name);
               status.st_nlink > 1 && !added) {
      entry.kind = Kind::kHardLink;
      entry.to = first->second;
    } else {
      entry.size = static_cast<std::uint64_t>(status.st_size);
    }
    all.push_back(std::move(entry));
  }
}

}  // namespace

std::vector<PackedEntry> list_tree(const fs::path& directory, const std::function<void(const std::string&)>& notice) {
  std::vector<PackedEntry> all;
  std::map<Inode, std::string> first_names;
  add_entries(directory, "", first_names, notice, all);
  return all;
}

struct Pack::Writer {
  struct Free {
    void operator()(archive* opened) const { libarchive().archive_write_free(opened); }
    void operator()(archive_entry* entry) const { libarchive().archive_entry_free(entry); }
  };

  Writer() : handle(libarchive().archive_write_new()) {
    libarchive().archive_write_set_format_pax_restricted(handle.get());
    libarchive().archive_write_set_bytes_per_block(handle.get(), 0);
    expect(libarchive().archive_write_open(handle.get(), this, nullptr, &Writer::write, nullptr));
  }

  static la_ssize_t write(archive*, void* self, const void* bytes, std::size_t size) {
    static_cast<Writer*>(self)->bytes.append(static_cast<const char*>(bytes), size);
    return static_cast<la_ssize_t>(size);
  }

  void expect(la_ssize_t result) {
    if (result >= ARCHIVE_WARN) return;
    const char* why = libarchive().archive_error_string(handle.get());
    throw Error(fmt::format("cannot create a tar archive: {}", why == nullptr ? "libarchive failed" : why));
  }

  void header(const PackedEntry& entry, bool final_modes) {
    const Libarchive& library = libarchive();
    const std::unique_ptr<archive_entry, Free> made(library.archive_entry_new());
    library.archive_entry_set_pathname(made.get(), ("./" + entry.name).c_str());
    library.archive_entry_set_mtime(made.get(), entry.modified, 0);
    const bool directory = entry.kind == Kind::kDirectory;
    library.archive_entry_set_perm(made.get(), directory && !final_modes ? entry.mode | 0700 : entry.mode);
    library.archive_entry_set_filetype(made.get(), directory                   ? AE_IFDIR
                                                   : entry.kind == Kind::kLink ? AE_IFLNK
                                                                               : AE_IFREG);
    library.archive_entry_set_size(made.get(), entry.kind == Kind::kFile ? static_cast<la_int64_t>(entry.size) : 0);
    if (entry.kind == Kind::kLink) library.archive_entry_set_symlink(made.get(), entry.to.c_str());
    if (entry.kind == Kind::kHardLink) library.archive_entry_set_hardlink(made.get(), ("./" + entry.to).c_str());
    expect(library.archive_write_header(handle.get(), made.get()));
  }

  std::string bytes;
  std::unique_ptr<archive, Free> handle;
};

bool Pack::add(const PackedEntry& entry, bool final_modes) {
  if (!writer_) writer_ = std::make_shared<Writer>();
  writer_->header(entry, final_modes);
  if (entry.kind != Kind::kFile) return true;
  const fs::path path = directory_ / entry.name;
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) fail("read '" + path.string() + "'");
  std::string buffer(std::size_t{256} << 10, '\0');
  std::uint64_t left = entry.size;
  while (left > 0) {
    const ssize_t got = ::read(file.get(), buffer.data(), std::min<std::uint64_t>(left, buffer.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read '" + path.string() + "'");
    if (got == 0) return false;  // libarchive pads the entry
    writer_->expect(
        libarchive().archive_write_data(writer_->handle.get(), buffer.data(), static_cast<std::size_t>(got)));
    left -= static_cast<std::uint64_t>(got);
  }
  return true;
}

std::string Pack::finish() {
  if (!writer_) writer_ = std::make_shared<Writer>();
  writer_->expect(libarchive().archive_write_close(writer_->handle.get()));
  std::string bytes = std::move(writer_->bytes);
  writer_.reset();
  return bytes;
}

}  // namespace adaptdl::kube
