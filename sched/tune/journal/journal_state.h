// The studies and trials that result from a journal's operations, according to Optuna's rules: ids are assigned in the
// order of creation, and an operation that conflicts with an earlier one, such as a report for a finished trial, has no
// effect.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tune/journal/journal_records.h"
#include "tune/study/study.h"

namespace adaptdl::sched::tune {

class JournalState {
 public:
  // Applies an operation; `own` is true if this process issued it. Throws Error and changes nothing if the operation
  // sets a parameter to an invalid value.
  void apply(Record&& record, bool own);

  const Study* find(std::string_view name) const;
  const Study* study(int id) const;  // null if it does not exist or is deleted
  std::vector<const Study*> studies() const;
  const Trial* trial(int id) const;  // null if it does not exist or its study is deleted
  int next_study() const { return next_study_; }
  // Returns whether the parameter may have the distribution, given the other trials of the study.
  bool accepts(const Trial& trial, const std::string& parameter, const Distribution& distribution) const;

  // Return the id of the trial that this process created or claimed since the last call, if any.
  std::optional<int> take_created() { return std::exchange(own_created_, {}); }
  std::optional<int> take_claimed() { return std::exchange(own_claimed_, {}); }

 private:
  struct StudyState {
    Study study;
    bool deleted = false;
    std::map<std::string, int> first_with;  // by parameter: the number of the first trial that has it
  };
  struct Place {
    StudyState* owner;
    std::size_t number;
  };

  StudyState* owner_of(const Record& record);
  Trial* open_trial(const Record& record);
  void create_study(Record&& record);
  void create_trial(Record&& record, bool own);
  void set_parameter(const Record& record);
  void set_state(Record&& record, bool own);

  std::map<int, StudyState> studies_;  // includes deleted studies, whose trials keep their ids
  std::vector<Place> trials_;          // by trial id
  int next_study_ = 0;
  std::optional<int> own_created_, own_claimed_;
};

}  // namespace adaptdl::sched::tune
