// Damages checkpoints at random and loads them: a damaged checkpoint must be refused, or an older good one used, the
// reason must be reported in either case, and wrong data must never be loaded. Arguments: [COUNT [SEED]], by default
// 1000 and 1. Prints the number of each outcome.
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"

namespace {

namespace fs = std::filesystem;
namespace ckpt = adaptdl::checkpoint;
using Random = std::mt19937_64;
using Files = std::map<std::string, std::string>;  // content by file name

void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

// A state whose data identifies its checkpoint in as many bytes as possible.
class Model : public ckpt::State {
 public:
  Model() : State("model/1") {}
  void save(ckpt::Writer& writer) const override {
    writer.json("step", step);
    writer.json("list", std::vector<int>(20, step));
    for (const int size : {1, 60, 700}) {
      const std::vector<std::int32_t> data(static_cast<std::size_t>(size), 1000 + step);
      const auto bytes = std::as_bytes(std::span(data));
      writer.bytes("bytes" + std::to_string(size), std::vector<std::byte>(bytes.begin(), bytes.end()));
    }
  }
  void load(const ckpt::Reader& reader) override {
    step = reader.json("step").get<int>();
    require(reader.json("list") == nlohmann::json(std::vector<int>(20, step)),
            "a list of the wrong checkpoint was loaded");
    require(reader.tensors().size() == 3, "the wrong tensors were loaded");
    for (const auto& info : reader.tensors()) {
      std::vector<std::int32_t> data(info.bytes() / 4);
      reader.tensor(info.name, std::as_writable_bytes(std::span(data)));
      require(info.name == "bytes" + std::to_string(data.size()), "a tensor of the wrong size was loaded");
      for (const std::int32_t value : data) require(value == 1000 + step, "wrong data was loaded");
    }
  }
  nlohmann::json progress() const override { return {{"step", step}}; }
  int step = 0;
};

class Generator : public ckpt::State {
 public:
  Generator() : State("generator") {}
  void save(ckpt::Writer& writer) const override { writer.json("step", step); }
  void load(const ckpt::Reader& reader) override { step = reader.json("step").get<int>(); }
  bool has_parts() const override { return true; }
  void save_part(ckpt::Writer& writer) const override { writer.json("own", 10 * step); }
  void load_part(const ckpt::Reader& reader) override { own = reader.json("own").get<int>(); }
  int step = 0, own = 0;
};

Files read_files(const fs::path& directory) {
  Files files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

void write_files(const fs::path& directory, const Files& files) {
  fs::remove_all(directory);
  fs::create_directory(directory);
  for (const auto& [name, content] : files) {
    std::ofstream out(directory / name, std::ios::binary);
    out << content;
    require(out.good(), "cannot write " + (directory / name).string());
  }
}

std::size_t below(Random& random, std::size_t bound) {
  return std::uniform_int_distribution<std::size_t>(0, bound - 1)(random);
}

// Changes `files` in one way, and returns a description. `other` contains the files of the other checkpoint.
std::string mutate(Files& files, const Files& other, Random& random) {
  auto file = std::next(files.begin(), static_cast<std::ptrdiff_t>(below(random, files.size())));
  const std::string name = file->first;
  std::string& content = file->second;
  const std::size_t at = below(random, content.size());
  const std::size_t length = 1 + below(random, std::min<std::size_t>(content.size() - at, 64));
  switch (below(random, 9)) {
    case 0:
      content[at] = static_cast<char>(content[at] ^ (1 << below(random, 8)));
      return fmt::format("a bit of byte {} of {} flipped", at, name);
    case 1:
      content.resize(at);
      return fmt::format("{} cut to {} bytes", name, at);
    case 2:
      files.erase(file);
      return fmt::format("{} missing", name);
    case 3:
      content = std::next(files.begin(), static_cast<std::ptrdiff_t>(below(random, files.size())))->second;
      return fmt::format("{} swapped for another file", name);
    case 4:
      content = other.at(name);
      return fmt::format("{} swapped for that of the other checkpoint", name);
    case 5:
      content.insert(at, length, static_cast<char>(below(random, 256)));
      return fmt::format("{} bytes inserted at {} of {}", length, at, name);
    case 6:
      content.insert(at, content.substr(at, length));
      return fmt::format("bytes {} to {} of {} doubled", at, at + length, name);
    case 7:
      content.erase(at, length);
      return fmt::format("bytes {} to {} of {} removed", at, at + length, name);
    default:
      for (std::size_t i = at; i < at + length; ++i) content[i] = static_cast<char>(below(random, 256));
      return fmt::format("bytes {} to {} of {} overwritten", at, at + length, name);
  }
}

// Captures standard error. take() returns what was written since the last call.
class Log {
 public:
  Log() : saved_(::dup(2)), file_(::memfd_create("log", MFD_CLOEXEC)) { ::dup2(file_, 2); }
  ~Log() { ::dup2(saved_, 2); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  std::string take() {
    std::string text(static_cast<std::size_t>(::lseek(file_, 0, SEEK_CUR)), '\0');
    require(::pread(file_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()), "cannot read the log");
    require(::ftruncate(file_, 0) == 0 && ::lseek(file_, 0, SEEK_SET) == 0, "cannot clear the log");
    return text;
  }

 private:
  int saved_, file_;
};

enum class Outcome { kNewest, kOlder, kRefused };

// Loads the checkpoints in `directory`, and checks that all data is from one of them. Sets `reason` to the reason why
// the newest was not used.
Outcome load(Model& model, Generator& generator, Log& log, std::string& reason) {
  model.step = generator.step = generator.own = -1;
  ckpt::reset();
  try {
    require(ckpt::load_state(model, true) && ckpt::load_state(generator, true),
            "a damaged checkpoint was taken for a new start");
  } catch (const ckpt::CheckpointError& error) {
    reason = error.what();
    require(model.step == -1 && generator.step == -1, "a refused checkpoint gave data to a state");
    return Outcome::kRefused;
  }
  reason = log.take();
  require(model.step == generator.step && generator.own == 10 * generator.step, "two checkpoints were mixed");
  require(ckpt::loaded_number() == static_cast<std::uint64_t>(model.step), "the wrong number was reported");
  return model.step == 1 ? Outcome::kNewest : Outcome::kOlder;
}

struct Base {
  Files older, newest;
};

Base make_base(const fs::path& directory, Model& model, Generator& generator) {
  for (int step = 0; step < 2; ++step) {
    model.step = generator.step = step;
    ckpt::save_all_states();
  }
  return {read_files(directory / "checkpoint-0"), read_files(directory / "checkpoint-1")};
}

// Runs one case: damages the newest checkpoint, or both, and returns the outcome.
Outcome run_case(const fs::path& directory, const Base& base, Model& model, Generator& generator, Log& log,
                 Random& random, std::string& what) {
  Files older = base.older, newest = base.newest;
  const bool both = below(random, 4) == 0;
  while (newest == base.newest) what = mutate(newest, base.older, random);  // some mutations change nothing
  if (both) {
    std::string also;
    while (older == base.older) also = mutate(older, base.newest, random);
    what += ", and in the older one: " + also;
  }
  write_files(directory / "checkpoint-1", newest);
  if (both) write_files(directory / "checkpoint-0", older);
  log.take();

  std::string reason;
  const Outcome outcome = load(model, generator, log, reason);
  require(outcome != Outcome::kNewest, "the damaged checkpoint was used");
  require(!both || outcome == Outcome::kRefused, "a damaged older checkpoint was used");
  require(reason.find("checkpoint-1") != std::string::npos, "no reason was given: " + reason);
  require(outcome != Outcome::kOlder || reason.find("warning") != std::string::npos,
          "an older checkpoint was used without a warning");
  require(outcome != Outcome::kRefused || both || reason.find("newer adaptdl") != std::string::npos,
          "refused although the older checkpoint is good: " + reason);
  require(!ckpt::verify(directory / "checkpoint-1").empty(), "verify found nothing wrong");
  if (both) write_files(directory / "checkpoint-0", base.older);
  return outcome;
}

int run(int count, std::uint64_t seed) {
  std::string name = (fs::temp_directory_path() / "checkpoint-mutation-XXXXXX").string();
  require(::mkdtemp(name.data()) != nullptr, "cannot create " + name);
  struct Remove {
    ~Remove() { fs::remove_all(path); }
    fs::path path;
  } const remove{name};
  ::setenv("ADAPTDL_CHECKPOINT_PATH", name.c_str(), 1);
  Model model;
  Generator generator;
  const Base base = make_base(name, model, generator);
  std::map<Outcome, int> outcomes;
  {
    Log log;
    std::string reason;
    require(load(model, generator, log, reason) == Outcome::kNewest, "the undamaged checkpoint is not loaded");
    Random random(seed);
    for (int i = 0; i < count; ++i) {
      std::string what;
      try {
        ++outcomes[run_case(name, base, model, generator, log, random, what)];
      } catch (const std::exception& error) {
        throw std::runtime_error(fmt::format("case {} of seed {} ({}): {}", i, seed, what, error.what()));
      }
    }
  }
  fmt::print(
      "{} damaged checkpoints: the older one was used {} times, loading failed {} times, and wrong data was never "
      "loaded\n",
      count, outcomes[Outcome::kOlder], outcomes[Outcome::kRefused]);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? std::atoi(argv[1]) : 1000, argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
