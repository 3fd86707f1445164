#include "local/record/run_logs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>

namespace adaptdl::sched {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::uint64_t>::max();

}  // namespace

void RunLogs::read(const Sink& sink) {
  std::ifstream order(directory_ / ".order");
  if (only_ || !order) {
    for (const int rank : only_ ? std::set<int>{*only_} : logged_ranks(directory_)) read_log(rank, kToTheEnd, sink);
    return;
  }
  order.seekg(static_cast<std::streamoff>(order_read_));
  for (std::string line; std::getline(order, line) && !order.eof();) {
    order_read_ += line.size() + 1;
    int rank = 0;
    unsigned long long end = 0;
    if (std::sscanf(line.c_str(), "%d %llu", &rank, &end) == 2) read_log(rank, end, sink);
  }
}

bool RunLogs::read_some(const Sink& sink, std::uint64_t max) {
  const std::uint64_t end = logs_[*only_].read + max;
  read_log(*only_, end, sink);
  return logs_[*only_].read == end;
}

void RunLogs::close() {
  for (auto& [rank, log] : logs_) log.file.reset();
}

void RunLogs::finish(const Sink& sink) {
  read(sink);
  for (const int rank : only_ ? std::set<int>{*only_} : logged_ranks(directory_)) {
    read_log(rank, kToTheEnd, sink);
    logs_[rank].lines.finish([&](std::string_view text, bool) { sink(rank, text); });
  }
}

void RunLogs::read_log(int rank, std::uint64_t end, const Sink& sink) {
  Log& log = logs_[rank];
  if (!log.file) log.file = Fd(::open((directory_ / fmt::format("rank-{}.log", rank)).c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, std::size_t{64} << 10> buffer;
  while (log.file && log.read < end) {
    const ssize_t size = ::pread(log.file.get(), buffer.data(), std::min<std::uint64_t>(buffer.size(), end - log.read),
                                 static_cast<off_t>(log.read));
    if (size <= 0) return;
    log.read += static_cast<std::uint64_t>(size);
    log.lines.feed({buffer.data(), static_cast<std::size_t>(size)},
                   [&](std::string_view text, bool) { sink(rank, text); });
  }
}

std::set<int> logged_ranks(const fs::path& directory) {
  std::set<int> ranks;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    constexpr std::string_view kBefore = "rank-", kAfter = ".log";
    if (!name.starts_with(kBefore) || !name.ends_with(kAfter)) continue;
    const char* const last = name.data() + name.size() - kAfter.size();
    int rank = 0;
    const auto [stop, failure] = std::from_chars(name.data() + kBefore.size(), last, rank);
    if (failure == std::errc() && stop == last) ranks.insert(rank);
  }
  return ranks;
}

}  // namespace adaptdl::sched
