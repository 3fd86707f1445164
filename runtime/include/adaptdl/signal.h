// Graceful stop of a replica, and checkpoints on request.
//
// The first SIGINT or SIGTERM only sets a flag; training goes on to the next step boundary, where all replicas agree to
// checkpoint and exit. A second SIGINT ends the process at once, as if it had no handler. More SIGTERMs change nothing:
// a launcher that means it sends SIGKILL.
//
// A process that ignored SIGINT when the handlers were installed (a background job of a shell script) goes on ignoring
// the terminal's Ctrl-C, which is not meant for it; a SIGINT that another process sends it is still a request.
//
// SIGUSR1 asks for a checkpoint at the next step boundary, after which training goes on.
//
// Threading: every function may be called from any thread; request_stop and stop_signal from a signal handler too.
#pragma once

namespace adaptdl::signal {

// Installs the handlers of SIGINT, SIGTERM and SIGUSR1 in place of the program's own. Idempotent in a process: a handler
// that the program installs later stays; a forked child installs its own. Called when a program that uses the trainer
// starts.
void install();

// The signal that asked for a stop (SIGINT or SIGTERM), or 0 if none did.
int stop_signal() noexcept;

// Asks for a graceful stop as if `signal_number` had come; the first request stays. It does not count as the first of
// two SIGINTs: the one that follows still asks, and only the one after it ends the process.
void request_stop(int signal_number) noexcept;

// Whether a SIGUSR1 has come since the last call. Several at a time are one.
bool take_save_request() noexcept;

}  // namespace adaptdl::signal
