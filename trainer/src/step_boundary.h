// The step boundary: the one place where a job checkpoints and exits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "batch_size_choice.h"

namespace adaptdl::internal {

// Where a loop stands, for the progress report.
struct LoopPosition {
  const void* loop = nullptr;  // tells loops apart
  std::size_t step = 0;        // steps done in this pass
  std::optional<std::size_t> steps_left;
  std::size_t batch_size = 0;  // samples of a step over all replicas
  std::size_t samples = 0;     // of all batches since the boundary before
};

// What a loop has to say to those of the other replicas, and hears from them, beside stops and checkpoints.
struct Wishes {
  bool data_end = false;                // any replica's: the step that begins is the last that it has data for
  std::optional<BatchSize> batch_size;  // rank 0's: to be used from now on
  std::uint32_t loader = 0;             // whose batch size it is
};

// A boundary has three parts, which each replica calls in this order; see AdaptiveDataLoaderHelper::step_boundary.
//
// Gets what was agreed on at the boundary before; nothing at the first one. May be called earlier, between two
// boundaries, to know it sooner: then the boundary gets the same once more.
const Wishes& receive_agreement();
// Continues, saves, changes the replicas or stops, as agreed. If the replicas changed (see regroups()), earlier
// agreements no longer hold, and the loop must divide its data among the new replicas before it submits wishes.
void settle_boundary();
// Submits what this replica wishes at the next boundary, and reports the progress.
void submit_wishes(const Wishes& wishes, const LoopPosition& position);

// Saves a checkpoint after the last epoch, if ADAPTDL_CHECKPOINT_PATH is set. A collective call; throws what
// checkpoint::save_all_states throws. Does nothing on several replicas without a group.
void save_result();

// In a newcomer: joins the others, who are at such a boundary, after settle_boundary. To be called where the program
// would make its first collective call; does nothing later, and in any other process.
void join_if_newcomer();

// --- When replicas are lost ---
//
// A backward pass of which a peer was lost has no gradients, and the optimizer changes nothing: the step is void. Where
// the step ends, or a boundary or another of our own collective calls fails, the replicas that are left form a new
// group and compare how far they have come. Replicas that lack a step which another one has finished get its result. A
// void step that none has finished is repeated by the replicas that are left.

// How often this process changed its group.
std::uint64_t regroups() noexcept;
// Whether the coming boundary is one of all replicas. Else another one has passed it already, and with the group it was
// lost what was agreed on there: it is passed without a word, and the step after it is done as it was laid out before.
bool boundary_is_real() noexcept;
// The step under way is void.
void note_void_step() noexcept;
bool step_is_void() noexcept;
// The optimizer of a model has stepped; `valid`: its gradients were finite. All replicas note the same. After an
// invalid step, no periodic checkpoint is saved until there is a valid one, as it would take the place of a better one.
void note_step(const std::string& model, bool valid);
// Whether a step since the last boundary was invalid.
bool step_is_invalid() noexcept;
// To be called in a catch block for a CollectiveError of a call at a boundary, or outside of loader loops: forms a new
// group, after which that call is to be made again. Throws what is being handled if that is not possible: before the
// first boundary, in a job that does not follow generations, or after a MismatchError.
void recover();
// The same inside a loader loop, where it is possible only when all models have stepped. Newcomers, and replicas that
// have not stepped, cannot be in the group: then it throws MismatchError.
void recover_in_step();
// To be called where a step ends: forms a new group if it is void. Returns whether it must be repeated. `undo` sets the
// position of the loop back to where the step began, `keep` reverts that.
bool recover_from_void_step(const std::function<void()>& undo, const std::function<void()>& keep);

// Ends the process with `code`, after flushing its output. Static destructors do not run: threads may still use those
// objects.
void exit_process(int code);

// Calls `handler` instead of ending the process. For tests; it must not return.
void set_exit_handler(std::function<void(int code)> handler);

}  // namespace adaptdl::internal
