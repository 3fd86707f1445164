// JSON objects on standard output, one per line, written only as fast as the reader takes them. What the reader has not
// taken yet waits; if it went away, the rest is dropped.
//
// Threading: one thread at a time.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "terminal/output_queue.h"

namespace adaptdl::cli {

class JsonLines {
 public:
  void put(const nlohmann::ordered_json& object);
  // Writes what is taken without waiting.
  void write_some() { queue_.write_some(); }
  // Writes everything, as long as that takes.
  void write_all() { queue_.write_all(); }

 private:
  OutputQueue queue_;
};

}  // namespace adaptdl::cli
