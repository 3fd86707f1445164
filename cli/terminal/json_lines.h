// JsonLines writes JSON objects to standard output, one per line, only as fast as the reader accepts them. Objects that
// the reader has not accepted yet wait in a queue, and are dropped if the reader exits.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "terminal/output_queue.h"

namespace adaptdl::cli {

class JsonLines {
 public:
  void put(const nlohmann::ordered_json& object);
  // Writes as much as the reader accepts without blocking.
  void write_some() { queue_.write_some(); }
  // Writes everything, and blocks until that is done.
  void write_all() { queue_.write_all(); }

 private:
  OutputQueue queue_;
};

}  // namespace adaptdl::cli
