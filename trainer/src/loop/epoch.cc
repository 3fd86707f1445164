#include "adaptdl/torch/epoch.h"

#include <fmt/format.h>

#include <exception>
#include <map>
#include <utility>

#include "adaptdl/collective.h"
#include "adaptdl/generation.h"
#include "adaptdl/log.h"
#include "adaptdl/metrics.h"
#include "loop/epoch_scope.h"
#include "loop/step_boundary.h"
#include "support/regroup.h"
#include "support/replicas.h"

namespace adaptdl {

namespace {

class EpochState : public checkpoint::State {
 public:
  EpochState() : State(".adaptdl-epoch") {
    checkpoint::load_state(*this, true);
    if (!generation::joining()) saving = false;  // the loaded checkpoint is the one that was being saved
  }

  void save(checkpoint::Writer& writer) const override {
    writer.json("epoch", {{"finished", finished}, {"saving", saving}});
  }
  void load(const checkpoint::Reader& reader) override {
    const auto saved = reader.json("epoch");
    const auto count = saved.is_object() ? saved.find("finished") : saved.end();
    if (count == saved.end() || !count->is_number_integer() || count->get<std::int64_t>() < 0) {
      throw checkpoint::CheckpointError(reader.describe() + " does not contain the number of finished epochs");
    }
    finished = count->get<int>();
    saving = saved.value("saving", nlohmann::json()) == true;
  }
  nlohmann::json progress() const override { return {{"epoch", finished}}; }

  void open() {
    current = finished;
    ++runs;
    counts.clear();
  }
  void finish() noexcept {
    ++finished;
    current.reset();
    kept.clear();
  }
  // Called when an exception left the body. The states created in the body stay registered, because the epoch will run
  // again.
  void abandon() noexcept { current.reset(); }

  // Saves a checkpoint at the end of a loop. If replicas are lost in the process, the remaining replicas save it. If
  // one of the remaining replicas has already completed the save, it sends the saved state to the others.
  void save_result() {
    saving = true;
    try {
      while (saving) try_to_save_result();
    } catch (...) {
      saving = false;
      throw;
    }
  }

  int finished = 0;
  bool saving = false;  // from the end of a loop until its checkpoint is saved
  std::optional<int> current;
  int end = 0;  // end of the running loop or, outside a loop, of the last one
  std::uint64_t runs = 0;
  std::map<std::string, int> counts;          // objects created in the running epoch, by kind
  std::map<std::string, int> counts_outside;  // objects created outside the loop, by kind
  std::map<std::string, std::shared_ptr<checkpoint::State>> kept;

 private:
  void try_to_save_result() {
    try {
      internal::save_result();
      saving = false;
      ++version_.count;
    } catch (const collective::CollectiveError&) {
      internal::recover();
    }
  }

  internal::Version version_{name()};
};

// Never destroyed, because states in the program's static variables may outlive it.
EpochState& epoch_state() {
  static auto* const instance = new EpochState;
  return *instance;
}

}  // namespace

EpochRange::Iterator::Iterator(int end) : end_(end), exceptions_(std::uncaught_exceptions()) {
  auto& epochs = epoch_state();
  if (epochs.current) {
    throw UsageError(fmt::format(
        "epoch loops overlap: epoch {} is still running; end its loop before the next one begins", *epochs.current));
  }
  if (internal::replica_rank() == 0) {
    log::info(epochs.finished < end ? fmt::format("starting at epoch {}", epochs.finished)
                                    : fmt::format("skipping all epochs before {}: already finished", end));
  }
  open_ = epochs.finished < end_;
  epochs.end = end_;
  if (open_) epochs.open();
  epoch_ = epochs.finished;
  if (epochs.saving && epoch_ == end_) {
    internal::join_if_newcomer();  // the other replicas are at the end of this loop
    epochs.save_result();
  }
}

EpochRange::Iterator::Iterator(Iterator&& other) noexcept
    : end_(other.end_),
      epoch_(other.epoch_),
      open_(std::exchange(other.open_, false)),
      exceptions_(other.exceptions_) {}

EpochRange::Iterator::~Iterator() {
  if (!open_) return;
  if (std::uncaught_exceptions() > exceptions_) {
    epoch_state().abandon();
  } else {
    epoch_state().finish();
  }
}

EpochRange::Iterator& EpochRange::Iterator::operator++() {
  auto& epochs = epoch_state();
  epochs.finish();
  open_ = epochs.finished < end_;
  if (open_) {
    epochs.open();
  } else {
    if (metrics::in_use()) metrics::report_hints();  // now that the progress is complete
    epochs.save_result();
  }
  epoch_ = epochs.finished;
  return *this;
}

EpochRange remaining_epochs_until(int epoch) {
  if (epoch < 0)
    throw UsageError(fmt::format("remaining_epochs_until({}): the number of epochs must not be negative", epoch));
  return EpochRange(epoch);
}

std::optional<int> current_epoch() { return epoch_state().current; }

int finished_epochs() { return epoch_state().finished; }

namespace internal {

std::string epoch_label() {
  const auto epoch = current_epoch();
  return epoch ? fmt::format("epoch{}", *epoch) : "epochnone";
}

int epochs_end() { return epoch_state().end; }

std::uint64_t epoch_run() { return epoch_state().current ? epoch_state().runs : 0; }

int count_in_epoch(const std::string& kind) {
  auto& epochs = epoch_state();
  return (epochs.current ? epochs.counts : epochs.counts_outside)[kind]++;
}

std::shared_ptr<checkpoint::State> find_in_epoch(const std::string& name) {
  auto& epochs = epoch_state();
  if (!epochs.current) return nullptr;
  const auto found = epochs.kept.find(name);
  return found == epochs.kept.end() ? nullptr : found->second;
}

void keep_until_epoch_ends(std::shared_ptr<checkpoint::State> kept) {
  auto& epochs = epoch_state();
  if (epochs.current) epochs.kept[kept->name()] = std::move(kept);
}

}  // namespace internal

}  // namespace adaptdl
