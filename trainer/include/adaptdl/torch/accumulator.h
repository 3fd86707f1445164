// Sums of simple statistics, such as a loss or the number of correct answers, across all replicas and all restarts.
//
//   Accumulator stats;
//   for (auto& batch : loader) {
//     ...
//     stats["loss"] += loss.item<double>();
//     stats["samples"] += batch.data.size(0);
//     stats["confusion"] += at::bincount(batch.target * n + output.argmax(1), {}, n * n).view({n, n});
//   }
//   auto synchronized = stats.synchronized();
//   double average = stats["loss"] / stats["samples"];
//   at::Tensor confusion = stats["confusion"].tensor();
//
// An accumulator maps names to numbers and tensors, such as a confusion matrix. It has two modes.
//
// In accumulation mode, which is the initial mode, `+=`, `-=`, update and subtract collect changes on this replica
// only. Replicas may make different changes. The changes are summed across the replicas when the mode changes and when
// a checkpoint is saved. The sums are not visible in this mode: the map appears empty, and reading a value is an error.
//
// Synchronized mode lasts as long as the object that synchronized() returns. The map then has the same contents on
// every replica, and may be read and written as long as every replica performs the same operations. `+=` treats a
// missing name as 0.
//
// Restarts: the sums are part of every checkpoint. Code outside loader loops is replayed after a restart
// (docs/elasticity.md). A replayed synchronization yields the same values as the original one, and drops the changes
// collected before it. State: "adaptdl-accumulator-EPOCH-COUNT", where EPOCH and COUNT have the same meaning as in the
// name of a data loader's state (data_loader_helper.h). The state of an accumulator created inside an epoch is kept
// until the epoch ends.
//
// Numbers are doubles, and are transferred bit for bit. Tensors must have an element type that checkpoints support,
// which excludes complex types. Changes are collected on the tensor's device, and the sums are on the CPU. All values
// together may occupy at most 64 MiB. The values of a name must all be numbers, or all be tensors of the same shape.
// Sums are computed in rank order, so they do not vary from run to run.
//
// Threading: only the training thread may use an accumulator.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace adaptdl {

class Accumulator {
 public:
  // A number or a tensor. A Value shares the tensor's memory, so do not modify the tensor while the Value is in use.
  // Sums have the result type of LibTorch's addition, so convert a bool tensor to an integer type before you use it for
  // counting.
  class Value {
   public:
    // Holds a number.
    Value(double number = 0) : number_(number) {}  // NOLINT: numbers are values
    // Holds a tensor, detached from its graph. Throws UsageError if checkpoints do not support its element type.
    Value(at::Tensor tensor);  // NOLINT: tensors are values
    // Returns whether the value is a tensor rather than a number.
    bool is_tensor() const noexcept { return tensor_.defined(); }
    // Returns the number, or the only element of a tensor. Throws UsageError if the tensor does not have exactly one
    // element.
    operator double() const;  // NOLINT: reads like a number
    // Returns the tensor. Throws UsageError if the value is a number.
    const at::Tensor& tensor() const;
    // Returns the sum of the two values. The only number that can be added to a tensor is 0. Throws UsageError if one
    // value is a tensor and the other a nonzero number, or if the tensors have different shapes.
    Value plus(const Value& other) const;
    // Returns the value with the opposite sign.
    Value negated() const;
    // Returns whether both are equal numbers, or tensors with equal shapes and elements.
    bool operator==(const Value& other) const;
    // Returns whether the value is `number`, or a tensor whose only element equals `number`. Throws UsageError for a
    // tensor that does not have exactly one element.
    template <class Number>
    requires std::is_arithmetic_v<Number>
    bool operator==(Number number) const { return static_cast<double>(*this) == static_cast<double>(number); }

   private:
    double number_ = 0;
    at::Tensor tensor_;
  };
  // Values by name.
  using Map = std::map<std::string, Value>;
  using const_iterator = Map::const_iterator;

  // Starts with the sums in `initial`, unless the checkpoint contains sums for this accumulator. Throws UsageError
  // while a loader loop is running.
  explicit Accumulator(Map initial = {});
  ~Accumulator();
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;

  // The result of `accumulator[name]`: a value that can be changed and, in synchronized mode, read and set.
  class Entry {
   public:
    // Adds or subtracts a value. Throws UsageError under the same conditions as Value::plus.
    Entry& operator+=(const Value& change);
    Entry& operator-=(const Value& change) { return *this += change.negated(); }
    // Sets the value. Throws UsageError in accumulation mode.
    Entry& operator=(const Value& value);
    Entry& operator=(const Entry& other) { return *this = other.value(); }
    Entry(const Entry&) = default;
    // Returns the value. Throws UsageError in accumulation mode, or if no value has that name.
    const Value& value() const;
    // Return the value as a number or as a tensor. Throw UsageError under the same conditions as value() and Value's
    // conversions.
    operator double() const { return value(); }  // NOLINT: reads like a map's value
    const at::Tensor& tensor() const { return value().tensor(); }

   private:
    friend class Accumulator;
    Entry(Accumulator& accumulator, std::string name) : accumulator_(accumulator), name_(std::move(name)) {}
    Accumulator& accumulator_;
    std::string name_;
  };
  Entry operator[](std::string name) { return {*this, std::move(name)}; }

  // Adds or subtracts the values in `changes`, each under its name.
  void update(const Map& changes);
  void subtract(const Map& changes);
  Accumulator& operator+=(const Map& changes) { return update(changes), *this; }
  Accumulator& operator-=(const Map& changes) { return subtract(changes), *this; }

  // Synchronized mode ends when this object is destroyed.
  class [[nodiscard]] Synchronized {
   public:
    Synchronized(Synchronized&& other) noexcept : accumulator_(std::exchange(other.accumulator_, nullptr)) {}
    Synchronized& operator=(Synchronized&&) = delete;
    ~Synchronized();

   private:
    friend class Accumulator;
    explicit Synchronized(Accumulator* accumulator) : accumulator_(accumulator) {}
    Accumulator* accumulator_;  // null if an outer Synchronized object ends the mode
  };

  // Enters synchronized mode, or does nothing if it is already active. This is a collective call: all replicas must
  // call it at the same point in the program. Throws collective::CollectiveError if a replica died, Error if
  // init_process_group was not called, and UsageError on all replicas if two of them added values that cannot be
  // summed.
  Synchronized synchronized();

  // These functions read the map, which appears empty in accumulation mode.
  std::size_t size() const noexcept { return visible().size(); }
  bool empty() const noexcept { return visible().empty(); }
  bool contains(const std::string& name) const { return visible().contains(name); }
  const_iterator begin() const noexcept { return visible().begin(); }
  const_iterator end() const noexcept { return visible().end(); }
  // Returns the value named `name`, or `fallback` if there is none.
  Value get(const std::string& name, Value fallback = 0) const;
  // Removes a value and returns it. Throws UsageError in accumulation mode, or if no value has that name.
  Value pop(const std::string& name);
  // Removes a value. Returns whether it existed; always false in accumulation mode.
  bool erase(const std::string& name);
  // Removes all values. Does nothing in accumulation mode.
  void clear();

 private:
  class SumState;
  const Map& visible() const noexcept;
  std::size_t count_synchronization();
  void sync_with_those_left(void (*recover)());

  std::shared_ptr<SumState> state_;  // shared with the epoch in which it was created
  Map* synchronized_ = nullptr;      // the visible map in synchronized mode; otherwise null
  Map replayed_;                     // the map's contents after a replayed synchronization
  // The numbers of synchronizations so far, outside the epoch loop and in this run of the epoch.
  std::size_t outside_ = 0, inside_ = 0;
  std::uint64_t epoch_run_ = 0;
};

}  // namespace adaptdl
