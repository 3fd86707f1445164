#include "scaling/lr_scheduler_state.h"

#include <c10/util/Type.h>
#include <fmt/format.h>
#include <torch/optim/schedulers/step_lr.h>

#include <nlohmann/json.hpp>
#include <typeinfo>

#include "adaptdl/torch/lr_scheduler.h"

namespace adaptdl {

namespace optim = torch::optim;
using nlohmann::json;

namespace internal {

namespace {

// LRScheduler counts its steps in a protected member.
struct SchedulerAccess : optim::LRScheduler {
  static unsigned& steps(optim::LRScheduler& scheduler) { return scheduler.*(&SchedulerAccess::step_count_); }
};

std::string scheduler_type(optim::LRScheduler& scheduler) {
  if (const auto* saveable = dynamic_cast<SaveableScheduler*>(&scheduler)) return saveable->type();
  if (dynamic_cast<optim::StepLR*>(&scheduler) != nullptr) return "StepLR";
  return c10::demangle(typeid(scheduler).name());  // a class that the program defines
}

}  // namespace

json scheduler_to_json(optim::LRScheduler& scheduler) {
  json saved = {{"type", scheduler_type(scheduler)}, {"steps", SchedulerAccess::steps(scheduler)}};
  if (const auto* saveable = dynamic_cast<SaveableScheduler*>(&scheduler)) saved["state"] = saveable->save();
  return saved;
}

std::string scheduler_misfit(const json& saved, optim::LRScheduler& scheduler) {
  const auto* saveable = dynamic_cast<SaveableScheduler*>(&scheduler);
  // Old checkpoints without a type are from schedulers that save only their steps.
  const auto type = saved.value("type", saveable == nullptr ? scheduler_type(scheduler) : "a LibTorch scheduler");
  if (type != scheduler_type(scheduler))
    return fmt::format("the LR scheduler is {} in the checkpoint, but {} in this program", type,
                       scheduler_type(scheduler));
  return saveable == nullptr ? std::string() : saveable->misfit(saved.at("state"));
}

void scheduler_from_json(const json& saved, optim::LRScheduler& scheduler) {
  SchedulerAccess::steps(scheduler) = saved.at("steps").get<unsigned>();
  if (auto* saveable = dynamic_cast<SaveableScheduler*>(&scheduler)) saveable->load(saved.at("state"));
}

}  // namespace internal

namespace {

constexpr const char* kSchedulerSection = "scheduler";

}  // namespace

void save_scheduler(checkpoint::Writer& writer, optim::LRScheduler* scheduler) {
  if (scheduler != nullptr) writer.json(kSchedulerSection, internal::scheduler_to_json(*scheduler));
}

void check_scheduler(const checkpoint::Reader& reader, optim::LRScheduler* scheduler) {
  const bool saved = reader.has_json(kSchedulerSection);
  if (!saved && scheduler == nullptr) return;
  std::string misfit;
  if (saved && scheduler != nullptr) {
    misfit = internal::scheduler_misfit(reader.json(kSchedulerSection), *scheduler);
  } else if (saved) {
    misfit = fmt::format("the LR scheduler is {} in the checkpoint, but this program has none",
                         reader.json(kSchedulerSection).value("type", "a LibTorch scheduler"));
  } else {
    misfit = fmt::format("the checkpoint has no LR scheduler, but this program has {}",
                         internal::scheduler_type(*scheduler));
  }
  if (misfit.empty()) return;
  throw checkpoint::CheckpointError(
      fmt::format("{}: {}; undo the change, or start with another checkpoint directory", reader.describe(), misfit));
}

void load_scheduler(const checkpoint::Reader& reader, optim::LRScheduler* scheduler) {
  if (scheduler != nullptr) internal::scheduler_from_json(reader.json(kSchedulerSection), *scheduler);
}

}  // namespace adaptdl
