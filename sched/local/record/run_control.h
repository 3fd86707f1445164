// RunControl lets other processes query the status of an active run, and request that it change its size or share, save
// a checkpoint or end.
//
// A socket that only this user can read and write accepts one request per connection. The request and the answer are
// each a line of JSON. {"request": "status"} is answered immediately with the last published status. The other requests
// are passed to the launcher, which answers each request once it has carried out the request or found that it cannot:
// {"request": "resize", "min": 1, "max": 4}, {"request": "share", ...} (run_share.h), {"request": "checkpoint"},
// {"request": "stop"}, {"request": "kill"}. Answers are {"ok": true, ...} or {"ok": false, "why": SENTENCE}. Invalid
// input is refused and does not affect the run.
//
// Threading: a separate thread, which blocks all signals, handles the socket and the record. All functions must be
// called on the launcher's main thread; only finish() and discard() wait for the disk. A RunRequest may be answered on
// any thread, and must not outlive its RunControl.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "local/devices/run_share.h"
#include "local/record/run_record.h"
#include "local/record/run_status.h"

namespace adaptdl::sched {

class RunControlServer;

// A request that is waiting for its answer. If it is destroyed without an answer, it is refused with "it ended before
// the request was done".
class RunRequest {
 public:
  enum class Kind { kResize, kShare, kCheckpoint, kStop, kKill };

  Kind kind = Kind::kStop;
  int min = 0, max = 0;  // for kResize: 1 <= min <= max
  RunShare share;        // for kShare

  // Answers that the request was carried out. `more` contains additional fields, such as {"path": ...} for a
  // checkpoint.
  void accept(const nlohmann::json& more = nlohmann::json::object());
  // Answers that the request was not carried out. `why` is a sentence without a full stop.
  void refuse(const std::string& why);

  RunRequest(RunRequest&&) noexcept;
  RunRequest& operator=(RunRequest&&) noexcept;
  ~RunRequest();

 private:
  friend class RunControlServer;
  struct Answer;
  RunRequest(Kind which, std::unique_ptr<Answer> answer);
  void answer(const nlohmann::json& text) noexcept;

  std::unique_ptr<Answer> answer_;  // null once the request has been answered
};

class RunControl {
 public:
  // Takes over `record`, and writes `status` to it. Throws Error if that fails or the socket cannot be created; a new
  // record is removed in that case.
  RunControl(RunRecord record, RunStatus status);
  // Calls finish() with the last status.
  ~RunControl();
  RunControl(const RunControl&) = delete;
  RunControl& operator=(const RunControl&) = delete;

  // Starts to answer requests; earlier requests wait until then. Must be called after every fork that is not followed
  // by an exec.
  void serve();

  // Returns a descriptor that is readable when requests are waiting.
  int fd() const noexcept;
  // Returns the requests that arrived since the last call.
  std::vector<RunRequest> take();

  // The status to publish: change it, then call publish().
  RunStatus& status() noexcept { return status_; }
  const RunRecord& record() const noexcept { return record_; }
  // Makes the current status() the answer to status requests. The status is also written to the record, within a
  // second, or immediately if the state, its reason, the current or target number of replicas, or the number of
  // restarts changed.
  void publish();
  // Writes the status to the record before it returns, and stops answering. Must be called when the run has ended.
  void finish();
  // Like finish(), but removes the record, as if there had been no run, unless the record was taken over from an
  // earlier run.
  void discard();

 private:
  RunRecord record_;
  bool fresh_;  // the record was not taken over from an earlier run
  RunStatus status_;
  std::unique_ptr<RunControlServer> server_;
};

}  // namespace adaptdl::sched
