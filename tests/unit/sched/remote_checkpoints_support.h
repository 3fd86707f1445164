// For tests: a run's directory of checkpoints.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "temporary_directory.h"

namespace remote_checkpoints_support {

namespace fs = std::filesystem;

inline std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

// A state of a program that uses adaptdl's runtime.
struct Number final : adaptdl::checkpoint::State {
  Number() : State("number") {}
  void save(adaptdl::checkpoint::Writer& writer) const override { writer.json("value", 7); }
  void load(const adaptdl::checkpoint::Reader&) override {}
};

class Directory : public testing::TemporaryDirectory {
 public:
  fs::path operator/(const std::string& name) const { return path() / name; }

  // Writes a checkpoint of a runtime without manifests.
  void add(int number, const std::string& content) const {
    const fs::path checkpoint = path() / ("checkpoint-" + std::to_string(number));
    fs::create_directory(checkpoint);
    std::ofstream(checkpoint / "state") << content;
  }
  // Saves checkpoints of adaptdl's runtime.
  void save(int count) const {
    ::setenv("ADAPTDL_CHECKPOINT_PATH", path().c_str(), 1);
    ::setenv("ADAPTDL_CHECKPOINT_KEEP", "100", 1);
    {
      const Number number;
      for (int i = 0; i < count; ++i) REQUIRE(adaptdl::checkpoint::save_all_states());
    }
    ::unsetenv("ADAPTDL_CHECKPOINT_PATH");
    ::unsetenv("ADAPTDL_CHECKPOINT_KEEP");
  }
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(path())) result.push_back(entry.path().filename().string());
    std::ranges::sort(result);
    return result;
  }
};

}  // namespace remote_checkpoints_support
