#include "tune/journal/journal_records.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "tune/journal/journal_distribution.h"
#include "tune/journal/journal_time.h"
#include "tune/study/python_json.h"

namespace adaptdl::sched::tune {

// Optuna and adaptdl begin every line with this text.
constexpr std::string_view kRecordBegin = R"({"op_code":)";

class FieldReader {
 public:
  FieldReader(RecordParser& parser, std::string_view line) : parser_(parser), reader_(line) {}

  Record read() {
    reader_.begin_object();
    while (const auto key = reader_.next_key()) {
      // The fields of an unknown operation may have other types, so they are skipped.
      if (*key == "op_code") {
        set_code(reader_.integer());
      } else if (!record_.code) {
        reader_.skip();
      } else if (!read_common(*key) && !read_trial(*key) && !read_template(*key)) {
        reader_.skip();
      }
    }
    reader_.end();
    if (record_.code) complete();
    return std::move(record_);
  }

  // Returns the operation code of a line that begins with a key other than op_code.
  static std::int64_t find_code(std::string_view line) {
    PythonJsonReader reader(line);
    std::optional<std::int64_t> code;
    reader.begin_object();
    while (const auto key = reader.next_key()) {
      if (*key == "op_code") {
        code = reader.integer();
      } else {
        reader.skip();
      }
    }
    reader.end();
    if (!code) throw Error("not a study operation: missing op_code");
    return *code;
  }

  void set_code(std::int64_t code) {
    if (code >= 0 && code <= static_cast<int>(Code::kTrialSystemAttribute)) record_.code = static_cast<Code>(code);
  }

 private:
  bool read_common(std::string_view key) {
    if (key == "worker_id") {
      record_.worker = reader_.string();
    } else if (key == "study_id") {
      record_.study = reader_.integer();
    } else if (key == "trial_id") {
      record_.trial = reader_.integer();
    } else if (key == "study_name") {
      record_.study_name = reader_.string();
    } else if (key == "directions") {
      reader_.begin_array();
      while (reader_.next_item()) record_.directions.push_back(direction());
    } else if (key == "user_attr" || key == "user_attrs") {
      attributes(record_.user_attributes);
    } else if (key == "system_attr" || key == "system_attrs") {
      attributes(record_.system_attributes);
    } else {
      return false;
    }
    return true;
  }

  bool read_trial(std::string_view key) {
    if (key == "param_name") {
      name_ = reader_.string();
    } else if (key == "param_value_internal") {
      internal_ = reader_.number();
    } else if (key == "distribution") {
      distribution_ = parser_.distribution(reader_.string());
    } else if (key == "step") {
      step_ = reader_.integer();
    } else if (key == "intermediate_value") {
      reported_ = number_or_null();
    } else {
      return false;
    }
    return true;
  }

  bool read_template(std::string_view key) {
    if (key == "state") {
      record_.state = state();
    } else if (key == "value") {
      if (!reader_.null()) record_.values = {reader_.number()};
    } else if (key == "values") {
      values();
    } else if (key == "datetime_start") {
      record_.started = time();
    } else if (key == "datetime_complete") {
      record_.ended = time();
    } else if (key == "distributions") {
      members([this](std::string name) {
        record_.distributions.emplace_back(std::move(name), parser_.distribution(reader_.string()));
      });
    } else if (key == "params") {
      members([this](std::string name) { record_.parameters.emplace_back(std::move(name), reader_.number()); });
    } else if (key == "intermediate_values") {
      members([this](const std::string& step) {
        record_.intermediate.emplace_back(PythonJsonReader(step).integer(), number_or_null());
      });
    } else {
      return false;
    }
    return true;
  }

  template <class Read>
  void members(const Read& read) {
    reader_.begin_object();
    while (const auto key = reader_.next_key()) read(std::string(*key));
  }

  void attributes(Record::Named<nlohmann::json>& found) {
    members([&](std::string name) { found.emplace_back(std::move(name), reader_.value()); });
  }

  void values() {
    if (reader_.null()) return;
    record_.values.clear();
    reader_.begin_array();
    while (reader_.next_item()) record_.values.push_back(reader_.number());
  }

  double number_or_null() { return reader_.null() ? std::nan("") : reader_.number(); }

  Direction direction() {
    const std::int64_t number = reader_.integer();
    if (number < 0 || number > 2) throw Error(fmt::format("unknown direction {}", number));
    // 0 means that the direction was not set, which Optuna treats as minimize.
    return number == 2 ? Direction::kMaximize : Direction::kMinimize;
  }

  TrialState state() {
    const std::int64_t number = reader_.integer();
    if (number < 0 || number > static_cast<int>(TrialState::kWaiting))
      throw Error(fmt::format("unknown trial state {}", number));
    return static_cast<TrialState>(number);
  }

  std::optional<Time> time() {
    if (reader_.null()) return {};
    const std::string_view text = reader_.string();
    const auto found = parse_journal_time(text);
    if (!found) throw Error(fmt::format("invalid time '{}'", one_line(text, 100)));
    return found;
  }

  static void require(bool there, const char* name) {
    if (!there) throw Error(fmt::format("incomplete operation: missing {}", name));
  }

  // Checks that the required fields exist, and combines fields that belong together.
  void complete() {
    switch (*record_.code) {
      case Code::kCreateStudy:
        require(record_.study_name.has_value(), "study_name");
        return require(!record_.directions.empty(), "directions");
      case Code::kDeleteStudy:
      case Code::kStudyUserAttribute:
      case Code::kStudySystemAttribute:
      case Code::kCreateTrial:
        return require(record_.study.has_value(), "study_id");
      case Code::kSetParameter:
        require(name_.has_value(), "param_name");
        require(internal_.has_value(), "param_value_internal");
        require(distribution_ != nullptr, "distribution");
        record_.parameters = {{*name_, *internal_}};
        record_.distributions = {{*name_, distribution_}};
        break;
      case Code::kSetState:
        require(record_.state.has_value(), "state");
        break;
      case Code::kReport:
        require(step_.has_value(), "step");
        require(reported_.has_value(), "intermediate_value");
        record_.intermediate = {{*step_, *reported_}};
        break;
      case Code::kTrialUserAttribute:
      case Code::kTrialSystemAttribute:
        break;
    }
    require(record_.trial.has_value(), "trial_id");
  }

  RecordParser& parser_;
  PythonJsonReader reader_;
  Record record_;
  // Fields of operations on one parameter or report.
  std::optional<std::string> name_;
  std::optional<double> internal_, reported_;
  const Distribution* distribution_ = nullptr;
  std::optional<std::int64_t> step_;
};

namespace {

std::string quoted(const std::string& text) { return to_python_json(text); }

std::string begin_line(Code code, const std::string& worker) {
  return fmt::format(R"({}{},"worker_id":{},)", kRecordBegin, static_cast<int>(code), quoted(worker));
}

std::string attribute_line(Code code, const std::string& worker, const char* owner, int id, const char* kind,
                           const std::string& key, const nlohmann::json& value) {
  return begin_line(code, worker) +
         fmt::format("\"{}\":{},\"{}\":{{{}:{}}}}}\n", owner, id, kind, quoted(key), to_python_json(value));
}

}  // namespace

Record RecordParser::parse(std::string_view line) {
  FieldReader reader(*this, line);
  if (!line.starts_with(kRecordBegin)) reader.set_code(FieldReader::find_code(line));
  return reader.read();
}

const Distribution* RecordParser::distribution(std::string_view text) {
  const auto found = distributions_.find(text);
  if (found != distributions_.end()) return &found->second;
  return &distributions_.emplace(text, parse_distribution(text)).first->second;
}

bool may_begin_record(std::string_view text) {
  return text.substr(0, kRecordBegin.size()) == kRecordBegin.substr(0, text.size());
}

std::string create_study_line(const std::string& worker, const std::string& name, Direction direction) {
  return begin_line(Code::kCreateStudy, worker) +
         fmt::format("\"study_name\":{},\"directions\":[{}]}}\n", quoted(name), static_cast<int>(direction));
}

std::string study_attribute_line(const std::string& worker, int study, Code code, const std::string& key,
                                 const nlohmann::json& value) {
  const char* const kind = code == Code::kStudyUserAttribute ? "user_attr" : "system_attr";
  return attribute_line(code, worker, "study_id", study, kind, key, value);
}

std::string create_trial_line(const std::string& worker, int study, TrialState state, Time now,
                              const std::map<std::string, nlohmann::json>& system_attributes,
                              const std::map<std::string, nlohmann::json>& user_attributes) {
  const std::string begin = begin_line(Code::kCreateTrial, worker) + fmt::format("\"study_id\":{},", study);
  if (state == TrialState::kRunning && system_attributes.empty() && user_attributes.empty())
    return begin + fmt::format("\"datetime_start\":\"{}\"}}\n", to_journal_time(now));
  const std::string start = state == TrialState::kWaiting ? "null" : quoted(to_journal_time(now));
  return begin + fmt::format(
                     "\"datetime_start\":{},\"state\":{},\"value\":null,\"values\":null,\"distributions\":{{}},"
                     "\"params\":{{}},\"user_attrs\":{},\"system_attrs\":{},\"intermediate_values\":{{}}}}\n",
                     start, static_cast<int>(state), to_python_json(user_attributes),
                     to_python_json(system_attributes));
}

std::string parameter_line(const std::string& worker, int trial, const std::string& name,
                           const Distribution& distribution, double internal) {
  const bool index = std::holds_alternative<Choice>(distribution);
  const nlohmann::json number = index ? nlohmann::json(static_cast<std::int64_t>(internal)) : nlohmann::json(internal);
  return begin_line(Code::kSetParameter, worker) +
         fmt::format("\"trial_id\":{},\"param_name\":{},\"param_value_internal\":{},\"distribution\":{}}}\n", trial,
                     quoted(name), to_python_json(number), quoted(to_text(distribution)));
}

std::string state_line(const std::string& worker, int trial, TrialState state, Time now, std::optional<double> value) {
  const std::string values = value ? fmt::format("[{}]", to_python_json(*value)) : "null";
  const char* const when = is_finished(state) ? "datetime_complete" : "datetime_start";
  return begin_line(Code::kSetState, worker) +
         fmt::format("\"trial_id\":{},\"state\":{},\"values\":{},\"{}\":\"{}\"}}\n", trial, static_cast<int>(state),
                     values, when, to_journal_time(now));
}

std::string report_line(const std::string& worker, int trial, std::int64_t step, double value) {
  return begin_line(Code::kReport, worker) +
         fmt::format("\"trial_id\":{},\"step\":{},\"intermediate_value\":{}}}\n", trial, step, to_python_json(value));
}

std::string trial_attribute_line(const std::string& worker, int trial, Code code, const std::string& key,
                                 const nlohmann::json& value) {
  const char* const kind = code == Code::kTrialUserAttribute ? "user_attr" : "system_attr";
  return attribute_line(code, worker, "trial_id", trial, kind, key, value);
}

}  // namespace adaptdl::sched::tune
