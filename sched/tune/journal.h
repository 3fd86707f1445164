// The storage of studies: a file in the format of Optuna's JournalStorage with a JournalFileBackend. Optuna 4.0 or
// later and its dashboard can open it, and Optuna may append to it at the same time.
//
// The file has one JSON object per line; studies and trials are identified by their order in it. Lines are appended
// under the file's lock, which other writers (Optuna, `adaptdl tune enqueue`) respect. The lock is a symbolic link
// FILE.lock; a process that waits for it takes it over when nothing has changed for 30 s. Each append is flushed to
// disk, and then read back in its place among those of other writers. A process that is killed at any moment leaves a
// readable file: at most its last line is incomplete, which readers ignore and the next append removes.
//
// Operations on a trial that has finished have no effect, as in Optuna.
//
// Errors: Error if a line is damaged (with the file and the line), if a system call fails, and if a study or trial does
// not exist, for example because it was deleted with Optuna. What the call, or commit(), would have written is then
// discarded; only if the disk fails while flushing may it be in the file. A well-formed line with an unknown operation,
// of a newer version, is ignored.
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
  bool create = true;                                // create an empty file if there is none
  std::chrono::milliseconds lock_grace{kLockGrace};  // time without a change after which the lock is taken over
};

class Journal {
 public:
  // Opens and reads the file. Throws Error.
  explicit Journal(std::filesystem::path file, JournalOptions options = {});
  // Discards operations that were not committed.
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // Sends messages about waiting for the file's lock to `notice` instead of standard error; an empty function restores
  // the latter. `notice` is called while this object waits, and may call its const functions.
  void set_notice(JournalLock::Notice notice);

  // Reads what other writers have appended since the last call.
  void refresh();
  // Return the study with that name, or the trial with that id, as of the last call of any function that reads the
  // file, or null if there is none. The result is valid until the next call of a function that is not const.
  const Study* find(std::string_view name) const;
  const Trial* trial(int id) const;
  // Returns all studies that are not deleted, by id.
  std::vector<const Study*> studies() const;

  using Attributes = std::map<std::string, nlohmann::json>;

  // Creates a study with these user attributes and returns its id. Throws UsageError if there is one of that name.
  int create_study(const std::string& name, Direction direction, const std::string& metric,
                   const Attributes& user_attributes = {});
  void set_study_attribute(int study, const std::string& key, const nlohmann::json& value);
  // System attributes are used by samplers.
  void set_study_system_attribute(int study, const std::string& key, const nlohmann::json& value);
  // Creates a running trial, or a waiting one (whose `fixed_params` Optuna's samplers apply). Returns its id.
  int create_trial(int study, TrialState state, const Attributes& system_attributes = {},
                   const Attributes& user_attributes = {});
  // Claims the first waiting trial of the study for this process: its state becomes running, and it gets these user
  // attributes. Returns its id; none if no trial waits or another process has claimed it first.
  std::optional<int> claim_waiting(int study, const Attributes& user_attributes = {});
  // Throws UsageError if the distribution does not contain the value, or if it is incompatible (journal_distribution.h)
  // with the one that the parameter has in other trials of the study.
  void set_parameter(int trial, const std::string& name, const Distribution& distribution, const nlohmann::json& value);
  void report(int trial, std::int64_t step, double value);
  void set_trial_attribute(int trial, const std::string& key, const nlohmann::json& value);
  void set_trial_system_attribute(int trial, const std::string& key, const nlohmann::json& value);
  // Ends the trial with the value of its objective, which is required if the trial is complete, must be none if it
  // failed, and is never NaN. Returns whether the trial was not finished before.
  bool finish(int trial, TrialState state, std::optional<double> value);

  // Collects what the functions above append until commit(), which writes and flushes it together. Without begin(),
  // each call commits its own operation. The results of create_*, claim_waiting and finish depend on other writers, so
  // these commit what was collected together with their own operations.
  void begin();
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace adaptdl::sched::tune
