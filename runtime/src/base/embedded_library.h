// Shared libraries that are embedded in the command's executable, so that the command is a single file. A solver and
// its dependencies are loaded only when they are first needed, not at every start of the command.
//
// Threading: the function may be called from any thread. Lifetime: a library stays loaded until the process ends.
#pragma once

#include <string_view>

namespace adaptdl {

struct EmbeddedLibrary {
  std::string_view bytes;
  const char* purpose;  // what the library is used for, for the error message: "integer programs"
  const char* package;  // which package to install, and how, for the error message
};

// Loads the library and returns its function `name`. Throws Error if that fails, for example because a dependency is
// missing.
void* load_function(const EmbeddedLibrary& library, const char* name);

}  // namespace adaptdl
