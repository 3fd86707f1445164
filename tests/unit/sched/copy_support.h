// The remote end of a copy on this machine: real commands over a connection that a test can break.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>

#include "base/fd.h"
#include "kube/copy/copy.h"
#include "kube/copy/shell.h"
#include "temporary_directory.h"

namespace testing {

namespace fs = std::filesystem;
using namespace adaptdl;
using namespace adaptdl::kube;

class LocalProcess : public Process {
 public:
  // After `breaks` bytes, the connection breaks and the command reads end-of-file from its input.
  LocalProcess(const std::vector<std::string>& command, const std::string& path, std::optional<std::uint64_t> breaks)
      : left_(breaks) {
    adaptdl::Pipe in = adaptdl::make_pipe(), out = adaptdl::make_pipe(), err = adaptdl::make_pipe();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in.read.get(), 0);
      ::dup2(out.write.get(), 1);
      ::dup2(err.write.get(), 2);
      if (!path.empty()) ::setenv("PATH", path.c_str(), 1);
      std::vector<char*> words;
      for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
      words.push_back(nullptr);
      ::execvp("/bin/sh", words.data());
      ::_exit(127);
    }
    in_ = std::move(in.write);
    out_ = std::move(out.read);
    err_ = std::move(err.read);
  }
  ~LocalProcess() override {
    in_.reset();
    out_.reset();
    err_.reset();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }

  bool read(const Sink& out, const Sink& err) override {
    if (broken_) throw Broken("the connection broke");
    std::array<pollfd, 2> waiting{{{out_ ? out_.get() : -1, POLLIN, 0}, {err_ ? err_.get() : -1, POLLIN, 0}}};
    if (!out_ && !err_) {
      int status = 0;
      ::waitpid(pid_, &status, 0);
      pid_ = 0;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      return false;
    }
    ::poll(waiting.data(), waiting.size(), -1);
    if (waiting[0].revents != 0) take(out_, out);
    if (waiting[1].revents != 0) take(err_, err);
    return true;
  }

  void write(std::string_view bytes) override {
    const std::string_view passed = bytes.substr(0, left_.value_or(bytes.size()));
    for (std::string_view rest = passed; !rest.empty();) {
      const ssize_t written = ::write(in_.get(), rest.data(), rest.size());
      if (written <= 0) throw Broken("the connection broke");
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
    spend(passed.size());
    if (passed.size() < bytes.size()) spend(1);
  }

  int exit_code() override { return code_; }

 private:
  void take(adaptdl::Fd& from, const Sink& sink) {
    std::string buffer(65536, '\0');
    const ssize_t got =
        ::read(from.get(), buffer.data(), std::min<std::uint64_t>(buffer.size(), left_.value_or(65536) + 1));
    if (got <= 0) return from.reset();
    sink({buffer.data(), std::min<std::uint64_t>(static_cast<std::uint64_t>(got), left_.value_or(65536))});
    spend(static_cast<std::uint64_t>(got));
  }
  void spend(std::uint64_t bytes) {
    if (!left_) return;
    if (bytes > *left_) {
      in_.reset();
      out_.reset();
      err_.reset();
      broken_ = true;
    }
    if (broken_) throw Broken("the connection broke");
    *left_ -= bytes;
  }

  std::optional<std::uint64_t> left_;
  bool broken_ = false;
  pid_t pid_ = 0;
  int code_ = -1;
  adaptdl::Fd in_, out_, err_;
};

class LocalShell : public Shell {
 public:
  explicit LocalShell(std::string path = {}) : path_(std::move(path)) { ::signal(SIGPIPE, SIG_IGN); }
  // The byte counts after which the connections of the next processes break; later connections do not break.
  std::deque<std::uint64_t> breaks;
  int broken = 0;
  // The file names under which all shells sent copiers.
  inline static std::set<std::string> copiers;

  std::unique_ptr<Process> start(const std::vector<std::string>& command, bool) override {
    const std::lock_guard lock(mutex_);
    for (const std::string& word : command)
      if (word.ends_with(".copier")) copiers.insert(word);
    std::optional<std::uint64_t> after;
    if (!breaks.empty()) {
      after = breaks.front();
      breaks.pop_front();
      ++broken;
    }
    return std::make_unique<LocalProcess>(command, path_, after);
  }
  std::string name() const override { return "pod 'here'"; }

 private:
  std::mutex mutex_;
  std::string path_;
};

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

inline void write_file(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// Returns pseudorandom bytes.
inline std::string some_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint64_t state = 88172645463325252ULL;
  for (std::size_t at = 0; at < size; at += sizeof state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    std::memcpy(bytes.data() + at, &state, std::min(size - at, sizeof state));
  }
  return bytes;
}

// Returns a PATH with only the applets of busybox; empty if busybox is not installed.
inline std::string busybox_path(const fs::path& directory) {
  if (!fs::exists("/bin/busybox")) return {};
  for (const char* name : {"sh", "cat", "tail", "head", "tar", "stat", "sha256sum", "dd", "mv", "chmod", "touch",
                           "mkdir", "rm", "uname", "readlink"})
    fs::create_symlink("/bin/busybox", directory / name);
  return directory.string();
}

// Describes a tree by names, types, modes, times, links and contents, so that two trees can be compared.
inline std::string tree_text(const fs::path& root, bool directory_times = true) {
  std::vector<std::string> lines;
  std::map<ino_t, std::string> first;
  std::vector<fs::path> all;
  for (const auto& entry : fs::recursive_directory_iterator(root)) all.push_back(entry.path());
  std::ranges::sort(all);
  for (const fs::path& path : all) {
    struct stat status {};
    ::lstat(path.c_str(), &status);
    const std::string name = fs::relative(path.parent_path(), root) / path.filename();
    std::string line = name + ' ' + std::to_string(status.st_mode);
    if (S_ISLNK(status.st_mode)) {
      line += " -> " + fs::read_symlink(path).string();
    } else if (directory_times || !S_ISDIR(status.st_mode)) {
      line += ' ' + std::to_string(status.st_mtime);
    }
    if (S_ISREG(status.st_mode)) {
      const auto [found, added] = first.try_emplace(status.st_ino, name);
      line += added ? " " + read_file(path) : " is " + found->second;
    }
    lines.push_back(line);
  }
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

}  // namespace testing
