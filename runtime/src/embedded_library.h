// Shared libraries that are embedded in the executable file of the command. A solver and its dependencies are loaded
// only when they are first needed, instead of at every start of the command, which is still a single file.
//
// Threading: may be called from any thread. Lifetime: a library stays loaded until the process ends.
#pragma once

#include <string_view>

namespace adaptdl {

struct EmbeddedLibrary {
  std::string_view bytes;
  const char* purpose;  // purpose of its function, for the error message: "integer programs"
  const char* package;  // package to install, and how, for the error message
};

// Loads the library and returns its function `name`. Throws Error if that fails, as when a dependency is missing.
void* load_function(const EmbeddedLibrary& library, const char* name);

}  // namespace adaptdl
