// The errors of adaptdl.
//
// Every error that a user can act on is an `Error`, whose message is one line that states what is wrong and what to do.
// Errors are caught only in `main`, which prints the message after "error: " and exits with 1, or with 2 for a
// `UsageError` (an invalid option, a malformed variable). In a program that uses the trainer, an uncaught error has the
// same effect.
#pragma once

#include <stdexcept>

namespace adaptdl {

class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The user's input is wrong: a command-line option, an API argument, or an environment variable.
class UsageError : public Error {
  using Error::Error;
};

}  // namespace adaptdl
