#include "group/rendezvous_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "adaptdl/error.h"
#include "base/fd.h"
#include "base/private_files.h"
#include "protocol/secret.h"

namespace adaptdl::internal {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using RendezvousClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookAgain{50};

// Replaces the file atomically. O_EXCL is required because another user may have put a file into a shared directory.
void write_address(const fs::path& path, const std::string& text) {
  const std::string unfinished = path.string() + ".new";
  std::error_code error;
  fs::remove(unfinished, error);
  const Fd file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kPrivateFile));
  const ssize_t written = file ? ::write(file.get(), text.data(), text.size()) : -1;
  const bool complete = written == static_cast<ssize_t>(text.size());
  if (complete && ::rename(unfinished.c_str(), path.c_str()) == 0) return;
  const int reason = complete || written < 0 ? errno : ENOSPC;
  throw Error(fmt::format("cannot write '{}': {}", path.string(), std::strerror(reason)));
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Waits until the file contains a text other than `before`, and returns that text. Returns "" at the deadline.
std::string await_text(const fs::path& path, const std::string& before, RendezvousClock::time_point deadline) {
  while (RendezvousClock::now() < deadline) {
    if (auto text = read_text(path); !text.empty() && text != before) return text;
    std::this_thread::sleep_for(kLookAgain);
  }
  return {};
}

// Reads the address that rank 0 of this job or of an earlier job wrote.
void read_address(const std::string& text, const fs::path& path, collective::Options& options, bool needs_secret) {
  try {
    const auto address = json::parse(text);
    address.at("host").get_to(options.master_addr);
    address.at("port").get_to(options.master_port);
    if (needs_secret) address.at("secret").get_to(options.secret);
  } catch (const json::exception&) {
    throw Error(fmt::format("'{}' does not contain the address of rank 0; use another file", path.string()));
  }
}

void initialize_first(const fs::path& path, const std::string& host, collective::Options& options) {
  // A file with other contents is never replaced.
  if (const auto text = read_text(path); !text.empty()) read_address(text, path, options, false);
  options.master_addr = host;
  options.master_port = 0;
  json address = {{"host", host}};
  // A secret that all replicas already know is not written.
  if (options.secret.empty()) address["secret"] = options.secret = make_secret();
  bool written = false;
  const auto remove = [&] {
    std::error_code ignored;
    if (std::exchange(written, false)) fs::remove(path, ignored);
  };
  try {
    collective::initialize(options, [&](std::uint16_t port) {
      address["port"] = port;
      write_address(path, address.dump());
      written = true;
    });
  } catch (...) {
    remove();
    throw;
  }
  remove();
}

void initialize_other(const fs::path& path, collective::Options& options) {
  const auto deadline = RendezvousClock::now() + options.connect_timeout;
  const bool needs_secret = options.secret.empty();
  std::exception_ptr failure;
  for (std::string text;;) {
    text = await_text(path, text, deadline);
    if (text.empty() && failure) std::rethrow_exception(failure);
    if (text.empty())
      throw collective::CollectiveError(fmt::format(
          "replica {} did not find '{}' within {:g}s; check that rank 0 is running and shares the directory",
          options.rank, path.string(), std::chrono::duration<double>(options.connect_timeout).count()));
    read_address(text, path, options, needs_secret);
    auto attempt = options;
    attempt.connect_timeout =
        std::max(kLookAgain, std::chrono::ceil<std::chrono::milliseconds>(deadline - RendezvousClock::now()));
    // The file is removed once all replicas are connected, so a missing file is not a change.
    attempt.give_up = [&] {
      const auto now = read_text(path);
      return !now.empty() && now != text;
    };
    try {
      return collective::initialize(attempt);
    } catch (const collective::CollectiveError&) {
      // An earlier job's file may name a port that another process now uses.
      failure = std::current_exception();
    }
  }
}

}  // namespace

void initialize_by_file(const fs::path& path, const std::string& host, collective::Options& options) {
  if (options.rank == 0) {
    initialize_first(path, host, options);
  } else {
    initialize_other(path, options);
  }
}

}  // namespace adaptdl::internal
