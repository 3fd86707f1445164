// The checkpoint state of a data loader's loop: the loop's position in the epoch, and the chosen batch size.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "loop/batch_size_choice.h"

namespace adaptdl {

class AdaptiveDataLoaderHelper::LoopState : public checkpoint::State {
 public:
  explicit LoopState(const std::string& name) : State(name) {}

  void save(checkpoint::Writer& writer) const override {
    writer.json("loop", {{"epoch", epoch},
                         {"finished", finished},
                         {"index", place.index},
                         {"end_index", place.end_index},
                         {"dataset_size", place.dataset_size},
                         {"warm_bsz", warm_bsz},
                         {"finished_local_bsz", finished_size.local_bsz},
                         {"finished_accumulation_steps", finished_size.accumulation_steps},
                         {"finished_replicas", finished_replicas}});
    writer.json("batch_size", choice.save());
  }

  void load(const checkpoint::Reader& reader) override {
    const auto saved = reader.json("loop");
    try {
      saved.at("epoch").get_to(epoch);
      saved.at("finished").get_to(finished);
      saved.at("index").get_to(place.index);
      saved.at("end_index").get_to(place.end_index);
      saved.at("dataset_size").get_to(place.dataset_size);
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
    auto progress = nlohmann::json{{"samples", place.index}};
    if (place.dataset_size > 0) progress["dataset_size"] = place.dataset_size;
    return progress;
  }

  // Enters the epoch `now`. Drops the positions if they belong to another epoch.
  void enter(int now) {
    if (epoch == now) return;
    epoch = now;
    finished = -1;
    place = {};
  }

  struct Place {
    std::size_t index = 0;         // samples read
    std::size_t end_index = 0;     // for the loader's own use
    std::size_t dataset_size = 0;  // 0: unknown
  };

  int epoch = -1;            // the epoch to which the other members apply
  int finished = -1;         // index of the last finished loop in the epoch; -1: none
  Place place;               // position in the running or interrupted loop
  Place outside;             // saves `place` while the loader's loop is nested in another loop
  std::size_t warm_bsz = 0;  // local batch size of the last batch, which warmed up the caches
  internal::BatchSizeChoice choice;
  // The batch size and the number of replicas of the last finished loop; `choice` may already apply to the next loop.
  internal::BatchSize finished_size{};
  std::size_t finished_replicas = 1;
  bool running = false;
};

}  // namespace adaptdl
