// The logs of all replicas of a job as one: in the order of their times, over restarts and changes of size.
//
// Each replica's log is a stream of its own, read at the same time. Lines are put in order by the times that the nodes
// gave them; while a log is followed, a line waits a moment for older ones of other replicas, not for ever.
//
// Threading: read_job_logs calls its sinks in the calling thread alone. Memory is bounded by LogStream::kFull a
// replica.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/client.h"
#include "kube/job.h"

namespace adaptdl::kube {

struct JobLogsQuery {
  std::string name_space, job;
  std::optional<int> rank;                    // only that replica
  std::optional<std::chrono::seconds> since;  // not older
  std::optional<int> tail;                    // of each replica that is there, at most so many lines
  bool previous = false;                      // of the containers before the present ones; they are over
  bool follow = false;                        // until the job ends, or is deleted
  bool until_suspended = false;               // with `follow`: or until it is suspended and its replicas have ended
};

struct JobLogsSinks {
  // A line without its end, and when it was written. False: no more is wanted.
  std::function<bool(const Replica& replica, Time time, std::string_view line)> line;
  // Nothing more waits at the moment: what was buffered is to be shown. False: no more is wanted.
  std::function<bool()> flush;
  // What is to be said besides, as that the cluster is out of reach.
  std::function<void(const std::string& text)> notice;
};

// There is nothing to show, and nothing to come.
class NoLogs : public Error {
 public:
  using Error::Error;
};

// Throws NoLogs, and as Client does.
void read_job_logs(Client& client, const JobLogsQuery& query, std::stop_token stop, const JobLogsSinks& sinks);

}  // namespace adaptdl::kube
