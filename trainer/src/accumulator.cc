#include "adaptdl/torch/accumulator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/error.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "epoch_scope.h"
#include "regroup.h"
#include "step_boundary.h"

namespace adaptdl {

namespace {

using Map = Accumulator::Map;

void add(Map& sums, const Map& changes) {
  for (const auto& [name, change] : changes) sums[name] += change;
}

// MessagePack carries doubles as they are, NaN and infinities too, as JSON does not.
collective::Bytes encode_map(const Map& map) {
  collective::Bytes bytes;
  nlohmann::json::to_msgpack(nlohmann::json(map), bytes);
  return bytes;
}

Map decode_map(const collective::Bytes& bytes) { return nlohmann::json::from_msgpack(bytes).get<Map>(); }

collective::Bytes join(const collective::Bytes& a, const collective::Bytes& b) {
  auto sums = decode_map(a);
  add(sums, decode_map(b));
  return encode_map(sums);
}

}  // namespace

class Accumulator::SumState : public checkpoint::State {
 public:
  SumState(const std::string& name, Map initial) : State(name), results(std::move(initial)) {}

  void sync() override {
    add(results, decode_map(collective::world().allreduce(encode_map(updates), join)));
    updates.clear();
    ++version.count;
  }

  void save(checkpoint::Writer& writer) const override {
    writer.json("results", results);
    writer.json("history", history);
  }

  void load(const checkpoint::Reader& reader) override {
    const auto saved_results = reader.json("results"), saved_history = reader.json("history");
    try {
      auto loaded = saved_results.get<Map>();
      history = saved_history.get<decltype(history)>();
      results = std::move(loaded);
      updates.clear();
    } catch (const nlohmann::json::exception& error) {
      throw checkpoint::CheckpointError(reader.describe() + " is not an accumulator's: " + error.what());
    }
  }

  // What each synchronization outside loader loops found, of the running epoch and of the program outside the epoch
  // loop.
  std::vector<Map>& recorded() {
    const auto epoch = current_epoch();
    // A finished epoch is never replayed.
    std::erase_if(history, [](const auto& entry) {
      return entry.first != kOutside && std::stoi(entry.first) < finished_epochs();
    });
    return history[epoch ? std::to_string(*epoch) : kOutside];
  }

  Map results;  // the sums, equal on all replicas
  Map updates;  // collected here since they were summed up
  internal::Version version{name()};

 private:
  static constexpr auto kOutside = "none";
  std::map<std::string, std::vector<Map>> history;  // by epoch
};

Accumulator::Accumulator(Map initial) {
  if (const auto* const loader = current_dataloader()) {
    throw UsageError(
        fmt::format("an accumulator is made while the loop of '{}' is running: make it before the loop, or after it",
                    loader->name()));
  }
  const auto count = internal::count_in_epoch("accumulator");
  state_ = internal::make_in_epoch<SumState>(fmt::format("adaptdl-accumulator-{}-{}", internal::epoch_label(), count),
                                             std::move(initial));
}

Accumulator::~Accumulator() = default;

Accumulator::Entry& Accumulator::Entry::operator+=(double change) {
  auto& changed = accumulator_.synchronized_ ? *accumulator_.synchronized_ : accumulator_.state_->updates;
  changed[name_] += change;
  return *this;
}

Accumulator::Entry& Accumulator::Entry::operator=(double value) {
  if (!accumulator_.synchronized_) {
    throw UsageError(
        fmt::format("accumulator value '{0}' is set in accumulation mode, which only adds: use [\"{0}\"] += VALUE, or "
                    "synchronized()",
                    name_));
  }
  (*accumulator_.synchronized_)[name_] = value;
  return *this;
}

double Accumulator::Entry::value() const {
  if (!accumulator_.synchronized_) {
    throw UsageError(fmt::format(
        "accumulator value '{}' is read in accumulation mode: its sum over the replicas is there in synchronized mode, "
        "after auto synchronized = accumulator.synchronized()",
        name_));
  }
  const auto& map = *accumulator_.synchronized_;
  const auto found = map.find(name_);
  if (found == map.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : map) names.push_back(name);
    throw UsageError(fmt::format("the accumulator has no value '{}'; it has: {}", name_,
                                 names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
  }
  return found->second;
}

void Accumulator::update(const Map& changes) {
  for (const auto& [name, change] : changes) (*this)[name] += change;
}

void Accumulator::subtract(const Map& changes) {
  for (const auto& [name, change] : changes) (*this)[name] -= change;
}

std::size_t Accumulator::count_synchronization() {
  const auto run = internal::epoch_run();
  if (run == 0) return outside_++;
  if (std::exchange(epoch_run_, run) != run) inside_ = 0;
  return inside_++;
}

void Accumulator::sync_with_those_left() {
  for (const auto before = state_->version.count; state_->version.count == before;) {
    try {
      state_->sync();
    } catch (const collective::CollectiveError&) {
      internal::recover();
    }
  }
}

Accumulator::Synchronized Accumulator::synchronized() {
  if (synchronized_) return Synchronized(nullptr);
  if (current_dataloader()) {
    // Code inside a loader loop is not replayed, so nothing is to be remembered for it.
    state_->sync();
    synchronized_ = &state_->results;
    return Synchronized(this);
  }
  const auto count = count_synchronization();
  if (count < state_->recorded().size()) {
    replayed_ = state_->recorded()[count];
    state_->updates.clear();
    synchronized_ = &replayed_;
  } else {
    internal::join_if_newcomer();
    sync_with_those_left();
    // Of a replica that finished when others were lost, it came with the state.
    if (auto& recorded = state_->recorded(); recorded.size() == count) recorded.push_back(state_->results);
    synchronized_ = &state_->results;
  }
  return Synchronized(this);
}

Accumulator::Synchronized::~Synchronized() {
  if (accumulator_) accumulator_->synchronized_ = nullptr;
}

const Accumulator::Map& Accumulator::visible() const noexcept {
  static const Map empty;
  return synchronized_ ? *synchronized_ : empty;
}

bool Accumulator::erase(const std::string& name) { return synchronized_ && synchronized_->erase(name) > 0; }

void Accumulator::clear() {
  if (synchronized_) synchronized_->clear();
}

}  // namespace adaptdl
