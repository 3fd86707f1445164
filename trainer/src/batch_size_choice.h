// Which batch size the training loader uses, and when that is thought over.
//
// Rank 0 fits the goodput model to its measurements again and again, soon after the start at first and then at growing
// distances, and chooses the batch size with the best goodput. A fit is begun at one step boundary and taken at the
// next, where a checkpoint may be saved; the choice that follows from it is submitted there to all replicas, and holds
// from the boundary after. All of that is in the checkpoint, so a resumed job decides as it would have without a stop.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <utility>

#include "adaptdl/goodput.h"

namespace adaptdl::internal {

// The quotient, rounded up.
inline std::size_t divide_up(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

struct BatchSize {
  std::size_t local_bsz = 0;  // samples of a batch on each replica
  int accumulation_steps = 0;
  bool operator==(const BatchSize&) const = default;
};

// What may be chosen: a total from `batch_size` up, within `limits`.
struct BatchSizeRange {
  std::size_t batch_size = 1;
  goodput::Limits limits;
};

// `batch_size` shared evenly among the replicas, rounded up; split into as few batches as the upper local bound allows.
// The lower local bound may make it more. REQUIRES that without accumulation the share is within the upper bound.
BatchSize even_batch_size(const BatchSizeRange& range, int replicas);

// Whether the range has this batch size on so many replicas.
bool allows(const BatchSizeRange& range, int replicas, const BatchSize& size);

// The batch size with the best goodput: `present` unless that is better by more than 5 %, or there is no present one.
BatchSize best_batch_size(const goodput::GoodputFunction& goodput, const BatchSizeRange& range, int nodes, int replicas,
                          const std::optional<BatchSize>& present);

// Decides in the place of the goodput function: called on rank 0 at each boundary of the training loop, with the number
// of steps taken so far, and gives the local batch size and the accumulation steps from the next step on, or none to
// keep what is. An empty function brings the goodput back. For tests that replay decisions.
using BatchSizeDecider = std::function<std::optional<std::pair<std::size_t, int>>(std::uint64_t step)>;
void set_batch_size_decider(BatchSizeDecider decider);

// The choice of one loader, and the schedule of its decisions: part of the loader's state.
class BatchSizeChoice {
 public:
  // From the next synchronization on. local_bsz is 0 before the first choice.
  const BatchSize& size() const noexcept { return size_; }
  // The number of replicas that it was chosen for.
  int replicas() const noexcept { return replicas_; }
  // Whether it can stay as it is.
  bool holds(const BatchSizeRange& range, int replicas) const;

  // Chooses when nothing was chosen for so many replicas yet; the measurements begin anew. Uses the goodput function,
  // if there is one.
  BatchSize choose_anew(const BatchSizeRange& range, int nodes, int replicas) const;
  // Takes over what rank 0 chose.
  void begin(const BatchSize& size, int replicas);
  void change(const BatchSize& size) { size_ = size; }

  // On rank 0, at each boundary of any loop, before anything is saved: takes the result of a fit that is under way.
  void take_fit();
  // On rank 0, at each boundary of its loop, after anything is saved: what rank 0 wants to be used from the next
  // boundary on, if it is another size than the present one. `range`: none if the batch size is fixed. `pass_ends`:
  // whether this is the last step of a pass.
  std::optional<BatchSize> propose(const std::optional<BatchSizeRange>& range, int nodes, bool pass_ends);

  nlohmann::json save() const;
  // Throws nlohmann::json::exception.
  void load(const nlohmann::json& saved);

 private:
  bool fit_due(double now) const;

  BatchSize size_;
  int replicas_ = 0;
  bool by_goodput_ = false;      // whether goodput had a say in it yet
  bool decide_ = false;          // a fit was taken that nothing was decided by yet
  std::uint64_t steps_ = 0;      // boundaries of this loop so far
  std::uint64_t fit_steps_ = 0;  // since the last fit
  int fits_ = 0;                 // on this number of replicas
  // On the clock of metrics; none before the first step.
  std::optional<double> last_fit_, last_hints_;
};

}  // namespace adaptdl::internal
