// JSON values as bytes. They are encoded as MessagePack, which, unlike JSON text, preserves every bit of a number and
// can represent NaN.
#pragma once

#include "adaptdl/collective.h"

namespace adaptdl::collective {

Bytes to_bytes(const nlohmann::json& value);
// Throws CollectiveError if the bytes do not encode a value, or if the value is nested too deeply to parse safely.
nlohmann::json from_bytes(const Bytes& bytes);

}  // namespace adaptdl::collective
