#include "tune/journal/journal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "adaptdl/error.h"
#include "protocol/secret.h"
#include "tune/journal/journal_file.h"
#include "tune/journal/journal_records.h"
#include "tune/journal/journal_state.h"
#include "tune/study/python_json.h"

namespace adaptdl::sched::tune {
namespace {

// Optuna stores the names of the objectives in this attribute.
constexpr const char* kMetricNames = "study:metric_names";

Time current_time() { return std::chrono::system_clock::now(); }

}  // namespace

struct Journal::State {
  State(std::filesystem::path path, const JournalOptions& options)
      : file(std::move(path), options.create), grace(options.lock_grace) {}

  // Returns an id that no other process has; a forked process gets a new one.
  const std::string& worker() {
    if (const pid_t pid = ::getpid(); pid != std::exchange(worker_pid, pid))
      worker_id = fmt::format("{}-{}", make_secret(), pid);
    return worker_id;
  }

  void refresh() {
    const std::string& own = worker();
    file.read([&](std::string_view line) {
      Record record = parser.parse(line);
      const bool is_own = record.worker == own;
      state.apply(std::move(record), is_own);
    });
  }

  // Writes `pending` and what `prepare` adds to it. `prepare` is called while the lock is held and the state is up to
  // date.
  template <class Prepare>
  void commit(const Prepare& prepare) {
    std::string lines = std::exchange(pending, {});
    {
      const JournalLock lock(file.path(), worker(), grace, notice);
      do refresh();
      while (file.repair());
      prepare(lines);
      if (!lines.empty()) file.append(lines);
    }
    refresh();
  }

  void add(const std::string& line) {
    pending += line;
    if (!collecting) commit([](std::string&) {});
  }

  const Study& existing_study(int id) const {
    const Study* const study = state.study(id);
    if (study == nullptr)
      throw Error(fmt::format("{}: study {} does not exist; it may have been deleted", file.path().string(), id));
    return *study;
  }

  const Trial& existing_trial(int id) const {
    const Trial* const trial = state.trial(id);
    if (trial == nullptr)
      throw Error(
          fmt::format("{}: trial {} does not exist; its study may have been deleted", file.path().string(), id));
    return *trial;
  }

  JournalFile file;
  RecordParser parser;
  JournalState state;
  std::chrono::milliseconds grace;
  JournalLock::Notice notice;
  pid_t worker_pid = -1;
  std::string worker_id;
  std::string pending;  // lines that are not committed yet
  bool collecting = false;
};

Journal::Journal(std::filesystem::path file, JournalOptions options)
    : state_(std::make_unique<State>(std::move(file), options)) {
  refresh();
}

Journal::~Journal() = default;

void Journal::set_notice(JournalLock::Notice notice) { state_->notice = std::move(notice); }

void Journal::refresh() { state_->refresh(); }

const Study* Journal::find(std::string_view name) const { return state_->state.find(name); }

const Trial* Journal::trial(int id) const { return state_->state.trial(id); }

std::vector<const Study*> Journal::studies() const { return state_->state.studies(); }

int Journal::create_study(const std::string& name, Direction direction, const std::string& metric,
                          const Attributes& user_attributes) {
  State& state = *state_;
  int id = -1;
  state.commit([&](std::string& lines) {
    if (state.state.find(name) != nullptr)
      throw UsageError(
          fmt::format("{}: study '{}' already exists; choose another name", state.file.path().string(), name));
    id = state.state.next_study();
    lines += create_study_line(state.worker(), name, direction);
    lines += study_attribute_line(state.worker(), id, Code::kStudySystemAttribute, kMetricNames,
                                  nlohmann::json::array({metric}));
    for (const auto& [key, value] : user_attributes)
      lines += study_attribute_line(state.worker(), id, Code::kStudyUserAttribute, key, value);
  });
  return id;
}

void Journal::set_study_attribute(int study, const std::string& key, const nlohmann::json& value) {
  state_->existing_study(study);
  state_->add(study_attribute_line(state_->worker(), study, Code::kStudyUserAttribute, key, value));
}

void Journal::set_study_system_attribute(int study, const std::string& key, const nlohmann::json& value) {
  state_->existing_study(study);
  state_->add(study_attribute_line(state_->worker(), study, Code::kStudySystemAttribute, key, value));
}

int Journal::create_trial(int study, TrialState state, const Attributes& system_attributes,
                          const Attributes& user_attributes) {
  if (is_finished(state)) throw UsageError("a new trial must be running or waiting");
  state_->state.take_created();
  state_->commit([&](std::string& lines) {
    state_->existing_study(study);
    lines += create_trial_line(state_->worker(), study, state, current_time(), system_attributes, user_attributes);
  });
  const auto id = state_->state.take_created();
  if (!id) throw Error(fmt::format("{}: study {} was deleted by another process", state_->file.path().string(), study));
  return *id;
}

std::optional<int> Journal::claim_waiting(int study, const Attributes& user_attributes) {
  const auto waiting = [&]() -> const Trial* {
    const auto& trials = state_->existing_study(study).trials;
    const auto found = std::ranges::find(trials, TrialState::kWaiting, &Trial::state);
    return found == trials.end() ? nullptr : &*found;
  };
  refresh();
  if (waiting() == nullptr) return {};
  state_->state.take_claimed();
  state_->commit([&](std::string& lines) {
    const Trial* const trial = waiting();
    if (trial == nullptr) return;
    for (const auto& [key, value] : user_attributes)
      lines += trial_attribute_line(state_->worker(), trial->id, Code::kTrialUserAttribute, key, value);
    lines += state_line(state_->worker(), trial->id, TrialState::kRunning, current_time(), {});
  });
  return state_->state.take_claimed();
}

void Journal::set_parameter(int trial, const std::string& name, const Distribution& distribution,
                            const nlohmann::json& value) {
  // Optuna cannot open a file that contains an invalid choice.
  if (!contains(distribution, value))
    throw UsageError(fmt::format("invalid value for parameter '{}': {} is not in the search space", name,
                                 to_python_json(value)));
  // Optuna and JournalState would ignore such an operation.
  if (!state_->state.accepts(state_->existing_trial(trial), name, distribution))
    throw UsageError(
        fmt::format("{}: parameter '{}' has a different type or different choices in earlier trials; use a new study",
                    state_->file.path().string(), name));
  state_->add(parameter_line(state_->worker(), trial, name, distribution, to_internal(distribution, value)));
}

void Journal::report(int trial, std::int64_t step, double value) {
  state_->existing_trial(trial);
  state_->add(report_line(state_->worker(), trial, step, value));
}

void Journal::set_trial_attribute(int trial, const std::string& key, const nlohmann::json& value) {
  state_->existing_trial(trial);
  state_->add(trial_attribute_line(state_->worker(), trial, Code::kTrialUserAttribute, key, value));
}

void Journal::set_trial_system_attribute(int trial, const std::string& key, const nlohmann::json& value) {
  state_->existing_trial(trial);
  state_->add(trial_attribute_line(state_->worker(), trial, Code::kTrialSystemAttribute, key, value));
}

bool Journal::finish(int trial, TrialState state, std::optional<double> value) {
  if (!is_finished(state)) throw UsageError("the final state of a trial must be complete, pruned or failed");
  if (value && std::isnan(*value)) throw UsageError("the value of a finished trial must be a number");
  if ((state == TrialState::kComplete && !value) || (state == TrialState::kFailed && value))
    throw UsageError("a trial must have a value if it is complete, and no value if it failed");
  bool open = false;
  state_->commit([&](std::string& lines) {
    open = !is_finished(state_->existing_trial(trial).state);
    if (open) lines += state_line(state_->worker(), trial, state, current_time(), value);
  });
  return open;
}

void Journal::begin() { state_->collecting = true; }

void Journal::commit() {
  state_->collecting = false;
  if (!state_->pending.empty()) state_->commit([](std::string&) {});
}

}  // namespace adaptdl::sched::tune
