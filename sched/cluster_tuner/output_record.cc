#include "cluster_tuner/output_record.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "adaptdl/error.h"
#include "base/utf8.h"
#include "tuner/append_lines.h"

namespace adaptdl::sched::tune {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::int64_t nanoseconds(OutputRecord::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

}  // namespace

OutputRecord::OutputRecord(fs::path file, std::string metric) : file_(std::move(file)), metric_(std::move(metric)) {
  load();
}

void OutputRecord::load() {
  std::ifstream stream(file_, std::ios::binary);
  if (!stream && errno != ENOENT)
    throw Error(fmt::format("cannot read file '{}': {}", file_.string(), std::strerror(errno)));
  if (!stream) return;
  std::uint64_t complete = 0;
  int number = 0;
  for (std::string text; std::getline(stream, text) && !stream.eof(); complete += text.size() + 1) {
    ++number;
    const json object = json::parse(text, nullptr, false);
    try {
      const Line line{object.at("pod").get<std::string>(), object.at("time").get<std::int64_t>(),
                      object.at("line").get<std::string>()};
      const auto result = parse_result(std::get<2>(line), metric_);
      if (!result) throw Error("no result");
      ++known_[line];
      stored_.push_back(*result);
    } catch (const std::exception&) {
      throw Error(fmt::format("invalid line {} in file '{}': expected a result for metric '{}'", number, file_.string(),
                              metric_));
    }
  }
  std::error_code error;
  if (fs::file_size(file_, error) != complete && !error) fs::resize_file(file_, complete, error);
  if (error) throw Error(fmt::format("cannot write file '{}': {}", file_.string(), error.message()));
}

std::vector<Result> OutputRecord::take_stored() { return std::exchange(stored_, {}); }

std::optional<Result> OutputRecord::add(const std::string& pod, Time time, std::string_view text) {
  auto result = parse_result(text, metric_);
  if (!result || !is_utf8(text)) return {};
  Line line{pod, nanoseconds(time), std::string(text)};
  const auto known = known_.find(line);
  const int count = ++seen_[line];
  if (known != known_.end() && count <= known->second) return {};
  append_lines(file_, json{{"pod", pod}, {"time", std::get<1>(line)}, {"line", text}}.dump() + "\n");
  ++known_[std::move(line)];
  return result;
}

}  // namespace adaptdl::sched::tune
