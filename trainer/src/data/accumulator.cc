#include "adaptdl/torch/accumulator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/error.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "loop/epoch_scope.h"
#include "loop/step_boundary.h"
#include "support/regroup.h"
#include "support/tensor_io.h"

namespace adaptdl {

namespace {

using nlohmann::json;
using Map = Accumulator::Map;
using Value = Accumulator::Value;

void add(Map& sums, const std::string& name, const Value& change) {
  try {
    auto& sum = sums[name];
    sum = sum.plus(change);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("accumulator value '{}': {}", name, error.what()));
  }
}

void add(Map& sums, const Map& changes) {
  for (const auto& [name, change] : changes) add(sums, name, change);
}

json encode(const Value& value) {
  if (!value.is_tensor()) return static_cast<double>(value);
  const auto tensor = value.tensor().cpu().contiguous();
  const auto* const data = static_cast<const std::uint8_t*>(tensor.data_ptr());
  return {{"type", static_cast<int>(tensor.scalar_type())},
          {"shape", tensor.sizes().vec()},
          {"data", json::binary({data, data + tensor.nbytes()})}};
}

Value decode(const json& encoded) {
  if (encoded.is_number()) return encoded.get<double>();
  const auto& data = encoded.at("data").get_binary();
  auto tensor = at::empty(encoded.at("shape").get<std::vector<std::int64_t>>(),
                          at::TensorOptions(static_cast<at::ScalarType>(encoded.at("type").get<int>())));
  if (data.size() != tensor.nbytes()) throw collective::CollectiveError("a replica sent an invalid accumulator value");
  if (!data.empty()) std::memcpy(tensor.data_ptr(), data.data(), data.size());
  return tensor;
}

// MessagePack, unlike JSON, preserves every double, including NaN and infinities.
collective::Bytes encode_map(const Map& map) {
  json values = json::object();
  for (const auto& [name, value] : map) values[name] = encode(value);
  collective::Bytes bytes;
  json::to_msgpack(values, bytes);
  return bytes;
}

Map decode_map(const collective::Bytes& bytes) {
  Map map;
  const auto values = json::from_msgpack(bytes);
  if (values.is_string()) throw UsageError(values.get<std::string>());
  for (const auto& [name, value] : values.items()) map.emplace(name, decode(value));
  return map;
}

// In a checkpoint, tensors are saved separately. In place of a tensor, the JSON contains an object with the tensor's
// name.
constexpr const char* kTensor = "tensor";

json save_map(checkpoint::Writer& writer, const std::string& prefix, const Map& map) {
  json saved = json::object();
  for (const auto& [name, value] : map) {
    if (value.is_tensor()) {
      const auto full = prefix + "/" + name;
      save_tensor(writer, full, value.tensor());
      saved[name] = {{kTensor, full}};
    } else {
      saved[name] = static_cast<double>(value);
    }
  }
  return saved;
}

Map load_map(const checkpoint::Reader& reader, const json& saved) {
  Map map;
  for (const auto& [name, value] : saved.items()) {
    map.emplace(name, value.is_object()
                          ? Value(load_new_tensor(reader, value.at(kTensor).get<std::string>(), at::empty({0})))
                          : Value(value.get<double>()));
  }
  return map;
}

// Adds the sums of two replicas. An error is sent in place of the sums, so that all replicas throw it.
collective::Bytes join(const collective::Bytes& a, const collective::Bytes& b) {
  try {
    auto sums = decode_map(a);
    add(sums, decode_map(b));
    return encode_map(sums);
  } catch (const UsageError& error) {
    collective::Bytes bytes;
    json::to_msgpack(error.what(), bytes);
    return bytes;
  }
}

}  // namespace

class Accumulator::SumState : public checkpoint::State {
 public:
  SumState(const std::string& name, Map initial) : State(name), results(std::move(initial)) {}

  void sync() override {
    add(results, decode_map(collective::world().allreduce(encode_map(updates), join, name())));
    updates.clear();
    ++version.count;
  }

  void save(checkpoint::Writer& writer) const override {
    writer.json("results", save_map(writer, "results", results));
    json saved = json::object();
    for (const auto& [epoch, maps] : history) {
      auto& found = saved[epoch] = json::array();
      for (const auto& map : maps) found.push_back(save_map(writer, fmt::format("{}/{}", epoch, found.size()), map));
    }
    writer.json("history", saved);
  }

  void load(const checkpoint::Reader& reader) override {
    const auto saved_results = reader.json("results"), saved_history = reader.json("history");
    try {
      auto loaded = load_map(reader, saved_results);
      std::map<std::string, std::vector<Map>> loaded_history;
      for (const auto& [epoch, maps] : saved_history.items()) {
        for (const auto& map : maps) loaded_history[epoch].push_back(load_map(reader, map));
      }
      history = std::move(loaded_history);
      results = std::move(loaded);
      updates.clear();
    } catch (const nlohmann::json::exception& error) {
      throw checkpoint::CheckpointError(reader.describe() + ": invalid accumulator state: " + error.what());
    }
  }

  // Returns the results of the synchronizations outside loader loops: those of the running epoch or, if no epoch is
  // running, those made outside the epoch loop.
  std::vector<Map>& recorded() {
    const auto epoch = current_epoch();
    // A finished epoch is never replayed.
    std::erase_if(history, [](const auto& entry) {
      return entry.first != kOutside && std::stoi(entry.first) < finished_epochs();
    });
    return history[epoch ? std::to_string(*epoch) : kOutside];
  }

  Map results;  // the sums, equal on all replicas
  Map updates;  // this replica's changes since the last synchronization
  internal::Version version{name()};

 private:
  static constexpr auto kOutside = "none";
  std::map<std::string, std::vector<Map>> history;  // by epoch
};

Accumulator::Accumulator(Map initial) {
  for (auto& [name, value] : initial) {
    if (value.is_tensor()) value = value.tensor().cpu();
  }
  if (const auto* const loader = current_dataloader()) {
    throw UsageError(fmt::format(
        "cannot create an accumulator while the loop of '{}' is running; create it before or after the loop",
        loader->name()));
  }
  const auto count = internal::count_in_epoch("accumulator");
  state_ = internal::make_in_epoch<SumState>(fmt::format("adaptdl-accumulator-{}-{}", internal::epoch_label(), count),
                                             std::move(initial));
}

Accumulator::~Accumulator() = default;

Value::Value(at::Tensor tensor) : tensor_(tensor.detach()) {
  if (tensor_.is_sparse()) tensor_ = tensor_.to_dense();
  try {
    dtype_name(tensor_);
  } catch (const checkpoint::CheckpointError& error) {
    throw UsageError(fmt::format("invalid accumulator value: {}", error.what()));
  }
}

Value::operator double() const {
  if (!is_tensor()) return number_;
  if (tensor_.numel() == 1) return tensor_.item<double>();
  throw UsageError("an accumulator value is not a number but a tensor; read it with tensor()");
}

const at::Tensor& Value::tensor() const {
  if (!is_tensor()) throw UsageError("an accumulator value is a number, not a tensor; read it as a double");
  return tensor_;
}

Value Value::plus(const Value& other) const {
  if (!is_tensor() && !other.is_tensor()) return number_ + other.number_;
  if (is_tensor() && other.is_tensor()) {
    if (tensor_.sizes() != other.tensor_.sizes()) {
      throw UsageError(fmt::format("cannot add a tensor of shape {} to one of shape {}",
                                   c10::str(other.tensor_.sizes()), c10::str(tensor_.sizes())));
    }
    return at::add(tensor_, other.tensor_.to(tensor_.device()));
  }
  const auto& tensor = is_tensor() ? tensor_ : other.tensor_;
  if ((is_tensor() ? other : *this).number_ != 0) throw UsageError("cannot add a number and a tensor");
  return is_tensor() ? *this : Value(tensor.clone());
}

Value Value::negated() const { return is_tensor() ? Value(at::neg(tensor_)) : Value(-number_); }

bool Value::operator==(const Value& other) const {
  if (is_tensor() != other.is_tensor()) return false;
  return is_tensor() ? tensor_.cpu().equal(other.tensor_.cpu()) : number_ == other.number_;
}

Accumulator::Entry& Accumulator::Entry::operator+=(const Value& change) {
  add(accumulator_.synchronized_ ? *accumulator_.synchronized_ : accumulator_.state_->updates, name_, change);
  return *this;
}

Accumulator::Entry& Accumulator::Entry::operator=(const Value& value) {
  if (!accumulator_.synchronized_) {
    throw UsageError(
        fmt::format("cannot set accumulator value '{0}' in accumulation mode, which only adds; use [\"{0}\"] += VALUE, "
                    "or synchronized()",
                    name_));
  }
  (*accumulator_.synchronized_)[name_] = value.is_tensor() ? Value(value.tensor().cpu().clone()) : value;
  return *this;
}

const Value& Accumulator::Entry::value() const {
  if (!accumulator_.synchronized_) {
    throw UsageError(
        fmt::format("cannot read accumulator value '{}' in accumulation mode; its sum across the replicas is available "
                    "in synchronized mode, after auto synchronized = accumulator.synchronized()",
                    name_));
  }
  const auto& map = *accumulator_.synchronized_;
  const auto found = map.find(name_);
  if (found == map.end()) {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : map) names.push_back(name);
    throw UsageError(fmt::format("the accumulator has no value '{}'; existing values: {}", name_,
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

void Accumulator::sync_with_those_left(void (*recover)()) {
  for (const auto before = state_->version.count; state_->version.count == before;) {
    try {
      state_->sync();
    } catch (const collective::CollectiveError&) {
      recover();
    }
  }
}

Accumulator::Synchronized Accumulator::synchronized() {
  if (synchronized_) return Synchronized(nullptr);
  if (current_dataloader()) {
    // Code inside a loader loop is not replayed, so the result need not be recorded.
    sync_with_those_left(internal::recover_in_step);
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
    sync_with_those_left(internal::recover);
    // The result is already recorded if this state came from a replica that had finished the synchronization before
    // other replicas were lost.
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

Value Accumulator::get(const std::string& name, Value fallback) const {
  const auto found = visible().find(name);
  return found == visible().end() ? fallback : found->second;
}

Value Accumulator::pop(const std::string& name) {
  const auto value = (*this)[name].value();
  erase(name);
  return value;
}

bool Accumulator::erase(const std::string& name) { return synchronized_ && synchronized_->erase(name) > 0; }

void Accumulator::clear() {
  if (synchronized_) synchronized_->clear();
}

}  // namespace adaptdl
