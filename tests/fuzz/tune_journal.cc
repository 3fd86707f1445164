// Reads any bytes as lines of a study's journal: they are replayed, or refused with a one-line error. Writing preserves
// JSON.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "tune/journal/journal_distribution.h"
#include "tune/journal/journal_records.h"
#include "tune/journal/journal_state.h"
#include "tune/journal/journal_time.h"
#include "tune/study/python_json.h"

using namespace adaptdl::sched::tune;

namespace {

void check(bool good) {
  if (!good) std::abort();
}

template <class Call>
void refused_in_a_line(Call call) {
  try {
    call();
  } catch (const adaptdl::Error& error) {
    const std::string_view message = error.what();
    check(std::none_of(message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }));
  }
}

nlohmann::json read_json(std::string_view text) {
  PythonJsonReader reader(text);
  nlohmann::json value = reader.value();
  reader.end();
  return value;
}

void check_trial(const JournalState& state, const Trial& trial) {
  check(state.trial(trial.id) == &trial);
  check(trial.parameters.size() == trial.distributions.size());
  for (const auto& [name, distribution] : trial.distributions) {
    check(trial.parameters.contains(name));
    const std::string text = to_text(distribution);
    check(to_text(parse_distribution(text)) == text);
  }
  if (trial.started) check(parse_journal_time(to_journal_time(*trial.started)) == trial.started);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  RecordParser parser;
  JournalState state;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    refused_in_a_line([&] {
      Record record = parser.parse(line);
      const bool own = record.worker == "w";
      state.apply(std::move(record), own);
    });
    refused_in_a_line([&] {
      const std::string written = to_python_json(read_json(line));
      check(to_python_json(read_json(written)) == written);
    });
  }
  for (const Study* const study : state.studies()) {
    check(state.find(study->name) == study);
    for (const Trial& trial : study->trials) check_trial(state, trial);
  }
  return 0;
}
