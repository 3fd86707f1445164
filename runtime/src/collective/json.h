// JSON values as bytes. They travel as MessagePack: exact to the bit, and with a place for NaN, which JSON text has
// not.
#pragma once

#include "adaptdl/collective.h"

namespace adaptdl::collective {

Bytes to_bytes(const nlohmann::json& value);
// Throws CollectiveError on what is no value, or one that is nested too deeply to be safe to parse.
nlohmann::json from_bytes(const Bytes& bytes);

}  // namespace adaptdl::collective
