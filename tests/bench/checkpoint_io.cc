// Measures how fast a checkpoint is saved and loaded relative to the disk: a streamed write with fsync, and a streamed
// read with an empty page cache. Because a disk's speed drifts, each round measures in the order plain, checkpoint,
// checkpoint, plain, and the result is the median ratio of the rounds. Fails if the result is below 0.8. Arguments:
// [DIRECTORY [MIB [ROUNDS]]], by default the current directory, 1024 and 7.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"

namespace {

namespace fs = std::filesystem;
namespace ckpt = adaptdl::checkpoint;

constexpr double kGoal = 0.8;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kTensor = 32 * kMiB;

double seconds_of(const std::function<void()>& call) {
  const auto begin = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void require(bool condition, const std::string& what) {
  if (!condition) throw adaptdl::Error(what);
}

// A model whose tensors are in memory.
class Model : public ckpt::State {
 public:
  explicit Model(std::size_t bytes) : State("model"), data(bytes) {
    std::uint64_t x = 1;
    for (std::byte& byte : data)
      byte = static_cast<std::byte>((x = x * 6364136223846793005ULL + 1442695040888963407ULL) >> 56);
  }
  void save(ckpt::Writer& writer) const override {
    for (std::size_t at = 0; at < data.size(); at += kTensor) {
      const auto part = std::span(data).subspan(at, std::min(kTensor, data.size() - at));
      writer.tensor({std::to_string(at / kTensor), "F32", {static_cast<std::int64_t>(part.size() / 4)}}, part);
    }
  }
  void load(const ckpt::Reader& reader) override {
    for (std::size_t at = 0; at < data.size(); at += kTensor)
      reader.tensor(std::to_string(at / kTensor), std::span(data).subspan(at, std::min(kTensor, data.size() - at)));
  }
  std::vector<std::byte> data;
};

void write_plainly(const fs::path& file, const std::vector<std::byte>& data) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  require(fd >= 0, "cannot create " + file.string());
  for (std::size_t at = 0; at < data.size();) {
    const ssize_t count = ::write(fd, data.data() + at, std::min(kMiB, data.size() - at));
    require(count > 0, "cannot write " + file.string());
    at += static_cast<std::size_t>(count);
  }
  require(::fsync(fd) == 0, "cannot sync " + file.string());
  ::close(fd);
}

void read_plainly(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  require(fd >= 0, "cannot open " + file.string());
  std::vector<std::byte> buffer(kMiB);
  while (::read(fd, buffer.data(), buffer.size()) > 0) {
  }
  ::close(fd);
}

// Drops the pages of a file from the page cache, and verifies that they are gone.
void drop_from_cache(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info {};
  require(fd >= 0 && ::fstat(fd, &info) == 0 && ::fsync(fd) == 0, "cannot open " + file.string());
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  const auto size = static_cast<std::size_t>(info.st_size);
  void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  require(map != MAP_FAILED, "cannot map " + file.string());
  std::vector<unsigned char> pages((size + 4095) / 4096);
  ::mincore(map, size, pages.data());
  const auto cached = std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; });
  ::munmap(map, size);
  ::close(fd);
  require(static_cast<std::size_t>(cached) * 100 <= pages.size(), file.string() + " stays in the page cache");
}

// Returns the ratio of the times of two functions, each called twice in an order that cancels a linear drift.
double ratio(int round, const char* what, const std::function<double()>& plain,
             const std::function<double()>& checkpoint) {
  double first = plain();
  double second = checkpoint();
  second += checkpoint();
  first += plain();
  fmt::print("round {}: {} plain {:6.3f} s, checkpoint {:6.3f} s, ratio {:.2f}\n", round, what, first / 2, second / 2,
             first / second);
  std::fflush(stdout);
  return first / second;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// A directory for the benchmark's files. It is removed at the end.
struct Scratch {
  explicit Scratch(const fs::path& base) {
    std::string name = (base / "checkpoint-io-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "cannot create a directory in " + base.string());
    path = name;
  }
  ~Scratch() { fs::remove_all(path); }
  fs::path path;
};

double save_ratio(int round, const fs::path& directory, const Model& model) {
  int next = 0;
  const auto in_fresh_directory = [&](const std::function<void(const fs::path&)>& save) {
    const fs::path fresh = directory / std::to_string(next++);
    fs::create_directory(fresh);
    const double seconds = seconds_of([&] { save(fresh); });
    fs::remove_all(fresh);
    ::sync();
    return seconds;
  };
  const auto save_checkpoint = [](const fs::path& fresh) {
    ::setenv("ADAPTDL_CHECKPOINT_PATH", fresh.c_str(), 1);
    ckpt::save_all_states();
  };
  return ratio(
      round, "save",
      [&] { return in_fresh_directory([&](const fs::path& fresh) { write_plainly(fresh / "plain", model.data); }); },
      [&] { return in_fresh_directory(save_checkpoint); });
}

double load_ratio(int round, const fs::path& directory, Model& model) {
  const fs::path file = directory / "checkpoint-0/model.safetensors";
  const auto uncached = [&](const std::function<void()>& load) {
    drop_from_cache(file);
    return seconds_of(load);
  };
  return ratio(
      round, "load", [&] { return uncached([&] { read_plainly(file); }); },
      [&] {
        ckpt::reset();
        return uncached([&] { require(ckpt::load_state(model, true), "nothing was loaded"); });
      });
}

int run(const fs::path& base, std::size_t bytes, int rounds) {
  const Scratch scratch(base);
  Model model(bytes);
  std::vector<double> saving, loading;
  for (int round = 0; round < rounds; ++round) saving.push_back(save_ratio(round, scratch.path, model));
  const fs::path kept = scratch.path / "kept";
  ::setenv("ADAPTDL_CHECKPOINT_PATH", kept.c_str(), 1);
  ckpt::save_all_states();
  for (int round = 0; round < rounds; ++round) loading.push_back(load_ratio(round, kept, model));
  const double save = median(saving), load = median(loading);
  fmt::print("save: {:.2f} of a streamed write with fsync, load: {:.2f} of a streamed read; the goal is {}\n", save,
             load, kGoal);
  return save >= kGoal && load >= kGoal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : ".", (argc > 2 ? std::stoul(argv[2]) : 1024) * kMiB,
               argc > 3 ? std::stoi(argv[3]) : 7);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  }
}
