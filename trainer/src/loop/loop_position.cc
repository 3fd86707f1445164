#include "loop/loop_position.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "adaptdl/error.h"
#include "base/counted.h"

namespace adaptdl::internal {

void LoopPosition::enter(int epoch) {
  if (epoch_ == epoch) return;
  epoch_ = epoch;
  finished_ = -1;
  place_ = {};
}

void LoopPosition::finish(int loop) noexcept {
  finished_ = loop;
  place_ = {};
}

void LoopPosition::begin_nested() noexcept { outside_ = std::exchange(place_, {}); }

void LoopPosition::check_dataset(const std::string& loader, std::size_t samples) {
  auto& saved = place_.dataset_size;
  if (place_.index > 0 && saved != 0 && saved != samples) {
    throw Error(fmt::format(
        "data loader '{}' cannot resume in the middle of its dataset, which had {} when the checkpoint was "
        "saved, but has {} now; use the same data, or start from the beginning with another checkpoint directory",
        loader, counted(saved, "sample"), samples));
  }
  if (place_.index >= samples && place_.index > 0 && saved == 0) {
    throw Error(fmt::format(
        "data loader '{}' cannot resume at sample {} of a dataset of {}; use the data that the checkpoint was "
        "saved with, or start from the beginning with another checkpoint directory",
        loader, place_.index, counted(samples, "sample")));
  }
  saved = samples;
}

void LoopPosition::advance(std::size_t samples) noexcept {
  auto& index = place_.index;
  const auto size = place_.dataset_size;
  const auto after = index + samples;
  index = size > 0 ? std::min(after, (index / size + 1) * size) : after;
}

void LoopPosition::finish_pass(std::size_t samples) noexcept {
  place_.index = (place_.index + samples - 1) / samples * samples;
}

void LoopPosition::begin_step() noexcept {
  step_index_ = place_.index;
  step_end_index_ = place_.end_index;
}

void LoopPosition::rewind() noexcept {
  place_.index = step_index_;
  place_.end_index = step_end_index_;
}

nlohmann::json LoopPosition::save() const {
  return {{"epoch", epoch_},
          {"finished", finished_},
          {"index", place_.index},
          {"end_index", place_.end_index},
          {"dataset_size", place_.dataset_size}};
}

void LoopPosition::load(const nlohmann::json& saved) {
  saved.at("epoch").get_to(epoch_);
  saved.at("finished").get_to(finished_);
  saved.at("index").get_to(place_.index);
  saved.at("end_index").get_to(place_.end_index);
  saved.at("dataset_size").get_to(place_.dataset_size);
}

}  // namespace adaptdl::internal
