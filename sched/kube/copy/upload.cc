#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/fd.h"
#include "kube/copy/copier.h"
#include "kube/copy/copy.h"
#include "kube/copy/pack.h"
#include "kube/copy/remote_files.h"
#include "kube/copy/temporary_file.h"

namespace adaptdl::kube {
namespace {

namespace fs = std::filesystem;

// After a break, the previous writer of a file may still be running alongside the new one. Such an overlap is harmless,
// because both write the same bytes at the same offsets.
//
// kTake copies "$2" bytes of the input, which has no end of file. busybox's `head -c` reads small pieces, so dd copies
// all whole blocks if it supports `fullblock`. The bytes are sent through a pipe because containerd may end the input
// early, without an error, for a command that reads the input directly.
constexpr std::string_view kTake = R"sh({
if dd count=0 iflag=fullblock </dev/null >/dev/null 2>&1; then
  dd bs=65536 count=$(($2 / 65536)) iflag=fullblock 2>/dev/null
  head -c $(($2 % 65536))
else head -c "$2"
fi; })sh";
constexpr std::string_view kWrite = R"sh( | cat >"$1")sh";
constexpr std::string_view kWriteFrom = R"sh( | dd of="$1" bs=65536 seek="$3" conv=notrunc)sh";
constexpr std::uint64_t kUploadBlock = 65536;
constexpr std::string_view kSize = R"sh(if [ -e "$1" ]; then exec stat -c %s "$1"; else echo 0; fi)sh";
constexpr std::string_view kTakePlace =
    R"sh(chmod "$3" "$1" && { touch -c -d "@$4" "$1" 2>/dev/null; mv -f "$1" "$2"; })sh";
constexpr std::string_view kRemove = R"sh(rm -f "$1")sh";
constexpr std::string_view kMakeDirectory = R"sh([ -d "$1" ] || exec mkdir "$1")sh";
constexpr std::string_view kUnpack = R"sh( | tar -C "$1" -xpof -)sh";
constexpr std::string_view kUnpackFile = R"sh(tar -C "$1" -xpof "$2" && rm -f "$2")sh";

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr std::uint64_t kMaxPackSize = std::uint64_t{32} << 20;
constexpr std::uint64_t kMinPackSize = std::uint64_t{256} << 10;
constexpr std::size_t kMaxEntries = 5000;  // in a pack

std::string take(std::string_view into) { return fmt::format("{} {}", kTake, into); }

// Runs a script that must succeed, over as many connections as necessary.
void must(Shell& shell, Persistence& persistence, std::string_view text, const std::vector<std::string>& arguments,
          const std::string& action) {
  const Outcome outcome = persist(persistence, [&] { return run(shell, text, arguments); });
  if (outcome.exit_code != 0) refuse(shell, action, outcome);
}

// A file that is being uploaded. It is written next to its target, and the upload continues after a broken connection.
class Part {
 public:
  Part(Shell& shell, Copier& copier, const CopyEvents& events, const std::string& directory, const std::string& target)
      : shell_(shell),
        copier_(copier),
        persistence_(events.persistence()),
        stop_(events.stop),
        target_(target),
        path_(as_argument(directory) + '/' + temporary_name("part")),
        cleanup_([this] { remove(); }) {}

  const std::string& path() const { return path_; }

  // Sends what `read_at(offset, max_size)` returns, from offset `base` on, until the file has `size` bytes. The first
  // `base` bytes must have arrived earlier.
  using ReadAt = std::function<std::string_view(std::uint64_t offset, std::size_t max_size)>;
  void send(const ReadAt& read_at, std::uint64_t base, std::uint64_t size,
            const std::function<void(std::uint64_t)>& sent) {
    received_.reset();
    for (std::uint64_t start = base;;) {
      try {
        write_from(read_at, start, size, sent);
        return;
      } catch (const Broken& broken) {
        persistence_.wait(broken, start);
        start = std::max(base, size_there()) / kUploadBlock * kUploadBlock;
      }
    }
  }

  void check_size(std::uint64_t size) {
    if (received_) return;
    const std::uint64_t there = size_there();
    if (there != size)
      throw Error(fmt::format("cannot write '{}': sent {} bytes, but {} received {}; try again", target_, size,
                              shell_.name(), there));
  }

  // Returns the checksum of the whole file; null if the remote end has no tool for it.
  std::optional<std::string> sum(std::uint64_t size) {
    if (received_) return received_;
    return persist(persistence_, [&] { return copier_.sum(path_, size); });
  }

  void take_place(mode_t mode, std::time_t modified) {
    must(shell_, persistence_, kTakePlace,
         {path_, as_argument(target_), fmt::format("{:o}", mode & 0777), std::to_string(modified)},
         "write '" + target_ + "'");
    cleanup_.release();
  }

  void unpack(const std::string& directory) {
    must(shell_, persistence_, kUnpackFile, {as_argument(directory), path_}, "unpack into '" + directory + "'");
    cleanup_.release();
  }

 private:
  void write_from(const ReadAt& read_at, std::uint64_t start, std::uint64_t size,
                  const std::function<void(std::uint64_t)>& sent) {
    std::uint64_t at = start;
    const Feed feed = [&] {
      check(stop_);
      const std::string_view piece = read_at(at, std::min<std::uint64_t>(kPiece, size - at));
      sent(at);
      at += piece.size();
      return piece;
    };
    const Outcome outcome = copier_ ? copier_.receive(path_, start, size - start, feed) : receive(start, size, feed);
    if (outcome.exit_code != 0) refuse(shell_, fmt::format("write '{}'", target_), outcome);
    if (copier_ && start == 0) received_ = outcome.out;
    sent(size);
  }

  Outcome receive(std::uint64_t start, std::uint64_t size, const Feed& feed) {
    std::vector<std::string> arguments{path_, std::to_string(size - start)};
    if (start > 0) arguments.push_back(std::to_string(start / kUploadBlock));
    return run(shell_, take(start > 0 ? kWriteFrom : kWrite), arguments, feed);
  }

  std::uint64_t size_there() {
    return persist(persistence_, [&] {
      const Outcome outcome = run(shell_, kSize, {path_});
      if (outcome.exit_code != 0) refuse(shell_, fmt::format("write '{}'", target_), outcome);
      return std::strtoull(outcome.out.c_str(), nullptr, 10);
    });
  }

  void remove() {
    try {
      run(shell_, kRemove, {path_});
    } catch (const Error&) {
      // The remote end is unreachable.
    }
  }

  Shell& shell_;
  Copier& copier_;
  Persistence persistence_;
  std::stop_token stop_;
  std::string target_, path_;
  std::optional<std::string> received_;  // the checksum, if the copier received the whole file in one call
  Cleanup cleanup_;
};

Fd open_source(const fs::path& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail("read '" + path.string() + "'");
  return file;
}

void check_upload(const Shell& shell, const std::string& target, const std::optional<std::string>& there,
                  const std::string& here, const CopyEvents& events) {
  if (!there) return events.notify(fmt::format("{} has no sha256sum: only sizes were compared", shell.name()));
  if (*there == here) return;
  throw Error(
      fmt::format("cannot write '{}' in {}: the source changed during the copy, or was corrupted in transit; its "
                  "checksum is {}, but the copy's is {}",
                  target, shell.name(), here, *there));
}

// Throws NoCopier.
void try_upload(Shell& shell, Copier& copier, const fs::path& source, const std::string& target, std::uint64_t before,
                std::optional<std::uint64_t> total, const CopyEvents& events) {
  const Fd file = open_source(source);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail("read '" + source.string() + "'");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  std::string buffer(kPiece, '\0');
  Sum sum(copier.kind());
  std::uint64_t summed = 0;
  const Part::ReadAt read_at = [&](std::uint64_t offset, std::size_t max_size) {
    if (max_size == 0) return std::string_view();
    const ssize_t got = ::pread(file.get(), buffer.data(), max_size, static_cast<off_t>(offset));
    if (got < 0) fail("read '" + source.string() + "'");
    if (got == 0) throw Error(fmt::format("'{}' shrank during the copy; try again", source.string()));
    const std::string_view piece(buffer.data(), static_cast<std::size_t>(got));
    // Bytes that are sent again are already in the checksum.
    if (offset + piece.size() > summed) {
      sum.update(piece.substr(summed - offset));
      summed = offset + piece.size();
    }
    return piece;
  };
  Part part(shell, copier, events, directory_of(target), target);
  part.send(read_at, 0, size, [&](std::uint64_t sent) { events.report(before + sent, total.value_or(size)); });
  part.check_size(size);
  check_upload(shell, target, part.sum(size), sum.hex(), events);
  part.take_place(status.st_mode, status.st_mtime);
}

// `before` is the number of bytes of the whole copy that have already been sent.
void upload_file(Shell& shell, Copier& copier, const fs::path& source, const std::string& target, std::uint64_t before,
                 std::optional<std::uint64_t> total, const CopyEvents& events) {
  try {
    try_upload(shell, copier, source, target, before, total, events);
  } catch (const NoCopier&) {
    try_upload(shell, copier, source, target, before, total, events);
  }
}

// Sends a directory's entries in packs, and large files one by one.
class TreeUpload {
 public:
  TreeUpload(Shell& shell, const fs::path& source, const std::string& target, const CopyEvents& events)
      : shell_(shell),
        source_(source),
        target_(target),
        events_(events),
        persistence_(events.persistence()),
        entries_(list_tree(source, events.notice)),
        copier_(shell, largest(), target) {
    for (const PackedEntry& entry : entries_) total_ += entry.size;
  }

  void run() {
    for (std::size_t next = 0; next < entries_.size();) {
      check(events_.stop);
      if (entries_[next].size > pack_limit_) {
        const PackedEntry& entry = entries_[next++];
        upload_file(shell_, copier_, source_ / entry.name, target_ + '/' + entry.name, done_, total_, events_);
        done_ += entry.size;
      } else {
        next = send_pack(next);
      }
    }
    send_directories();
  }

 private:
  std::uint64_t largest() const {
    std::uint64_t size = 0;
    for (const PackedEntry& entry : entries_) size = std::max<std::uint64_t>(size, entry.size);
    return size;
  }

  // Packs entries from `first` on, sends them, and returns the index of the next entry. Packs become smaller after a
  // break, because a whole pack must be sent between two breaks.
  std::size_t send_pack(std::size_t first) {
    Pack pack(source_);
    std::size_t next = first;
    std::uint64_t size = 0;
    for (; next < entries_.size() && next - first < kMaxEntries && entries_[next].size <= pack_limit_; ++next) {
      if (next > first && size + entries_[next].size > pack_limit_) break;
      if (!pack.add(entries_[next]))
        events_.notify(fmt::format("'{}' shrank during the copy", (source_ / entries_[next].name).string()));
      size += entries_[next].size;
    }
    try {
      send(pack.finish());
    } catch (const Broken& broken) {
      persistence_.wait(broken, done_);
      pack_limit_ = std::max(kMinPackSize, pack_limit_ / 2);
      return first;
    }
    done_ += size;
    events_.report(done_, total_);
    return next;
  }

  // Sets the modes and times of the directories, subdirectories first, once nothing more is written to them.
  void send_directories() {
    Pack pack(source_);
    for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
      if (entry->kind == PackedEntry::Kind::kDirectory) pack.add(*entry, true);
    }
    const std::string bytes = pack.finish();
    persist(persistence_, [&] { send(bytes); });
  }

  void send(const std::string& bytes) {
    std::size_t at = 0;
    const Feed feed = [&] {
      check(events_.stop);
      const std::string_view piece = std::string_view(bytes).substr(at, kPiece);
      at += piece.size();
      events_.report(done_ + std::min<std::uint64_t>(at, total_ - done_), total_);
      return piece;
    };
    const Outcome outcome =
        kube::run(shell_, take(kUnpack), {as_argument(target_), std::to_string(bytes.size())}, feed);
    if (outcome.exit_code != 0) refuse(shell_, fmt::format("write '{}'", target_), outcome);
  }

  Shell& shell_;
  fs::path source_;
  std::string target_;
  const CopyEvents& events_;
  Persistence persistence_;
  std::vector<PackedEntry> entries_;
  Copier copier_;
  std::uint64_t total_ = 0, done_ = 0, pack_limit_ = kMaxPackSize;
};

// Returns the path to which a file from `source` must be written. If the target is a link, the file that the link
// refers to is replaced, not the link.
std::string file_place(Shell& shell, Persistence& persistence, const std::string& source, const std::string& target,
                       RemoteFile there) {
  const std::string path = target_path(source, Found::kFile, target, there.found);
  if (path != target) there = persist(persistence, [&] { return inspect(shell, path); });
  if (there.found == Found::kDirectory)
    throw UsageError(fmt::format("cp: '{}' is a file, but '{}' is a directory", source, path));
  return there.behind_link.empty() ? path : there.behind_link;
}

// Fills the buffer, and returns the number of bytes read, which is less than the buffer's size only at the end of the
// input.
std::size_t fill(const Stream& from, std::string& buffer) {
  std::size_t filled = 0;
  while (filled < buffer.size()) {
    const ssize_t got = ::read(from.descriptor, buffer.data() + filled, buffer.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read " + from.name);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

}  // namespace

void upload(Shell& shell, const std::string& source, const std::string& target, const CopyEvents& events) {
  std::error_code error;
  const auto status = fs::status(source, error);
  if (!fs::exists(status))
    throw Error(fmt::format("cannot read '{}': {}", source, error ? error.message() : "No such file or directory"));
  const bool directory = fs::is_directory(status);
  if (!directory && !fs::is_regular_file(status))
    throw Error(fmt::format("'{}' is neither a file nor a directory; use - to copy a stream", source));
  Persistence persistence = events.persistence();
  const RemoteFile there = persist(persistence, [&] { return inspect(shell, target); });
  if (!directory) {
    const std::string path = file_place(shell, persistence, source, target, there);
    Copier copier(shell, fs::file_size(source), directory_of(path));
    return upload_file(shell, copier, source, path, 0, {}, events);
  }
  const std::string path = target_path(source, Found::kDirectory, target, there.found);
  must(shell, persistence, kMakeDirectory, {as_argument(path)}, "create '" + path + "'");
  TreeUpload(shell, source, path, events).run();
}

void upload_stream(Shell& shell, const Stream& from, const std::string& target, const CopyEvents& events) {
  Persistence persistence = events.persistence();
  const RemoteFile there = persist(persistence, [&] { return inspect(shell, target); });
  const bool directory = there.found == Found::kDirectory;
  const std::string path = directory ? target : file_place(shell, persistence, "-", target, there);
  std::string buffer(kMaxPackSize, '\0');
  std::size_t filled = fill(from, buffer);
  const std::string place = directory ? target : directory_of(path);
  Copier copier(shell, filled, place);
  Part part(shell, copier, events, place, path);
  Sum sum(copier.kind());
  std::uint64_t done = 0;
  // The buffer keeps the last bytes that were sent, so that they can be sent again after a break.
  for (;; filled = fill(from, buffer)) {
    check(events.stop);
    if (filled == 0 && done > 0) break;
    const std::string_view piece(buffer.data(), filled);
    sum.update(piece);
    const Part::ReadAt read_at = [&](std::uint64_t offset, std::size_t max_size) {
      return piece.substr(offset - done, max_size);
    };
    const auto send = [&] {
      part.send(read_at, done, done + filled, [&](std::uint64_t sent) { events.report(sent); });
    };
    try {
      send();
    } catch (const NoCopier&) {
      if (done > 0) throw Error(fmt::format("{} was replaced during the copy; try again", shell.name()));
      sum = Sum(copier.kind());
      sum.update(piece);
      send();
    }
    done += filled;
    if (filled < buffer.size()) break;
  }
  part.check_size(done);
  check_upload(shell, target, part.sum(done), sum.hex(), events);
  if (directory) return part.unpack(target);
  part.take_place(there.found == Found::kFile ? there.mode : 0644, std::time(nullptr));
}

}  // namespace adaptdl::kube
