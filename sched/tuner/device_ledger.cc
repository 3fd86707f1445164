#include "tuner/device_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace adaptdl::sched::tune {
namespace {

using nlohmann::json;

// A figure is stored when it has grown by this factor and by this many device-seconds: often enough to lose little in a
// crash, and rarely enough to keep the journal of a long study small.
constexpr double kMinGrowth = 1.01, kMinIncrease = 10;

double seconds_in(const Journal::Attributes& attributes, const std::string& key) {
  const auto found = attributes.find(key);
  return found != attributes.end() && found->second.is_number() ? std::max(0.0, found->second.get<double>()) : 0;
}

}  // namespace

std::string late_device_seconds(int number) { return fmt::format("{}:{}", kDeviceSeconds, number); }

double device_seconds(const Study& study, const Trial& trial) {
  return std::max(seconds_in(trial.user_attributes, kDeviceSeconds),
                  seconds_in(study.user_attributes, late_device_seconds(trial.number)));
}

double device_seconds(const Study& study) {
  double total = 0;
  for (const Trial& trial : study.trials) total += device_seconds(study, trial);
  return total;
}

DeviceLedger::DeviceLedger(const Study& study) : total_(device_seconds(study)) {}

DeviceLedger::Entry& DeviceLedger::entry_of(const Study& study, const Trial& trial, const std::string& run) {
  const auto [place, is_first] = entries_.try_emplace(trial.number);
  Entry& entry = place->second;
  if (is_first) {
    entry.total = entry.stored = device_seconds(study, trial);
    const auto counted = trial.user_attributes.find(kCountedRun);
    if (counted != trial.user_attributes.end() && counted->second.is_object()) {
      const json name = counted->second.value("run", json());
      if (name.is_string()) entry.run = name.get<std::string>();
      entry.before = seconds_in(counted->second.get<Journal::Attributes>(), "before");
    }
  }
  if (entry.run == run) return entry;
  // Late figures in the study belong to this run, because a trial that has ended has no further runs.
  entry.before = is_first ? seconds_in(trial.user_attributes, kDeviceSeconds) : entry.total;
  entry.run = run;
  entry.is_new = true;
  return entry;
}

void DeviceLedger::take(Journal& journal, const Study& study, const Trial& trial, const RunUsage& usage) {
  Entry& entry = entry_of(study, trial, usage.run);
  const double total = std::max(entry.total, entry.before + usage.device_seconds);
  total_ += total - entry.total;
  entry.total = total;
  if (total <= entry.stored) return;
  if (!usage.is_last && total < std::max(entry.stored * kMinGrowth, entry.stored + kMinIncrease)) return;
  entry.stored = total;
  const int id = trial.id, number = trial.number, study_id = study.id;
  if (is_finished(trial.state)) return journal.set_study_attribute(study_id, late_device_seconds(number), total);
  // The run is stored first, so that after a crash between the two writes, too little usage is counted rather than the
  // same usage twice.
  if (entry.is_new) journal.set_trial_attribute(id, kCountedRun, {{"run", entry.run}, {"before", entry.before}});
  entry.is_new = false;
  journal.set_trial_attribute(id, kDeviceSeconds, total);
  unconfirmed_.insert(number);
}

void DeviceLedger::confirm(Journal& journal, const Study& study) {
  journal.begin();
  for (const int number : std::exchange(unconfirmed_, {})) {
    const Trial& trial = study.trials.at(static_cast<std::size_t>(number));
    const double stored = entries_.at(number).stored;
    if (is_finished(trial.state) && device_seconds(study, trial) < stored)
      journal.set_study_attribute(study.id, late_device_seconds(number), stored);
  }
  journal.commit();
}

}  // namespace adaptdl::sched::tune
