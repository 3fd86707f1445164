// Merges the logs of a job's replicas by timestamp, across restarts and rescaling.
//
// The replicas' logs are streamed concurrently. Lines are ordered by the nodes' timestamps. While logs are followed, a
// line waits for older lines from other replicas, but only for a moment.
//
// Threading: read_job_logs calls its sinks only in the calling thread. It buffers about LogStream::kFull per replica.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/api/client.h"
#include "kube/jobs/job.h"

namespace adaptdl::kube {

struct JobLogsQuery {
  std::string name_space, job;
  std::optional<int> rank;                    // only the replica of this rank
  std::optional<std::chrono::seconds> since;  // maximum age of lines
  std::optional<int> tail;                    // maximum number of lines for each replica that exists at the start
  bool previous = false;                      // show the logs of the previous containers, which have ended
  bool follow = false;                        // read until the job ends or is deleted
  bool until_suspended = false;               // with `follow`: also stop once the job is suspended and has no replicas
};

struct JobLogsSinks {
  // Receives a line without its line break, and the line's time. Return false to stop reading.
  std::function<bool(const Replica& replica, Time time, std::string_view line)> line;
  // Called when no more lines are ready, so that buffered lines can be shown. Return false to stop reading.
  std::function<bool()> flush;
  // Receives other messages, for example that the cluster is unreachable.
  std::function<void(const std::string& text)> notice;
};

// Thrown if there are no logs and none will follow.
class NoLogs : public Error {
 public:
  using Error::Error;
};

// Throws NoLogs, and the same errors as Client.
void read_job_logs(Client& client, const JobLogsQuery& query, std::stop_token stop, const JobLogsSinks& sinks);

}  // namespace adaptdl::kube
