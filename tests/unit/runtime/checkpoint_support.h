// Shared by the tests of checkpoints: temporary directories, captured logs, child processes, and states with data to
// compare.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"

namespace checkpoint_test {

namespace fs = std::filesystem;
namespace ckpt = adaptdl::checkpoint;
using nlohmann::json;

// Sets ADAPTDL_CHECKPOINT_PATH to a temporary directory, which the destructor removes.
class Directory {
 public:
  Directory() {
    std::string name = (fs::temp_directory_path() / "adaptdl-checkpoint-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root_ = name;
    use(root_ / "checkpoints");
    fs::create_directory(path());
  }
  ~Directory() {
    ::unsetenv("ADAPTDL_CHECKPOINT_PATH");
    ::unsetenv("ADAPTDL_CHECKPOINT_KEEP");
    ckpt::reset();
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  void use(const fs::path& path) {
    path_ = path;
    ::setenv("ADAPTDL_CHECKPOINT_PATH", path.c_str(), 1);
    ckpt::reset();
  }
  const fs::path& root() const { return root_; }
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }
  // Returns the names of all entries, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  fs::path root_, path_;
};

// Captures what is written to standard error, such as the log, during its lifetime.
class Log {
 public:
  Log() : saved_(::dup(2)), file_(::memfd_create("log", MFD_CLOEXEC)) { ::dup2(file_, 2); }
  ~Log() {
    ::dup2(saved_, 2);
    ::close(saved_);
    ::close(file_);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  std::string text() const {
    std::string text(static_cast<std::size_t>(::lseek(file_, 0, SEEK_END)), '\0');
    const ssize_t count = ::pread(file_, text.data(), text.size(), 0);
    text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
    return text;
  }
  bool has(const std::string& part) const { return text().find(part) != std::string::npos; }
  int count(const std::string& part) const {
    int count = 0;
    const std::string all = text();
    for (auto at = all.find(part); at != std::string::npos; at = all.find(part, at + 1)) ++count;
    return count;
  }

 private:
  int saved_, file_;
};

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// A state with JSON values, and tensors in memory.
class MapState : public ckpt::State {
 public:
  struct Tensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::string data;
    bool operator==(const Tensor&) const = default;
  };

  explicit MapState(std::string name) : State(std::move(name)) {}
  void save(ckpt::Writer& writer) const override {
    for (const auto& [name, value] : values) writer.json(name, value);
    for (const auto& [name, tensor] : tensors) writer.tensor({name, tensor.dtype, tensor.shape}, bytes_of(tensor.data));
  }
  void load(const ckpt::Reader& reader) override {
    std::map<std::string, json> new_values;
    for (const std::string& name : names) new_values[name] = reader.json(name);
    tensors.clear();
    for (const auto& info : reader.tensors()) {
      Tensor tensor{info.dtype, info.shape, std::string(info.bytes(), '\0')};
      reader.tensor(info.name, std::as_writable_bytes(std::span(tensor.data)));
      tensors[info.name] = tensor;
    }
    values = new_values;
    replicas = reader.replicas();
  }

  std::map<std::string, json> values;
  std::vector<std::string> names;  // the names of the values to load
  std::map<std::string, Tensor> tensors;
  int replicas = 0;
};

// A state with one number.
class Number : public ckpt::State {
 public:
  explicit Number(std::string name, int number = 0) : State(std::move(name)), value(number) {}
  void save(ckpt::Writer& writer) const override { writer.json("value", value); }
  void load(const ckpt::Reader& reader) override { value = reader.json("value").get<int>(); }
  int value;
};

// Returns the text of the CheckpointError (or E) that `call` throws; fails the test if it throws nothing.
template <typename E = ckpt::CheckpointError>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  FAIL("no error was thrown");
  return {};
}

// Returns what `xxhsum -H2` prints for a file with this text.
inline std::string xxh128(const std::string& text) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data(), text.size()));
  std::string hex;
  for (const unsigned char byte : canonical.digest)
    hex += "0123456789abcdef"[byte >> 4], hex += "0123456789abcdef"[byte & 15];
  return hex;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return std::move(bytes).str();
}

inline void write_file(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  REQUIRE(out.good());
}

inline void flip_bit(const fs::path& path, std::size_t byte) {
  std::string text = read_file(path);
  REQUIRE(byte < text.size());
  text[byte] = static_cast<char>(text[byte] ^ 0x10);
  write_file(path, text);
}

// Runs `body` in a child process, which exits with its result, or with 99 if it throws. `body` must not use REQUIRE,
// and the parent sees a failure only in the exit status.
inline pid_t start_child(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid > 0) return pid;
  int status = 99;
  try {
    status = body();
  } catch (const std::exception& error) {
    const std::string text = std::string("child: ") + error.what() + "\n";
    (void)!::write(2, text.data(), text.size());
  }
  ::_exit(status);
}

// Returns the exit status of a child, or minus the signal that killed it.
inline int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

inline int run_child(const std::function<int()>& body) { return wait_for(start_child(body)); }

}  // namespace checkpoint_test
