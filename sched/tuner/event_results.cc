#include "tuner/event_results.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "adaptdl/error.h"
#include "tuner/append_lines.h"

namespace adaptdl::sched::tune {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::chrono::milliseconds kLookEvery{250};

std::string to_line(const EventResult& event) {
  json line{{"value", nullptr}, {"file", event.file}, {"end", event.end}};
  if (!std::isnan(event.result.value)) line["value"] = event.result.value;
  if (event.result.step) line["step"] = *event.result.step;
  return line.dump() + "\n";
}

std::optional<EventResult> from_line(const std::string& line) {
  const auto result = parse_result(line, "value");
  const json object = json::parse(line, nullptr, false);
  if (!result || !object.is_object()) return {};
  const auto file = object.find("file"), end = object.find("end");
  if (file == object.end() || !file->is_string() || end == object.end() || !end->is_number_unsigned()) return {};
  return EventResult{*result, 0, file->get<std::string>(), end->get<std::uint64_t>()};
}

}  // namespace

EventResults::EventResults(fs::path events, fs::path delivered, std::string metric, EventFiles::Notice notice)
    : delivered_(std::move(delivered)), files_(std::move(events), std::move(metric), std::move(notice)) {
  load();
}

void EventResults::load() {
  std::ifstream stream(delivered_, std::ios::binary);
  if (!stream && errno != ENOENT)
    throw Error(fmt::format("cannot read file '{}': {}", delivered_.string(), std::strerror(errno)));
  if (!stream) return;
  std::uint64_t valid = 0;
  for (std::string line; std::getline(stream, line) && !stream.eof(); valid += line.size() + 1) {
    const auto event = from_line(line);
    if (!event) break;
    files_.skip(event->file, event->end);
    stored_.push_back(event->result);
  }
  std::error_code error;
  if (fs::file_size(delivered_, error) != valid && !error) fs::resize_file(delivered_, valid, error);
  if (error) throw Error(fmt::format("cannot write file '{}': {}", delivered_.string(), error.message()));
}

void EventResults::read(Clock::time_point now, bool ended) {
  if (now < next_look_ && !ended && !files_.has_more()) return;
  next_look_ = now + kLookEvery;
  do {
    std::vector<EventResult> results = files_.read();
    found_.insert(found_.end(), std::move_iterator(results.begin()), std::move_iterator(results.end()));
  } while (ended && files_.has_more());
}

std::vector<Result> EventResults::take() {
  std::vector<Result> results = std::exchange(stored_, {});
  if (found_.empty()) return results;
  std::string lines;
  for (const EventResult& event : found_) {
    lines += to_line(event);
    results.push_back(event.result);
  }
  append_lines(delivered_, lines);
  found_.clear();
  return results;
}

}  // namespace adaptdl::sched::tune
