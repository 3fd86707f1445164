#include "kube/copy/remote_files.h"

#include <fmt/format.h>

#include <cstdio>
#include <random>

namespace adaptdl::kube {
namespace {

constexpr std::string_view kInspect = R"sh(
if [ -d "$1" ]; then exec stat -L -c 'd %s %a %Y' "$1"
elif [ -f "$1" ]; then
  stat -L -c 'f %s %a %Y' "$1" || exit
  if [ -L "$1" ]; then exec readlink -f "$1"; fi
elif [ -e "$1" ]; then echo o 0 0 0
else stat -L "$1" >/dev/null; echo n 0 0 0
fi)sh";

constexpr std::string_view kSha256 = R"sh(
command -v sha256sum >/dev/null 2>&1 || exit 9
if [ "$(stat -L -c %s "$1")" = "$2" ]; then exec sha256sum <"$1"; fi
head -c "$2" "$1" | sha256sum)sh";
constexpr int kNoTool = 9;
constexpr std::size_t kSha256Digits = 64;

}  // namespace

RemoteFile inspect(Shell& shell, const std::string& path) {
  const Outcome outcome = run(shell, kInspect, {as_argument(path)});
  char kind = 0;
  unsigned long long size = 0;
  unsigned mode = 0;
  long long modified = 0;
  if (outcome.exit_code != 0 ||
      std::sscanf(outcome.out.c_str(), "%c %llu %o %lld", &kind, &size, &mode, &modified) != 4)
    refuse(shell, fmt::format("inspect '{}'", path), outcome);
  RemoteFile file;
  file.size = size;
  file.mode = mode;
  file.modified = modified;
  if (const std::size_t line = outcome.out.find('\n'); line + 1 < outcome.out.size())
    file.behind_link = outcome.out.substr(line + 1, outcome.out.size() - line - 2);
  file.found = kind == 'd'   ? Found::kDirectory
               : kind == 'f' ? Found::kFile
               : kind == 'o' ? Found::kOther
                             : Found::kNothing;
  if (file.found == Found::kNothing) {
    const std::size_t colon = outcome.err.rfind(": ");
    file.why = outcome.err.substr(colon == std::string::npos ? 0 : colon + 2);
    file.why.resize(file.why.find_last_not_of("\r\n") + 1);
  }
  return file;
}

std::optional<std::string> remote_sha256(Shell& shell, const std::string& path, std::uint64_t size) {
  const Outcome outcome = run(shell, kSha256, {as_argument(path), std::to_string(size)});
  if (outcome.exit_code == kNoTool) return std::nullopt;
  if (outcome.exit_code != 0 || outcome.out.size() < kSha256Digits)
    refuse(shell, fmt::format("read '{}'", path), outcome);
  return outcome.out.substr(0, kSha256Digits);
}

std::string temporary_name(std::string_view suffix) {
  return fmt::format(".adaptdl-cp-{:08x}.{}", std::random_device()(), suffix);
}

}  // namespace adaptdl::kube
