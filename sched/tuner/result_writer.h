// Stores each result of a study's trials once, and passes the stored results to the observer of a search.
//
// If a runner begins with the first result of a trial, it again delivers results that are already in the storage. They
// are skipped: the storage records how many results of each trial it contains.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tune/journal/journal.h"
#include "tuner/search_event.h"
#include "tuner/trial_runner.h"

namespace adaptdl::sched::tune {

class ResultWriter {
 public:
  // The journal must outlive the writer and contain the study. take() and store() throw Error if the study was deleted
  // from its storage, or if the journal fails.
  ResultWriter(Journal& journal, std::string study, SearchObserver observer)
      : journal_(journal), study_(std::move(study)), observer_(std::move(observer)) {}

  // Adds the next result of a trial to the operations that store() commits. Ignores the result if it is already in the
  // storage, or if the trial has ended. REQUIRES that journal.begin() was called.
  void take(int number, const Result& result);
  // Commits the journal, and then passes the results since the last call to the observer.
  void store();
  // Returns the trials with new results since the last call.
  std::set<int> take_reported();
  // Must be called after the trial has ended.
  void forget(int number);

 private:
  // The progress through a trial's results since the search began.
  struct Taken {
    std::int64_t delivered = 0, stored = 0;  // numbers of results; `stored` includes earlier searches
    std::optional<std::int64_t> highest;     // highest step
    std::int64_t last = 0;                   // step of the last result
    std::optional<double> epoch;             // epoch of the last result that has one
    bool keeps_last = false, is_new = false;
  };

  void report();
  void store_first_rung();

  Journal& journal_;
  const std::string study_;
  const SearchObserver observer_;
  std::map<int, Taken> taken_;        // by trial
  std::set<int> reported_;            // trials with new results
  std::vector<SearchEvent> results_;  // events of results that are not stored yet
};

}  // namespace adaptdl::sched::tune
