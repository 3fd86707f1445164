// Runs a credential helper, a program named `docker-credential-NAME`, using Docker's protocol.
//
// Threading: the functions may be called while other threads are running. The helper inherits standard error.
#pragma once

#include <chrono>
#include <optional>
#include <stop_token>
#include <string>

#include "image/registry/auth_file.h"

namespace adaptdl::image {

// Returns the credentials that `docker-credential-NAME get` prints for a server; nullopt if the helper stores none.
// Throws a one-line Error if the helper is missing, fails, runs longer than `patience` or prints anything else, and
// http::Stopped after a stop request.
std::optional<Credentials> ask_helper(const std::string& name, const std::string& server,
                                      std::chrono::milliseconds patience, const std::stop_token& stop = {});

// Parses a helper's output. Throws Error.
Credentials parse_helper_answer(const std::string& text);

}  // namespace adaptdl::image
