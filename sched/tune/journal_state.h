// The studies and trials that the operations of a journal result in, by the rules of Optuna: ids count what was
// created, and an operation that conflicts with an earlier one, such as a report of a trial that has finished, has no
// effect.
//
// Threading: one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tune/journal_records.h"
#include "tune/study.h"

namespace adaptdl::sched::tune {

class JournalState {
 public:
  // Throws Error, with nothing changed, if the operation gives a parameter a value that does not exist. `own`: whether
  // this process issued it.
  void apply(Record&& record, bool own);

  const Study* find(std::string_view name) const;
  const Study* study(int id) const;  // null also if it is deleted
  std::vector<const Study*> studies() const;
  const Trial* trial(int id) const;  // null also if its study is deleted
  int next_study() const { return next_study_; }
  // Whether the parameter may have the distribution, beside the earlier trials of the study.
  bool accepts(const Trial& trial, const std::string& parameter, const Distribution& distribution) const;

  // The trial that this process created or claimed since the last call.
  std::optional<int> take_created() { return std::exchange(own_created_, {}); }
  std::optional<int> take_claimed() { return std::exchange(own_claimed_, {}); }

 private:
  struct StudyState {
    Study study;
    bool deleted = false;
    std::map<std::string, int> first_with;  // the first trial, by number, that has the parameter
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

  std::map<int, StudyState> studies_;  // also deleted studies: their trials keep their ids
  std::vector<Place> trials_;          // by id
  int next_study_ = 0;
  std::optional<int> own_created_, own_claimed_;
};

}  // namespace adaptdl::sched::tune
