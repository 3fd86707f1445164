// What checkpoints keep of a job's TensorBoard events: the highest step of each tag, by directory, as the state
// "adaptdl-tensorboard". A directory is in it from when its writer opened, also before its first event. A resumed job
// neither shows steps that the checkpoint does not know of, nor logs those again that it does: code is replayed from
// the beginning of `main` until the first step boundary.
//
// Directories and tags are UTF-8. Thread-safe, but for the first call of any, which is for the training thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace adaptdl::internal {

// To be called at the first step boundary: from here on nothing is replayed.
void end_event_replay();

// Makes the state, if that has not happened. Every replica has it, whether or not that one makes a writer, as
// checkpoints require.
void register_events();

// To be called when a writer for `log_dir` opens. `purge_step`: what its user asks for. `parent`: for a run of
// add_scalars, the directory of the writer that it belongs to. Returns the step from which on earlier files are void,
// if any: all steps, if the checkpoint has this directory without events, or the parent but not this directory.
std::optional<std::int64_t> resume_events(const std::string& log_dir, std::optional<std::int64_t> purge_step,
                                          const std::string& parent = {});

// Whether an event is one that the job logged before the checkpoint that it goes on from.
bool is_replayed(const std::string& log_dir, std::string_view tag, std::int64_t step);

// To be called when an event is in the file's memory.
void count_event(const std::string& log_dir, std::string_view tag, std::int64_t step);

}  // namespace adaptdl::internal
