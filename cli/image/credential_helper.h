// Asks a credential helper: a program `docker-credential-NAME`, as Docker runs it.
//
// Threading: may be called while other threads run. The helper's standard error is the user's.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

#include "image/auth_file.h"

namespace adaptdl::image {

// What `docker-credential-NAME get` answers for a server; null if it has none for that. Throws Error in one line: it is
// missing, fails, runs for longer than `patience` or until a stop, or prints something else.
std::optional<Credentials> ask_helper(const std::string& name, const std::string& server,
                                      std::chrono::milliseconds patience, const std::stop_token& stop = {});

// What is in such an answer. Throws Error.
Credentials parse_helper_answer(const std::string& text);

}  // namespace adaptdl::image
