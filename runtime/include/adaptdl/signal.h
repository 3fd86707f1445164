// Graceful stop of a replica, and checkpoints on request.
//
// The first SIGINT or SIGTERM only sets a flag; training continues to the next step boundary, where all replicas agree
// to save a checkpoint and exit. A second SIGINT ends the process immediately, as if there were no handler. Further
// SIGTERMs have no effect; a launcher that wants to force the exit sends SIGKILL.
//
// A process that ignored SIGINT when the handlers were installed (a background job of a shell script) continues to
// ignore the terminal's Ctrl-C, which is not meant for it. A SIGINT from another process still requests a stop.
//
// SIGUSR1 requests a checkpoint at the next step boundary. Training continues after the checkpoint.
//
// Threading: all functions may be called from any thread; request_stop and stop_signal also from a signal handler.
#pragma once

namespace adaptdl::signal {

// Installs handlers for SIGINT, SIGTERM and SIGUSR1, replacing the program's own. Later calls in the same process have
// no effect, so a handler that the program installs afterwards stays in place; a call in a forked child installs them
// again. The trainer calls this function when the program starts.
void install();

// Returns the signal that requested a stop (SIGINT or SIGTERM), or 0 if there was none.
int stop_signal() noexcept;

// Requests a graceful stop as if `signal_number` had been received; only the first request takes effect. This request
// is not counted as the first of two SIGINTs: the next SIGINT is still a request, and only the one after that ends the
// process.
void request_stop(int signal_number) noexcept;

// Returns whether SIGUSR1 has been received since the last call.
bool take_save_request() noexcept;

}  // namespace adaptdl::signal
