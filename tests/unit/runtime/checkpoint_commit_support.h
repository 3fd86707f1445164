// Shared by the tests of saving: a job with several states, and what its saves report.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "checkpoint_support.h"

namespace checkpoint_commit_support {

using namespace checkpoint_test;

// Several states that all save the same step. The tensor is large enough for saving to take a while.
struct Job {
  explicit Job(std::size_t bytes = std::size_t{1} << 20) : model(step, bytes) {}
  struct Model : ckpt::State {
    Model(const int& s, std::size_t b) : State("model"), step(s), bytes(b) {}
    void save(ckpt::Writer& writer) const override {
      writer.tensor({"weight", "I32", {static_cast<std::int64_t>(bytes / 4)}},
                    [this](std::size_t offset, std::span<std::byte> out) {
                      if (before_chunk) before_chunk(offset);
                      for (std::size_t i = 0; i + 4 <= out.size(); i += 4) std::memcpy(out.data() + i, &step, 4);
                    });
    }
    void load(const ckpt::Reader& reader) override {
      std::vector<std::int32_t> data(bytes / 4);
      reader.tensor("weight", std::as_writable_bytes(std::span(data)));
      loaded = data.front();
      for (const std::int32_t value : data) consistent = consistent && value == loaded;
    }
    const int& step;
    std::size_t bytes;
    std::function<void(std::size_t)> before_chunk;
    int loaded = -1;
    bool consistent = true;
  };

  void save() {
    first.value = last.value = step;
    REQUIRE(ckpt::save_all_states());
  }
  // Returns the step that all states load.
  int load() {
    ckpt::reset();
    if (!ckpt::load_state(first)) return -1;
    REQUIRE(ckpt::load_state(last));
    REQUIRE(ckpt::load_state(model));
    CHECK(model.consistent);
    CHECK(first.value == last.value);
    CHECK(first.value == model.loaded);
    return first.value;
  }

  int step = 0;
  Number first{"a-first"};
  Model model;
  Number last{"z-last"};
};

// For use in a child: returns `code` as the exit status unless the condition holds.
#define EXPECT_OR(code, condition) \
  if (!(condition)) return code

inline std::string save_error() {
  try {
    ckpt::save_all_states();
  } catch (const ckpt::CheckpointError& error) {
    return error.what();
  }
  return "saved";
}

}  // namespace checkpoint_commit_support
