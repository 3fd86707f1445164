#include "kube/copy/unpack.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <set>

#include "adaptdl/error.h"
#include "kube/copy/libarchive.h"
#include "kube/copy/target_tree.h"

namespace adaptdl::kube {
namespace {

constexpr mode_t kKeptModes = 0777 | S_ISVTX;

// Reads an archive with libarchive. An exception from `pull` is rethrown after libarchive has returned.
class Reader {
 public:
  explicit Reader(const Pull& pull) : pull_(pull), archive_(libarchive().archive_read_new()) {
    const Libarchive& library = libarchive();
    library.archive_read_support_filter_none(archive_.get());
    library.archive_read_support_format_tar(archive_.get());
    expect(library.archive_read_open(archive_.get(), this, nullptr, &Reader::read, nullptr));
  }

  // Returns null at the end.
  archive_entry* next() {
    archive_entry* entry = nullptr;
    return expect(libarchive().archive_read_next_header(archive_.get(), &entry)) ? entry : nullptr;
  }

  // Returns false at the end of the entry's data.
  bool data(std::string_view& bytes, std::uint64_t& offset) {
    const void* start = nullptr;
    std::size_t size = 0;
    la_int64_t at = 0;
    const bool more = expect(libarchive().archive_read_data_block(archive_.get(), &start, &size, &at));
    bytes = {static_cast<const char*>(start), size};
    offset = static_cast<std::uint64_t>(at);
    return more;
  }

 private:
  struct Free {
    void operator()(archive* opened) const { libarchive().archive_read_free(opened); }
  };

  static la_ssize_t read(archive*, void* self, const void** start) {
    auto& reader = *static_cast<Reader*>(self);
    try {
      const std::string_view piece = reader.pull_();
      *start = piece.data();
      return static_cast<la_ssize_t>(piece.size());
    } catch (...) {
      reader.failure_ = std::current_exception();
      return ARCHIVE_FATAL;
    }
  }

  bool expect(int result) {
    if (failure_) std::rethrow_exception(failure_);
    if (result >= ARCHIVE_WARN) return result != ARCHIVE_EOF;
    const char* why = libarchive().archive_error_string(archive_.get());
    throw Error(fmt::format("invalid or incomplete tar archive: {}", why == nullptr ? "corrupted" : why));
  }

  const Pull& pull_;
  std::unique_ptr<archive, Free> archive_;
  std::exception_ptr failure_;
};

class Unpacker {
 public:
  Unpacker(const Pull& pull, const std::filesystem::path& directory,
           const std::function<void(const std::string&)>& notice)
      : reader_(pull), tree_(directory), notice_(notice) {}

  std::uint64_t run() {
    std::uint64_t count = 0;
    for (archive_entry* entry; (entry = reader_.next()) != nullptr; ++count) take(entry);
    tree_.finish();
    return count;
  }

 private:
  void take(archive_entry* entry) {
    const Libarchive& library = libarchive();
    const char* path = library.archive_entry_pathname(entry);
    const std::vector<std::string> name = split_name(path == nullptr ? "" : path);
    const Attributes attributes{library.archive_entry_perm(entry) & kKeptModes, library.archive_entry_mtime(entry)};
    if (const char* of = library.archive_entry_hardlink(entry)) return hard_link(name, split_name(of));
    const auto type = library.archive_entry_filetype(entry);
    if (type == AE_IFDIR) return tree_.make_directory(name, attributes);
    if (name.empty()) throw Error("invalid entry '.' in the archive: not a directory");
    if (type == AE_IFLNK) {
      const char* to = library.archive_entry_symlink(entry);
      files_.erase(name);
      return tree_.make_link(name, to == nullptr ? "" : to);
    }
    if (type == AE_IFREG) return file(name, attributes);
    if (notice_) notice_(fmt::format("skipped '{}': not a file, directory or symbolic link", path));
  }

  void hard_link(const std::vector<std::string>& name, const std::vector<std::string>& of) {
    if (name.empty() || !files_.contains(of)) {
      throw Error(
          fmt::format("invalid hard link in the archive: '{}' is not an earlier file", fmt::join(of, "/")));
    }
    if (name == of) return;
    tree_.make_hard_link(name, of);
    files_.insert(name);
  }

  void file(const std::vector<std::string>& name, const Attributes& attributes) {
    tree_.begin_file(name);
    std::uint64_t size = 0, offset = 0;
    for (std::string_view bytes; reader_.data(bytes, offset);) {
      tree_.write(bytes, offset);
      size = offset + bytes.size();
    }
    tree_.end_file(std::max(size, offset), attributes);
    files_.insert(name);
  }

  Reader reader_;
  TargetTree tree_;
  const std::function<void(const std::string&)>& notice_;
  std::set<std::vector<std::string>> files_;  // files that hard links may refer to
};

}  // namespace

std::uint64_t unpack(const Pull& pull, const std::filesystem::path& directory,
                     const std::function<void(const std::string&)>& notice) {
  return Unpacker(pull, directory, notice).run();
}

}  // namespace adaptdl::kube
