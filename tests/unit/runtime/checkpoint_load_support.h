// Shared by the tests of loading: a directory with two checkpoints.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "adaptdl/checkpoint.h"
#include "checkpoint_support.h"

namespace checkpoint_load_support {

using namespace checkpoint_test;

// A directory with two checkpoints: checkpoint-0 contains the number 10 and a tensor filled with 'a', and checkpoint-1
// the number 11 and a tensor filled with 'b'.
struct TwoCheckpoints {
  TwoCheckpoints() {
    for (int i = 0; i < 2; ++i) {
      number.value = 10 + i;
      model.tensors["weight"] = {"U8", {1000}, std::string(1000, static_cast<char>('a' + i))};
      REQUIRE(ckpt::save_all_states());
    }
    number.value = -1;
    model.tensors.clear();
    ckpt::reset();
  }
  // Loads both states, which must come from the same checkpoint, and returns the number, 10 or 11.
  int load() {
    REQUIRE(ckpt::load_state(number, true));
    REQUIRE(ckpt::load_state(model, true));
    CHECK(model.tensors["weight"].data == std::string(1000, static_cast<char>('a' + number.value - 10)));
    return number.value;
  }
  // Checks that the older checkpoint is used after the newest was damaged, and that the log contains `reason`.
  void expect_older(const std::string& reason) {
    const Log log;
    CHECK(load() == 10);
    CHECK(ckpt::loaded_number() == 0);
    CHECK_MESSAGE(log.has(reason), log.text());
    CHECK(log.has("warning"));
    CHECK(log.has("checkpoint-0' instead"));
    CHECK_FALSE(ckpt::verify(directory / "checkpoint-1").empty());
  }

  Directory directory;
  Number number{"number"};
  MapState model{"model"};
};

}  // namespace checkpoint_load_support
