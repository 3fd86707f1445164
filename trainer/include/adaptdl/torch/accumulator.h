// Sums of simple statistics, such as a loss or a count of correct answers, over all replicas and all restarts.
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
// An accumulator is a map from names to numbers and tensors, such as a confusion matrix, with two modes.
//
// Accumulation mode, in which it starts: `+=`, `-=`, update and subtract collect changes on this replica alone; they
// are summed over the replicas when the mode changes and when a checkpoint is saved. Each replica may make changes of
// its own. What is summed up cannot be seen: the map looks empty, and reading a value is an error.
//
// Synchronized mode, as long as the object lives that synchronized() returns: the map has the same contents on every
// replica and may be read and written at will, as long as every replica does the same. A name that is not there counts
// as 0 in `+=`.
//
// Restarts: the sums are part of every checkpoint. Code outside loader loops is replayed after a restart
// (docs/elasticity.md); a synchronization that is replayed finds what it found the first time, and drops the changes
// collected before it. State: "adaptdl-accumulator-EPOCH-COUNT", named like a data loader's. One made inside an epoch
// is kept until the epoch ends.
//
// Numbers are doubles and travel bit for bit. The type of tensors must be one that a checkpoint can have, so not
// complex; changes are collected on the device of the tensor, and sums are on the CPU. All values together have at most
// 64 MiB. A name has tensors of one shape, or numbers. Sums are made in the order of ranks, so they do not vary from
// run to run.
//
// Threading: used by the training thread.
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
  // A number, or a tensor, whose memory it shares: do not change it while the Value is in use. Sums have the type that
  // LibTorch's addition gives; convert bool to an integer type to count.
  class Value {
   public:
    // Holds a number.
    Value(double number = 0) : number_(number) {}  // NOLINT: numbers are values
    // Holds a tensor, detached from its graph. Throws UsageError if a checkpoint cannot have its type.
    Value(at::Tensor tensor);  // NOLINT: tensors are values
    // Whether it is a tensor, not a number.
    bool is_tensor() const noexcept { return tensor_.defined(); }
    // The number, or a tensor's only element. Throws UsageError if it has several.
    operator double() const;  // NOLINT: reads like a number
    // The tensor. Throws UsageError if it is a number.
    const at::Tensor& tensor() const;
    // The sum. A number of 0 can be added to a tensor. Throws UsageError if another one, or a tensor of another shape,
    // is.
    Value plus(const Value& other) const;
    // The value with the opposite sign.
    Value negated() const;
    // Whether both are equal numbers, or both tensors of equal shape and elements.
    bool operator==(const Value& other) const;
    // Whether it is that number, or a tensor whose only element is. Throws UsageError if it has several.
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

  // Starts with the sums `initial`, unless the checkpoint has others. Throws UsageError while a loader loop is running.
  explicit Accumulator(Map initial = {});
  ~Accumulator();
  Accumulator(const Accumulator&) = delete;
  Accumulator& operator=(const Accumulator&) = delete;

  // What `accumulator[name]` gives: a value to change, and in synchronized mode to read and set.
  class Entry {
   public:
    // Adds, or subtracts, a value. Throws UsageError as Value::plus does.
    Entry& operator+=(const Value& change);
    Entry& operator-=(const Value& change) { return *this += change.negated(); }
    // Sets the value. Throws UsageError in accumulation mode.
    Entry& operator=(const Value& value);
    Entry& operator=(const Entry& other) { return *this = other.value(); }
    Entry(const Entry&) = default;
    // Reads the value. Throws UsageError in accumulation mode, and if there is none of that name.
    const Value& value() const;
    // Reads the value as a number or tensor. Throws UsageError as value() and Value do.
    operator double() const { return value(); }  // NOLINT: reads like a map's value
    const at::Tensor& tensor() const { return value().tensor(); }

   private:
    friend class Accumulator;
    Entry(Accumulator& accumulator, std::string name) : accumulator_(accumulator), name_(std::move(name)) {}
    Accumulator& accumulator_;
    std::string name_;
  };
  Entry operator[](std::string name) { return {*this, std::move(name)}; }

  // Adds, or subtracts, the value of each name.
  void update(const Map& changes);
  void subtract(const Map& changes);
  Accumulator& operator+=(const Map& changes) { return update(changes), *this; }
  Accumulator& operator-=(const Map& changes) { return subtract(changes), *this; }

  // Synchronized mode ends when this is destroyed.
  class [[nodiscard]] Synchronized {
   public:
    Synchronized(Synchronized&& other) noexcept : accumulator_(std::exchange(other.accumulator_, nullptr)) {}
    Synchronized& operator=(Synchronized&&) = delete;
    ~Synchronized();

   private:
    friend class Accumulator;
    explicit Synchronized(Accumulator* accumulator) : accumulator_(accumulator) {}
    Accumulator* accumulator_;  // null: an outer one ends the mode
  };

  // Enters synchronized mode; inside of it, does nothing. A collective call: all replicas make it in the same place.
  // Throws collective::CollectiveError if a replica died, Error without init_process_group, UsageError on all replicas
  // if two of them have added what does not fit together.
  Synchronized synchronized();

  // The map. In accumulation mode these see an empty one.
  std::size_t size() const noexcept { return visible().size(); }
  bool empty() const noexcept { return visible().empty(); }
  bool contains(const std::string& name) const { return visible().contains(name); }
  const_iterator begin() const noexcept { return visible().begin(); }
  const_iterator end() const noexcept { return visible().end(); }
  // The value of that name, or `fallback` if there is none.
  Value get(const std::string& name, Value fallback = 0) const;
  // Removes a value and returns it. Throws UsageError in accumulation mode, and if there is none of that name.
  Value pop(const std::string& name);
  // Removes a value; returns whether it was there.
  bool erase(const std::string& name);
  // Removes all values. Throws UsageError in accumulation mode.
  void clear();

 private:
  class SumState;
  const Map& visible() const noexcept;
  std::size_t count_synchronization();
  void sync_with_those_left(void (*recover)());

  std::shared_ptr<SumState> state_;  // shared with the epoch that it was made in
  Map* synchronized_ = nullptr;      // the map in synchronized mode, else null
  Map replayed_;                     // what a replayed synchronization shows
  // How many synchronizations there were outside the epoch loop, and in this run of the epoch.
  std::size_t outside_ = 0, inside_ = 0;
  std::uint64_t epoch_run_ = 0;
};

}  // namespace adaptdl
