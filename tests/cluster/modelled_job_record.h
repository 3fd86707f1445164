// The record of the samples that the replicas of modelled_job trained on.
//
// It consists of two files in $ADAPTDL_SHARE_PATH. done.json, written at the end, is the checkpointed state: the number
// of samples, the sums of their indices and of the squares of their indices across all replicas, and the range of
// samples that was trained on after each start of the job. journal.jsonl has a line for each start and end of a replica
// and for each step of the job, in order, including steps that were repeated after a crash.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "adaptdl/checkpoint.h"
#include "adaptdl/env.h"
#include "adaptdl/error.h"

namespace modelled_job_record {

using namespace adaptdl;
using nlohmann::json;

struct Sums {
  std::int64_t count = 0, indices = 0, squares = 0;

  void add(std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i) {
      ++count;
      indices += i;
      squares += i * i;
    }
  }
};

// The samples that were trained on, and after which start of the job.
class Trained : public checkpoint::State {
 public:
  Trained() : State("trained") {}

  void save(checkpoint::Writer& writer) const override { writer.json("trained", to_json()); }
  void load(const checkpoint::Reader& reader) override {
    const json saved = reader.json("trained");
    sums = {saved.at("samples"), saved.at("indices"), saved.at("squares")};
    profiled_replicas = saved.at("profiledReplicas");
    ranges = saved.at("ranges");
  }
  json progress() const override { return {{"samples", sums.count}}; }

  json to_json() const {
    return {{"samples", sums.count},
            {"indices", sums.indices},
            {"squares", sums.squares},
            {"profiledReplicas", profiled_replicas},
            {"ranges", ranges}};
  }

  void commit(const Sums& step, std::int64_t from, std::int64_t to) {
    sums.count += step.count;
    sums.indices += step.indices;
    sums.squares += step.squares;
    const int group = env::num_restarts(), replicas = env::num_replicas();
    if (!ranges.empty() && ranges.back().at("group") == group && ranges.back().at("to") == from) {
      ranges.back()["to"] = to;
    } else {
      ranges.push_back({{"group", group}, {"replicas", replicas}, {"from", from}, {"to", to}});
    }
  }

  Sums sums;
  int profiled_replicas = 0;
  json ranges = json::array();
};

inline std::optional<std::filesystem::path> shared_file(const char* name) {
  const auto directory = env::share_path();
  if (!directory) return {};
  return std::filesystem::path(*directory) / name;
}

// Writes each line with a single call, so that the lines of several processes do not mix.
inline void append_to_journal(const char* event, json fields) {
  const auto path = shared_file("journal.jsonl");
  if (!path) return;
  const char* const node = std::getenv("NODE_NAME");
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  fields.update({{"event", event},
                 {"group", env::num_restarts()},
                 {"rank", env::replica_rank()},
                 {"replicas", env::num_replicas()},
                 {"host", host},
                 {"node", node ? node : ""}});
  const std::string line = fields.dump() + '\n';
  const int file = open(path->c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const bool written = file >= 0 && write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (file >= 0) close(file);
  if (!written) throw Error(fmt::format("cannot write '{}'", path->string()));
}

inline void write_done(const Trained& trained) {
  const auto path = shared_file("done.json");
  if (!path || env::replica_rank() != 0) return;
  auto partial = *path;
  partial += ".partial";
  std::ofstream file(partial);
  if (!(file << trained.to_json() << '\n' << std::flush))
    throw Error(fmt::format("cannot write '{}'", partial.string()));
  std::filesystem::rename(partial, *path);
}

}  // namespace modelled_job_record
