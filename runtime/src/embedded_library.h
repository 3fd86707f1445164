// Shared libraries whose bytes are part of the command's own file. A solver and all that it is linked with are then
// loaded when something first needs them, instead of at every start of the command, which remains a single file.
//
// Functions may be called from any thread. A library stays loaded until the process ends.
#pragma once

#include <string_view>

namespace adaptdl {

struct EmbeddedLibrary {
  std::string_view bytes;
  const char* purpose;  // of its function, for the error: "integer programs"
  const char* package;  // what must be installed, and how
};

// Loads the library and returns its function `name`. Throws Error if a library that it is linked with is missing.
void* load_function(const EmbeddedLibrary& library, const char* name);

}  // namespace adaptdl
