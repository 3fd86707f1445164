// What others ask of a run while it goes on: how it is getting on, and to change, save or end it.
//
// A socket, readable and writable by this user alone, takes one request a connection: a line of JSON, answered by a
// line of JSON. {"request": "status"} is answered at once with what was published last. The others are handed to the
// launcher, who answers them when it has done them, or cannot: {"request": "resize", "min": 1, "max": 4},
// {"request": "share", ...} (run_share.h), {"request": "checkpoint"}, {"request": "stop"}, {"request": "kill"}; answers
// are {"ok": true, ...} or {"ok": false, "why": SENTENCE}. Input that makes no sense is refused and costs the run
// nothing.
//
// Threading: the socket and the record are served by a thread of their own, with all signals blocked. All functions are
// called by the launcher's one thread, and only finish() and discard() wait for the disk. A RunRequest may be answered
// by any thread, and must not outlive its RunControl.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "local/run_record.h"
#include "local/run_share.h"
#include "local/run_status.h"

namespace adaptdl::sched {

class RunControlServer;

// A request that waits for its answer. One that is dropped without any is refused with "the run ended before that".
class RunRequest {
 public:
  enum class Kind { kResize, kShare, kCheckpoint, kStop, kKill };

  Kind kind = Kind::kStop;
  int min = 0, max = 0;  // of kResize: 1 <= min <= max
  RunShare share;        // of kShare

  // Answers that it was done; `more`: further fields of the answer, such as {"path": ...} of a checkpoint.
  void accept(const nlohmann::json& more = nlohmann::json::object());
  // Answers that it was not, and why, in a sentence without a full stop.
  void refuse(const std::string& why);

  RunRequest(RunRequest&&) noexcept;
  RunRequest& operator=(RunRequest&&) noexcept;
  ~RunRequest();

 private:
  friend class RunControlServer;
  struct Answer;
  RunRequest(Kind which, std::unique_ptr<Answer> answer);
  void answer(const nlohmann::json& text) noexcept;

  std::unique_ptr<Answer> answer_;  // none: it was answered
};

class RunControl {
 public:
  // Keeps `record` from now on, and writes `status` to it. Throws Error if that, or the socket, cannot be made; a new
  // record is removed then.
  RunControl(RunRecord record, RunStatus status);
  // Ends as finish() does, with the last status.
  ~RunControl();
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  // Starts to answer; until then, who asks waits. To be called once whatever forks without an exec has been started.
  void serve();

  // Readable when requests wait.
  int fd() const noexcept;
  // The requests that came since the last call.
  std::vector<RunRequest> take();

  // What is published: to be changed and then published again.
  RunStatus& status() noexcept { return status_; }
  const RunRecord& record() const noexcept { return record_; }
  // From now on this is what is answered. It is written to the record soon: at once if more than the progress changed.
  void publish();
  // The same, and returns once it is written. To be called when the run has ended: nobody is answered any more.
  void finish();
  // The same, but leaves no record, as if there had been no run; unless an earlier run had it.
  void discard();

 private:
  RunRecord record_;
  bool fresh_;  // no earlier run had the record
  RunStatus status_;
  std::unique_ptr<RunControlServer> server_;
};

}  // namespace adaptdl::sched
