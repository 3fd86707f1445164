// The step boundary: the only place where a running loop saves a checkpoint or exits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "loop/batch_size_choice.h"
#include "loop/progress_reporter.h"

namespace adaptdl::internal {

// What the replicas' loops request at a boundary, in addition to stops and checkpoints.
struct LoopRequests {
  bool data_end = false;                // from any replica: its data ends with the coming step
  std::optional<BatchSize> batch_size;  // from rank 0: the batch size from now on
  std::uint32_t loader = 0;             // the loader to which batch_size applies
};

// At a boundary, each replica calls the next three functions in this order; see
// AdaptiveDataLoaderHelper::step_boundary.
//
// Returns what was agreed at the previous boundary, or empty requests at the first boundary. May also be called
// earlier, between two boundaries. The call at the boundary then returns the same requests again.
const LoopRequests& receive_agreement();
// Continues, saves, changes the replicas or stops, as agreed. If the replicas changed (see regroups()), earlier
// agreements no longer apply, and the loop must divide its data among the new replicas before it submits requests.
void settle_boundary();
// Submits this replica's requests for the next boundary, and reports the progress.
void submit_requests(const LoopRequests& requests, const LoopProgress& progress);

// Saves a checkpoint after the last epoch, if ADAPTDL_CHECKPOINT_PATH is set. This is a collective call. Throws the
// errors of checkpoint::save_all_states. Does nothing if there are several replicas but no group.
void save_result();

// In a newcomer, joins the other replicas, which are at the same boundary, at the end of settle_boundary(). Must be
// called where the program would make its first collective call. Does nothing in later calls and in other processes.
void join_if_newcomer();

// --- When replicas are lost ---
//
// If a peer is lost during a backward pass, the pass leaves no gradients and the optimizer changes nothing: the step is
// void. When the step ends, or when a boundary or another collective call of adaptdl fails, the remaining replicas
// form a new group and compare how far they have come. If a replica lacks a step that another replica has finished, it
// receives the result of that step. If no replica has finished a void step, the remaining replicas repeat it.

// Returns how often this process has changed its group.
std::uint64_t regroups() noexcept;
// Returns whether all replicas take part in the next boundary. If not, another replica has already passed it, and what
// was agreed there was lost with the group. This replica then passes the boundary without communication, and keeps
// the layout of its data for the next step.
bool boundary_is_real() noexcept;
// Marks the current step as void.
void note_void_step() noexcept;
bool step_is_void() noexcept;
// Records that a model's optimizer has stepped. `valid`: whether the gradients were finite. All replicas record the
// same value. After an invalid step, no periodic checkpoint is saved until a valid step, because it would replace a
// better checkpoint.
void note_step(const std::string& model, bool valid);
// Returns whether a step since the last boundary was invalid.
bool step_is_invalid() noexcept;
// Forms a new group, after which the failed call must be made again. Must be called in a catch block for a
// CollectiveError from a call at a boundary, or from a call outside loader loops. Rethrows that error if a new group is
// not possible: before the first boundary, in a job that does not follow generations, or after a CallError.
void recover();
// Does the same as recover(), but inside a loader loop. Rethrows the error unless all models have stepped. Throws
// MismatchError if the new group has newcomers or replicas that have not stepped, which cannot take part.
void recover_in_step();
// Must be called where a step ends. If the step is void, forms a new group, and returns whether the step must be
// repeated. `undo` moves the loop back to where the step began; `keep` reverts this move.
bool recover_from_void_step(const std::function<void()>& undo, const std::function<void()>& keep);

}  // namespace adaptdl::internal
