#include "kube/copy/copier.h"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <utility>

#include "kube/copy/place.h"
#include "kube/copy/remote_files.h"

namespace adaptdl::kube {
namespace {

// Arguments: the file's name ($1), its size in blocks ($2), the architecture it is built for ($3), another directory to
// try ($4), and the copier's own arguments. The script does not overwrite existing files (set -C), and tests with a
// one-line script whether files in a directory can be executed. dd reads no bytes beyond the program.
//
// The shell does not replace itself with the copier (exec), because containerd may end the input early for a command
// that reads the input directly.
constexpr std::string_view kRun = R"sh(name=$1 blocks=$2 machine=$3 last=$4
shift 4
[ "$(uname -sm)" = "Linux $machine" ] || exit 99
for directory in /tmp /var/tmp "$last"; do
  file=$directory/$name
  (umask 077; set -C; echo '#!/bin/sh' >"$file") 2>/dev/null || continue
  if chmod 700 "$file" && "$file" 2>/dev/null; then
    dd bs=4096 count="$blocks" iflag=fullblock of="$file" 2>/dev/null && "$file" && exec 3<"$file"
    status=$?
    rm -f "$file"
    [ $status = 0 ] || exit 99
    /proc/self/fd/3 "$@"
    exit $?
  fi
  rm -f "$file"
done
exit 99)sh";
constexpr int kNoCopier = 99;
constexpr std::size_t kProgramBlock = 4096;
constexpr std::size_t kXxh128Digits = 32;

std::string this_machine() {
  utsname name{};
  ::uname(&name);
  return name.machine;
}

// Returns a feed that consists of the program, followed by `feed`.
Feed behind_program(const Feed& feed) {
  return [&feed, first = true]() mutable { return std::exchange(first, false) ? kCopierProgram : feed(); };
}

}  // namespace

Copier::Copier(Shell& shell, std::uint64_t largest, const std::string& directory)
    : shell_(shell), directory_(as_argument(directory)), there_(largest >= kWorth && !kCopierProgram.empty()) {}

std::vector<std::string> Copier::arguments(const std::vector<std::string>& words) const {
  std::vector<std::string> all{temporary_name("copier"), std::to_string(kCopierProgram.size() / kProgramBlock),
                               this_machine(), directory_};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::optional<std::string> Copier::sum(const std::string& path, std::uint64_t size) {
  if (!there_) return remote_sha256(shell_, path, size);
  const Feed nothing = [] { return std::string_view(); };
  const Outcome outcome = run(shell_, kRun, arguments({"sum", path, std::to_string(size)}), behind_program(nothing));
  if (outcome.exit_code == kNoCopier) return std::nullopt;
  if (outcome.exit_code != 0 || outcome.out.size() < kXxh128Digits)
    refuse(shell_, fmt::format("read '{}'", path), outcome);
  return outcome.out.substr(0, kXxh128Digits);
}

Outcome Copier::receive(const std::string& path, std::uint64_t offset, std::uint64_t size, const Feed& feed) {
  Outcome outcome = run(shell_, kRun, arguments({"receive", path, std::to_string(offset), std::to_string(size)}),
                        behind_program(feed));
  check(outcome);
  outcome.out.resize(std::min(outcome.out.size(), kXxh128Digits));
  return outcome;
}

std::vector<std::string> Copier::send(const std::string& path, std::uint64_t offset, std::uint64_t size) const {
  return script(kRun, arguments({"send", path, std::to_string(offset), std::to_string(size)}));
}

void Copier::check(const Outcome& outcome, bool begun) {
  if (outcome.exit_code != kNoCopier) return;
  if (begun) throw Error(fmt::format("{} was replaced during the copy; try again", shell_.name()));
  there_ = false;
  throw NoCopier();
}

}  // namespace adaptdl::kube
