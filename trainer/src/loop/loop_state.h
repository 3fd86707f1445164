// The checkpoint state of a data loader's loop: the loop's position in the epoch, and the chosen batch size.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "adaptdl/checkpoint.h"
#include "loop/batch_size_choice.h"
#include "loop/loop_position.h"

namespace adaptdl::internal {

class LoopState : public checkpoint::State {
 public:
  explicit LoopState(const std::string& name) : State(name) {}

  void save(checkpoint::Writer& writer) const override {
    auto loop = position.save();
    loop["warm_bsz"] = warm_bsz;
    loop["finished_local_bsz"] = finished_size.local_bsz;
    loop["finished_accumulation_steps"] = finished_size.accumulation_steps;
    loop["finished_replicas"] = finished_replicas;
    writer.json("loop", std::move(loop));
    writer.json("batch_size", choice.save());
  }

  void load(const checkpoint::Reader& reader) override {
    const auto saved = reader.json("loop");
    try {
      position.load(saved);
      warm_bsz = saved.value("warm_bsz", std::size_t{0});
      finished_size.local_bsz = saved.value("finished_local_bsz", std::size_t{0});
      finished_size.accumulation_steps = saved.value("finished_accumulation_steps", 0);
      finished_replicas = saved.value("finished_replicas", std::size_t{1});
      if (reader.has_json("batch_size")) choice.load(reader.json("batch_size"));
    } catch (const nlohmann::json::exception& error) {
      throw checkpoint::CheckpointError(reader.describe() + ": invalid data loader state: " + error.what());
    }
  }

  nlohmann::json progress() const override {
    if (!running) return nlohmann::json::object();
    auto progress = nlohmann::json{{"samples", position.index()}};
    if (position.dataset_size() > 0) progress["dataset_size"] = position.dataset_size();
    return progress;
  }

  LoopPosition position;
  std::size_t warm_bsz = 0;  // local batch size of the last batch, which warmed up the caches
  BatchSizeChoice choice;
  // The batch size and the number of replicas of the last finished loop; `choice` may already apply to the next loop.
  BatchSize finished_size{};
  std::size_t finished_replicas = 1;
  bool running = false;
};

}  // namespace adaptdl::internal
