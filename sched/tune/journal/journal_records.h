// A journal's lines. Each line is one operation: a JSON object whose "op_code" specifies its kind.
//
// Errors: Error without the file or the line, which the caller adds.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

// The numbers are Optuna's. Other numbers are ignored: 10, which Optuna 5 also ignores, and those of newer versions.
enum class Code {
  kCreateStudy = 0,
  kDeleteStudy = 1,
  kStudyUserAttribute = 2,
  kStudySystemAttribute = 3,
  kCreateTrial = 4,
  kSetParameter = 5,
  kSetState = 6,
  kReport = 7,
  kTrialUserAttribute = 8,
  kTrialSystemAttribute = 9,
};

// The fields of a line; missing fields are empty. An operation on a single parameter, report or attribute uses the same
// member as kCreateTrial, which may set any number of them.
struct Record {
  template <class Value>
  using Named = std::vector<std::pair<std::string, Value>>;

  std::optional<Code> code;  // nullopt if unknown
  std::string worker;        // the process that issued the operation
  std::optional<std::int64_t> study, trial;
  std::optional<std::string> study_name;
  std::vector<Direction> directions;
  std::optional<TrialState> state;
  std::vector<double> values;
  std::optional<Time> started, ended;
  Named<const Distribution*> distributions;  // owned by the parser
  Named<double> parameters;                  // internal values
  std::vector<std::pair<std::int64_t, double>> intermediate;
  Named<nlohmann::json> user_attributes, system_attributes;
};

class RecordParser {
 public:
  // Throws Error if the line is not an operation or lacks a required field.
  Record parse(std::string_view line);

 private:
  const Distribution* distribution(std::string_view text);

  // Each distribution is parsed only once: a study has few different ones, but repeats each in many lines.
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, Distribution, Hash, std::equal_to<>> distributions_;
  friend class FieldReader;
};

// Returns whether the text may be the beginning of a line whose rest was never written.
bool may_begin_record(std::string_view text);

// The following functions return lines with their newline. `worker` must be unique to the process.
std::string create_study_line(const std::string& worker, const std::string& name, Direction direction);
std::string study_attribute_line(const std::string& worker, int study, Code code, const std::string& key,
                                 const nlohmann::json& value);
std::string create_trial_line(const std::string& worker, int study, TrialState state, Time now,
                              const std::map<std::string, nlohmann::json>& system_attributes,
                              const std::map<std::string, nlohmann::json>& user_attributes);
std::string parameter_line(const std::string& worker, int trial, const std::string& name,
                           const Distribution& distribution, double internal);
std::string state_line(const std::string& worker, int trial, TrialState state, Time now, std::optional<double> value);
std::string report_line(const std::string& worker, int trial, std::int64_t step, double value);
std::string trial_attribute_line(const std::string& worker, int trial, Code code, const std::string& key,
                                 const nlohmann::json& value);

}  // namespace adaptdl::sched::tune
