// The storage of studies: a file in the format of Optuna's JournalStorage with a JournalFileBackend. Optuna 4.0 or
// later and its dashboard can open it, and Optuna may append to it at the same time.
//
// The file contains one JSON object per line; studies and trials are identified by their order in it. Lines are
// appended under the file's lock, which other writers (Optuna, `adaptdl tune enqueue`) respect. The lock is a symbolic
// link, FILE.lock; a waiting process takes it over when neither the link nor the file has changed for 30 s. Each append
// is flushed to disk, and then read back in order with the lines of other writers. A process that is killed leaves a
// readable file: at most the last line is incomplete. Readers ignore such a line, and the next append removes it.
//
// Operations on a trial that has finished have no effect, as in Optuna.
//
// Errors: Error if a line is damaged (the message contains the file and the line), if a system call fails, or if a
// study or trial does not exist, for example because it was deleted with Optuna. The operations that the call, or
// commit(), would have written are then discarded, but may be in the file if the flush failed. A well-formed line with
// an unknown operation, from a newer version, is ignored.
//
// Threading: an object must be used by one thread at a time; any number of processes may use a file.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tune/journal/journal_lock.h"
#include "tune/study/study.h"

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
  // standard error. `notice` is called while this object waits, and may call this object's const functions.
  void set_notice(JournalLock::Notice notice);

  // Reads what other writers have appended since the last call.
  void refresh();
  // Return the study with that name, or the trial with that id, as of the last call that read the file, or null if
  // there is none. The result is valid until the next call to a non-const function.
  const Study* find(std::string_view name) const;
  const Trial* trial(int id) const;
  // Returns all studies that have not been deleted, sorted by id.
  std::vector<const Study*> studies() const;

  using Attributes = std::map<std::string, nlohmann::json>;

  // Creates a study with these user attributes and returns its id. Throws UsageError if a study with that name exists.
  int create_study(const std::string& name, Direction direction, const std::string& metric,
                   const Attributes& user_attributes = {});
  void set_study_attribute(int study, const std::string& key, const nlohmann::json& value);
  // System attributes are used by samplers.
  void set_study_system_attribute(int study, const std::string& key, const nlohmann::json& value);
  // Creates a running trial, or a waiting one (whose `fixed_params` Optuna's samplers apply). Returns its id.
  int create_trial(int study, TrialState state, const Attributes& system_attributes = {},
                   const Attributes& user_attributes = {});
  // Claims the first waiting trial of the study for this process: its state becomes running, and these user attributes
  // are set. Returns its id, or nullopt if no trial is waiting or another process claimed it first.
  std::optional<int> claim_waiting(int study, const Attributes& user_attributes = {});
  // Throws UsageError if the distribution does not contain the value, or if the distribution is incompatible
  // (journal_distribution.h) with the parameter's distribution in other trials of the study.
  void set_parameter(int trial, const std::string& name, const Distribution& distribution, const nlohmann::json& value);
  void report(int trial, std::int64_t step, double value);
  void set_trial_attribute(int trial, const std::string& key, const nlohmann::json& value);
  void set_trial_system_attribute(int trial, const std::string& key, const nlohmann::json& value);
  // Ends the trial with the value of its objective. The value is required if the trial is complete, must be nullopt if
  // the trial failed, and must not be NaN. Returns false if the trial had already finished.
  bool finish(int trial, TrialState state, std::optional<double> value);

  // Collects the operations of the functions above until commit(), which writes and flushes them together. Without
  // begin(), each call commits its own operation. The results of create_*, claim_waiting and finish depend on other
  // writers, so these functions commit the collected operations together with their own.
  void begin();
  void commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace adaptdl::sched::tune
