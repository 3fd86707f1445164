// The errors of adaptdl.
//
// Every error that a user can act on is an `Error`, whose message is one line that names the thing and the way out. It
// is thrown where it is found and caught once, in `main`, which prints it after "error: " and exits with 1; a
// `UsageError` (a wrong option, a malformed variable) exits with 2. In a program that uses the trainer, one that is not
// caught has the same effect.
#pragma once

#include <stdexcept>

namespace adaptdl {

class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What the user gave is wrong: a command-line option, an argument of the API, an environment variable.
class UsageError : public Error {
  using Error::Error;
};

}  // namespace adaptdl
