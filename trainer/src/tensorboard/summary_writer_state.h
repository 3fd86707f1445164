// The state "adaptdl-tensorboard" in checkpoints: the highest step of each tag of a job's TensorBoard events, by
// directory. A directory is included as soon as its writer opens, even before its first event. After a restart,
// TensorBoard shows no steps that are not in the checkpoint. The resumed job does not log the steps in the checkpoint
// again, although it replays the code from the beginning of `main` to the first step boundary.
//
// Directories and tags are UTF-8. Threading: any thread may call the functions, but the training thread must make the
// first call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::internal {

// Must be called at the first step boundary, after which nothing is replayed.
void end_event_replay();

// Creates the state if it does not exist. Checkpoints require it on every replica, even on those without a writer.
void register_events();

// Must be called when a writer for `log_dir` opens. `purge_step`: the step that the user requested, if any. `parent`:
// for a run of add_scalars, the directory of its SummaryWriter. Returns the step from which TensorBoard must discard
// the events in earlier files, if any. It must discard all of them if the checkpoint contains this directory without
// events, or only its parent, or if the job restarted without a checkpoint.
std::optional<std::int64_t> resume_events(const std::string& log_dir, std::optional<std::int64_t> purge_step,
                                          const std::string& parent = {});

// Returns whether the job logged this event before the checkpoint from which it resumed.
bool is_replayed(const std::string& log_dir, std::string_view tag, std::int64_t step);

// Must be called when an event has been added to the file's buffer.
void count_event(const std::string& log_dir, std::string_view tag, std::int64_t step);

}  // namespace adaptdl::internal
