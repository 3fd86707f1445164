#include "tune/journal/journal_state.h"

#include <algorithm>
#include <iterator>

#include "tune/journal/journal_distribution.h"

namespace adaptdl::sched::tune {
namespace {

void assign_attributes(std::map<std::string, nlohmann::json>& attributes, Record::Named<nlohmann::json>&& found) {
  for (auto& [key, value] : found) attributes.insert_or_assign(std::move(key), std::move(value));
}

}  // namespace

void JournalState::apply(Record&& record, bool own) {
  if (!record.code) return;
  switch (*record.code) {
    case Code::kCreateStudy:
      return create_study(std::move(record));
    case Code::kDeleteStudy:
      if (StudyState* const owner = owner_of(record)) owner->deleted = true;
      return;
    case Code::kStudyUserAttribute:
      if (StudyState* const owner = owner_of(record))
        assign_attributes(owner->study.user_attributes, std::move(record.user_attributes));
      return;
    case Code::kStudySystemAttribute:
      if (StudyState* const owner = owner_of(record))
        assign_attributes(owner->study.system_attributes, std::move(record.system_attributes));
      return;
    case Code::kCreateTrial:
      return create_trial(std::move(record), own);
    case Code::kSetParameter:
      return set_parameter(record);
    case Code::kSetState:
      return set_state(std::move(record), own);
    case Code::kReport:
      if (Trial* const trial = open_trial(record))
        trial->intermediate[record.intermediate[0].first] = record.intermediate[0].second;
      return;
    case Code::kTrialUserAttribute:
      if (Trial* const trial = open_trial(record))
        assign_attributes(trial->user_attributes, std::move(record.user_attributes));
      return;
    case Code::kTrialSystemAttribute:
      if (Trial* const trial = open_trial(record))
        assign_attributes(trial->system_attributes, std::move(record.system_attributes));
      return;
  }
}

const Study* JournalState::find(std::string_view name) const {
  const auto found = std::ranges::find_if(
      studies_, [&](const auto& each) { return !each.second.deleted && each.second.study.name == name; });
  return found == studies_.end() ? nullptr : &found->second.study;
}

const Study* JournalState::study(int id) const {
  const auto found = studies_.find(id);
  return found == studies_.end() || found->second.deleted ? nullptr : &found->second.study;
}

std::vector<const Study*> JournalState::studies() const {
  std::vector<const Study*> all;
  for (const auto& [id, owner] : studies_)
    if (!owner.deleted) all.push_back(&owner.study);
  return all;
}

const Trial* JournalState::trial(int id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= trials_.size()) return nullptr;
  const auto& [owner, number] = trials_[static_cast<std::size_t>(id)];
  return owner->deleted ? nullptr : &owner->study.trials[number];
}

bool JournalState::accepts(const Trial& trial, const std::string& parameter, const Distribution& distribution) const {
  const StudyState& owner = *trials_[static_cast<std::size_t>(trial.id)].owner;
  const auto first = owner.first_with.find(parameter);
  if (first == owner.first_with.end()) return true;
  const Trial& other = owner.study.trials[static_cast<std::size_t>(first->second)];
  return are_compatible(other.distributions.at(parameter), distribution);
}

JournalState::StudyState* JournalState::owner_of(const Record& record) {
  if (*record.study < 0 || *record.study >= next_study_) return nullptr;
  StudyState& owner = studies_.at(static_cast<int>(*record.study));
  return owner.deleted ? nullptr : &owner;
}

// Returns the record's trial, or null if it does not exist or has finished.
Trial* JournalState::open_trial(const Record& record) {
  if (*record.trial < 0 || static_cast<std::uint64_t>(*record.trial) >= trials_.size()) return nullptr;
  const auto& [owner, number] = trials_[static_cast<std::size_t>(*record.trial)];
  Trial& trial = owner->study.trials[number];
  return is_finished(trial.state) ? nullptr : &trial;
}

void JournalState::create_study(Record&& record) {
  if (find(*record.study_name) != nullptr) return;
  const int id = next_study_++;
  Study& study = studies_[id].study;
  study.id = id;
  study.name = std::move(*record.study_name);
  study.directions = std::move(record.directions);
}

void JournalState::create_trial(Record&& record, bool own) {
  StudyState* const owner = owner_of(record);
  if (owner == nullptr) return;
  Trial trial;
  trial.id = static_cast<int>(trials_.size());
  trial.number = static_cast<int>(owner->study.trials.size());
  trial.state = record.state.value_or(TrialState::kRunning);
  for (const auto& [name, distribution] : record.distributions)
    trial.distributions.insert_or_assign(name, *distribution);
  for (const auto& [name, internal] : record.parameters) {
    const auto distribution = trial.distributions.find(name);
    if (distribution == trial.distributions.end()) continue;
    trial.parameters.insert_or_assign(name, external_value(distribution->second, internal));
  }
  std::erase_if(trial.distributions, [&](const auto& each) { return !trial.parameters.contains(each.first); });
  for (const auto& [name, value] : trial.parameters) owner->first_with.try_emplace(name, trial.number);
  trial.values = std::move(record.values);
  for (const auto& [step, value] : record.intermediate) trial.intermediate.insert_or_assign(step, value);
  assign_attributes(trial.user_attributes, std::move(record.user_attributes));
  assign_attributes(trial.system_attributes, std::move(record.system_attributes));
  trial.started = record.started;
  trial.ended = record.ended;
  owner->study.trials.push_back(std::move(trial));
  trials_.push_back({owner, owner->study.trials.size() - 1});
  if (own) own_created_ = static_cast<int>(trials_.size()) - 1;
}

void JournalState::set_parameter(const Record& record) {
  Trial* const trial = open_trial(record);
  if (trial == nullptr) return;
  StudyState& owner = *trials_[static_cast<std::size_t>(trial->id)].owner;
  const auto& [name, distribution] = record.distributions[0];
  if (!accepts(*trial, name, *distribution)) return;
  trial->parameters.insert_or_assign(name, external_value(*distribution, record.parameters[0].second));
  trial->distributions.insert_or_assign(name, *distribution);
  int& first = owner.first_with.try_emplace(name, trial->number).first->second;
  first = std::min(first, trial->number);
}

void JournalState::set_state(Record&& record, bool own) {
  Trial* const trial = open_trial(record);
  const TrialState state = *record.state;
  // If two processes claim a trial, the first one gets it.
  if (trial == nullptr || (state == TrialState::kRunning && trial->state == TrialState::kRunning)) return;
  if (state == TrialState::kRunning) {
    trial->started = record.started;
    if (own) own_claimed_ = trial->id;
  }
  if (is_finished(state)) trial->ended = record.ended;
  trial->state = state;
  if (!record.values.empty()) trial->values = std::move(record.values);
}

}  // namespace adaptdl::sched::tune
