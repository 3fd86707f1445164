#include "terminal/dump_json.h"

#include <nlohmann/json.hpp>

#include "base/printable.h"

namespace adaptdl::cli {
namespace {

template <typename Json>
std::string dump(const Json& value, int indent) {
  return printable_json(value.dump(indent, ' ', false, Json::error_handler_t::replace));
}

}  // namespace

std::string dump_json(const nlohmann::json& value, int indent) { return dump(value, indent); }

std::string dump_json(const nlohmann::ordered_json& value, int indent) { return dump(value, indent); }

}  // namespace adaptdl::cli
