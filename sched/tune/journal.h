// A study's storage: a file in the format of Optuna's JournalStorage with a JournalFileBackend, which Optuna from 4.0
// on and its dashboard open, and to which Optuna may append at the same time.
//
// One JSON object per line; studies and trials are known by their order in the file. Everything is appended under the
// file's lock, which other writers (Optuna, `adaptdl tune enqueue`) respect: a symbolic link FILE.lock, which is taken
// over when nothing has changed for 30 s. Each append is flushed to disk, then read back in its place among those of
// other writers. A process that is killed at any moment leaves a file that opens: at most its last line is incomplete,
// which is ignored, and removed before the next append.
//
// Operations on a trial that has finished have no effect, as in Optuna.
//
// Errors: Error with the file and the line where one is damaged, where the system refuses, and for a study or trial
// that does not exist, such as one that was deleted with Optuna. What the call, or commit(), would have written is then
// discarded; only if the disk fails while flushing, it may be in the file. What is well-formed but unknown (a newer
// operation) is ignored with its line.
//
// Threading: one thread at a time; any number of processes.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tune/journal_lock.h"
#include "tune/study.h"

namespace adaptdl::sched::tune {

struct JournalOptions {
  bool create = true;                                // an empty file if there is none
  std::chrono::milliseconds lock_grace{kLockGrace};  // after which the lock of a killed process is taken over
};

class Journal {
 public:
  // Opens and reads the file. Throws Error.
  explicit Journal(std::filesystem::path file, JournalOptions options = {});
  // Discards what was not committed.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Reports waits for the file's lock by `notice` instead of on standard error; an empty function restores the latter.
  // `notice` is called while this object waits, and may read it.
  void set_notice(JournalLock::Notice notice);

  // Reads what was appended by others since the last call.
  void refresh();
  // The study of that name, or the trial with that id, as of the last call of any function here, or null. Valid until
  // the next one.
  const Study* find(std::string_view name) const;
  const Trial* trial(int id) const;
  // All studies that are not deleted, by id.
  std::vector<const Study*> studies() const;

  using Attributes = std::map<std::string, nlohmann::json>;

  // Returns the study's id. It has these user attributes from the start. Throws UsageError if there is one of that
  // name.
  int create_study(const std::string& name, Direction direction, const std::string& metric,
                   const Attributes& user_attributes = {});
  void set_study_attribute(int study, const std::string& key, const nlohmann::json& value);
  // System attributes are those of samplers.
  void set_study_system_attribute(int study, const std::string& key, const nlohmann::json& value);
  // A trial that runs, or one that waits (with `fixed_params`, which Optuna's samplers take over). Returns its id.
  int create_trial(int study, TrialState state, const Attributes& system_attributes = {},
                   const Attributes& user_attributes = {});
  // Takes the first trial of the study that waits, if there is one, for this process: it runs from now on, with these
  // user attributes.
  std::optional<int> claim_waiting(int study, const Attributes& user_attributes = {});
  // Throws UsageError if the distribution does not contain the value, or if trials of the study have the parameter with
  // another type of distribution or other choices.
  void set_parameter(int trial, const std::string& name, const Distribution& distribution, const nlohmann::json& value);
  void report(int trial, std::int64_t step, double value);
  void set_trial_attribute(int trial, const std::string& key, const nlohmann::json& value);
  void set_trial_system_attribute(int trial, const std::string& key, const nlohmann::json& value);
  // Ends the trial, `value` being that of its objective: required if it is complete, none if it failed, never NaN.
  // Returns whether it was not finished before.
  bool finish(int trial, TrialState state, std::optional<double> value);

  // Collects what the functions above append until commit(), which writes and flushes it at once. Without begin(),
  // each call is committed by itself. create_*, claim_waiting and finish, whose results depend on the other writers,
  // commit what was collected together with their own.
  void begin();
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace adaptdl::sched::tune
