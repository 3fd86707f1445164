#include "terminal/json_lines.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "terminal/dump_json.h"

namespace adaptdl::cli {

void JsonLines::put(const nlohmann::ordered_json& object) {
  queue_.put(STDOUT_FILENO, dump_json(object, -1) + '\n');
  queue_.write_some();
}

}  // namespace adaptdl::cli
