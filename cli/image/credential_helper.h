// Runs a credential helper, a program `docker-credential-NAME`, with Docker's protocol.
//
// Threading: may be called while other threads run. The helper inherits standard error.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

#include "image/auth_file.h"

namespace adaptdl::image {

// Returns the answer of `docker-credential-NAME get` for a server; null if it has none. Throws Error in one line if the
// helper is missing, fails, runs longer than `patience` or prints anything else; http::Stopped at a stop.
std::optional<Credentials> ask_helper(const std::string& name, const std::string& server,
                                      std::chrono::milliseconds patience, const std::stop_token& stop = {});

// Parses such an answer. Throws Error.
Credentials parse_helper_answer(const std::string& text);

}  // namespace adaptdl::image
