#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>

#include "kube/copy/copier.h"
#include "kube/copy/copy.h"
#include "kube/copy/remote_files.h"
#include "kube/copy/resumed_output.h"
#include "kube/copy/temporary_file.h"
#include "kube/copy/unpack.h"

namespace adaptdl::kube {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kReadFile = R"sh(exec cat "$1")sh";
constexpr std::string_view kReadFileFrom = R"sh(exec tail -c "+$2" "$1")sh";

constexpr std::string_view kTar = R"sh(exec tar -C "$1" -cf - .)sh";
// A pipeline's exit code is that of its last command, so tar's exit code is written to standard error.
constexpr std::string_view kTarFrom =
    R"sh({ tar -C "$1" -cf - . || echo "adaptdl: status $?" >&2; } | tail -c "+$2")sh";
constexpr std::string_view kStatus = "adaptdl: status ";
constexpr std::string_view kTarPrefix = R"sh(tar -C "$1" -cf - . 2>/dev/null | head -c "$2" | sha256sum)sh";
constexpr int kTarSawChanges = 1;
constexpr int kMaxStarts = 5;

constexpr std::uint64_t kWorthThread = std::uint64_t{1} << 20;

// Thrown if the directory has changed since its copy began.
struct Changed {};

ResumedOutput::Command from(std::string_view whole, std::string_view rest, const std::string& path,
                            std::uint64_t offset) {
  if (offset == 0) return {script(whole, {as_argument(path)})};
  return {script(rest, {as_argument(path), std::to_string(offset + 1)})};
}

RemoteFile inspect_source(Shell& shell, const std::string& source, const CopyEvents& events) {
  Persistence persistence = events.persistence();
  const RemoteFile file = persist(persistence, [&] { return inspect(shell, source); });
  if (file.found == Found::kNothing)
    throw Error(fmt::format("cannot read '{}' in {}: {}", source, shell.name(),
                            file.why.empty() ? "No such file or directory" : file.why));
  if (file.found == Found::kOther)
    throw Error(fmt::format("'{}' in {} is neither a file nor a directory", source, shell.name()));
  return file;
}

Found found_here(const fs::path& path) {
  std::error_code ignored;
  const auto status = fs::status(path, ignored);
  if (!fs::exists(status)) return Found::kNothing;
  return fs::is_directory(status) ? Found::kDirectory : fs::is_regular_file(status) ? Found::kFile : Found::kOther;
}

struct Sums {
  std::string here;
  std::optional<std::string> there;  // null if the command did not send it
};

// Passes the bytes of a file to `sink`.
Sums pass_file_on(Shell& shell, Copier& copier, const std::string& source, std::uint64_t size, const CopyEvents& events,
                  const Process::Sink& sink) {
  const auto command = [&](std::uint64_t offset) -> ResumedOutput::Command {
    if (copier) return {copier.send(as_argument(source), offset, size), kCopierProgram};
    return from(kReadFile, kReadFileFrom, source, offset);
  };
  ResumedOutput output(shell, events, command, copier.kind());
  output.limit(size);  // a file that grows during the copy is copied up to its original size
  events.report(0, size);
  while (output.bytes() < size) {
    const std::string_view piece = output.read();
    if (piece.empty()) break;
    sink(piece);
    events.report(output.bytes(), size);
  }
  if (output.bytes() == size) {
    Sums sums{output.sum(), {}};
    // The copier sends the checksum after the last byte.
    if (copier && output.read().empty() && output.outcome().err.size() == sums.here.size() + 1)
      sums.there = output.outcome().err.substr(0, sums.here.size());
    return sums;
  }
  copier.check(output.outcome(), output.bytes() > 0);
  if (output.outcome().exit_code != 0) refuse(shell, "read '" + source + "'", output.outcome());
  throw Error(fmt::format("'{}' in {} shrank during the copy; try again", source, shell.name()));
}

void check_download(const Shell& shell, const std::string& source, const std::optional<std::string>& there,
                    const std::string& here, const CopyEvents& events) {
  if (!there) return events.notify(fmt::format("{} has no sha256sum: only sizes were compared", shell.name()));
  if (*there == here) return;
  throw Error(fmt::format(
      "'{}' in {} changed during the copy, or was corrupted in transit; its checksum is {}, but the copy's is {}",
      source, shell.name(), *there, here));
}

// Reads a file and compares its checksum with the remote one. Throws NoCopier only before the first byte has been
// passed on.
void read_compared(Shell& shell, Copier& copier, const std::string& source, std::uint64_t size,
                   const CopyEvents& events, const Process::Sink& sink) {
  const auto sum_there = [&] {
    Persistence persistence({}, {}, events.patience);
    return persist(persistence, [&] { return copier.sum(as_argument(source), size); });
  };
  const bool beside = size >= kWorthThread && !copier;
  auto there = std::async(beside ? std::launch::async : std::launch::deferred, sum_there);
  const Sums sums = pass_file_on(shell, copier, source, size, events, sink);
  check_download(shell, source, sums.there ? sums.there : there.get(), sums.here, events);
}

void read_compared(Shell& shell, const std::string& source, std::uint64_t size, const CopyEvents& events,
                   const Process::Sink& sink) {
  Copier copier(shell, size);
  try {
    return read_compared(shell, copier, source, size, events, sink);
  } catch (const NoCopier&) {
    read_compared(shell, copier, source, size, events, sink);
  }
}

void download_file(Shell& shell, const std::string& source, const RemoteFile& file, const fs::path& target,
                   const CopyEvents& events) {
  TemporaryFile copy(target, file.size);
  read_compared(shell, source, file.size, events, [&copy](std::string_view bytes) { copy.write(bytes); });
  copy.commit(file.mode, file.modified);
}

ResumedOutput read_tar(Shell& shell, const std::string& source, const CopyEvents& events) {
  return {shell, events, [source](std::uint64_t offset) { return from(kTar, kTarFrom, source, offset); }};
}

// A copy can be resumed only if the beginning of the archive is the same as before.
void check_prefix(Shell& shell, const std::string& source, const ResumedOutput& output) {
  const Outcome outcome = run(shell, kTarPrefix, {as_argument(source), std::to_string(output.bytes())});
  if (!outcome.out.starts_with(output.sum())) throw Changed();
}

void check_tar(const Shell& shell, const std::string& source, ResumedOutput& output, const CopyEvents& events) {
  Outcome outcome = output.outcome();
  if (const std::size_t status = outcome.err.rfind(kStatus); status != std::string::npos) {
    outcome.exit_code = std::atoi(outcome.err.c_str() + status + kStatus.size());
    outcome.err.resize(status);
  }
  if (outcome.exit_code == 0) return;
  const bool live = outcome.err.find("changed as we read it") != std::string::npos ||
                    outcome.err.find("File removed before we read it") != std::string::npos;
  if (outcome.exit_code != kTarSawChanges || !live) refuse(shell, "read '" + source + "'", outcome);
  events.notify(fmt::format("'{}' was modified during the copy", source));
}

void unpack_once(Shell& shell, const std::string& source, const fs::path& target, const CopyEvents& events) {
  ResumedOutput output = read_tar(shell, source, events);
  output.before_resume([&] { check_prefix(shell, source, output); });
  bool ended = false;
  const Pull pull = [&] {
    const std::string_view piece = output.read();
    ended = piece.empty();
    events.report(output.bytes());
    return piece;
  };
  try {
    unpack(pull, target, events.notice);
  } catch (const Interrupted&) {
    throw;
  } catch (const Error&) {
    if (ended) check_tar(shell, source, output, events);  // tar's error explains an incomplete archive
    throw;
  }
  while (!pull().empty()) {
  }
  check_tar(shell, source, output, events);
}

void download_directory(Shell& shell, const std::string& source, const RemoteFile& from, const fs::path& target,
                        const CopyEvents& events) {
  std::error_code error;
  const bool made = fs::create_directory(target, error);
  if (error) throw Error(fmt::format("cannot create directory '{}': {}", target.string(), error.message()));
  for (int start = 1;; ++start) {
    try {
      unpack_once(shell, source, target, events);
      break;
    } catch (const Changed&) {
      if (start == kMaxStarts) {
        throw Error(
            fmt::format("'{}' in {} keeps changing and the connection keeps breaking; copy it file by file, or while "
                        "nothing writes to it",
                        source, shell.name()));
      }
      events.notify(fmt::format("'{}' has changed since the connection broke; copying it from the beginning", source));
    }
  }
  if (!made) return;
  const timespec times[] = {{0, UTIME_OMIT}, {from.modified, 0}};
  if (::chmod(target.c_str(), from.mode & 0777) != 0 || ::utimensat(AT_FDCWD, target.c_str(), times, 0) != 0)
    fail("set the mode and time of '" + target.string() + "'");
}

}  // namespace

void download(Shell& shell, const std::string& source, const std::string& target, const CopyEvents& events) {
  const RemoteFile file = inspect_source(shell, source, events);
  const fs::path path = target_path(source, file.found, target, found_here(target));
  if (file.found == Found::kDirectory) return download_directory(shell, source, file, path, events);
  const Found there = found_here(path);
  if (there == Found::kDirectory)
    throw UsageError(fmt::format("cp: '{}' is a file, but '{}' is a directory", source, path.string()));
  if (there == Found::kOther) {
    const Fd device(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!device) fail("write '" + path.string() + "'");
    return download_stream(shell, source, {device.get(), "'" + path.string() + "'"}, events);
  }
  // The file that a symbolic link refers to is replaced, not the link.
  download_file(shell, source, file, there == Found::kFile ? fs::canonical(path) : path, events);
}

void download_stream(Shell& shell, const std::string& source, const Stream& to, const CopyEvents& events) {
  const RemoteFile file = inspect_source(shell, source, events);
  const Process::Sink sink = [&to](std::string_view bytes) { write_all(to.descriptor, bytes, "to " + to.name); };
  if (file.found == Found::kFile) return read_compared(shell, source, file.size, events, sink);
  ResumedOutput output = read_tar(shell, source, events);
  output.before_resume([&] { check_prefix(shell, source, output); });
  try {
    for (std::string_view piece; !(piece = output.read()).empty();) {
      sink(piece);
      events.report(output.bytes());
    }
  } catch (const Changed&) {
    throw Error(
        fmt::format("cannot resume copying '{}' from {}: the source has changed since the connection broke; try again",
                    source, shell.name()));
  }
  check_tar(shell, source, output, events);
}

}  // namespace adaptdl::kube
