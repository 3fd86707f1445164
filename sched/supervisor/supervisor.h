// An HTTP server that sends replicas the addresses of their peers and receives reports about their training.
//
// It is used for local runs and in clusters. docs/formats.md describes its protocol: /healthz, /discover and
// /generation (both as long polls), /hints, /kubeflow, and /metrics if the owner provides metrics. It makes no
// decisions: the owner sets the answers, and receives the replicas' reports through a listener.
//
// Any process that can reach the port can send requests. Except for /healthz and /metrics, a request must prove that it
// is from a replica, either with the job's token or in a way that WithoutToken allows. Requests are limited in size and
// time, and hints are checked. The number of connections is limited; if necessary, the connection that has been idle
// longest is closed to make room for a new one.
//
// Threading: a dedicated thread, with all signals blocked, serves all connections and calls the listener. All methods
// may be called from any thread, including the server's thread, but the destructor must not be called on the server's
// thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/generation.h"

namespace adaptdl::sched {

using generation::Generation;
using GenerationMember = generation::Member;

// Receives the replicas' reports. The methods are called on the server's thread and must not block.
class SupervisorListener {
 public:
  virtual ~SupervisorListener() = default;

  // The job's hints have changed.
  virtual void hints_changed(const std::string& job_id) = 0;
  // A replica requests its peers without a token, because it uses another runtime that does not support generations,
  // such as AdaptDL's Python package. Called for each such request before it is answered.
  virtual void foreign_discovers(const std::string& job_id) = 0;
  // A replica requests a generation later than `after`: a newcomer that is ready to join, or a member whose group broke
  // (`broken`). Called for each such request before it is answered.
  virtual void replica_waits(const std::string& job_id, const std::string& replica_id, int after, bool broken) = 0;
  // A member of generation `after`, in which all members are training, requests the next generation while it continues
  // to train. Called for each such request before it is answered.
  virtual void member_follows(const std::string& job_id, int after) = 0;
  // A program reports its progress in Kubeflow's format. `report` contains keys from adaptdl/progress.h (see
  // kubeflow_report.h). `replica_id` is empty if the request names no replica. Called before hints_changed() if the
  // progress becomes a hint.
  virtual void progress_reported(const std::string& job_id, const std::string& replica_id,
                                 const nlohmann::json& report) = 0;
};

// The protocol version, which replicas receive in ADAPTDL_SCHED_VERSION. AdaptDL's Python package rejects other major
// versions.
inline constexpr const char* kSchedVersion = "0.0.0";

// Which requests without a token are accepted for a job that has one. AdaptDL's Python package sends no token. A wrong
// token is always refused, and /generation and /kubeflow require the correct token.
enum class WithoutToken {
  kServed,
  kServedToOwner,  // if sent by this process's user or root, on connections within this machine
  kRefused,
};

struct SupervisorOptions {
  std::string address = "127.0.0.1";  // an IP address to listen on
  std::uint16_t port = 0;             // 0: any free port
  WithoutToken without_token = WithoutToken::kServed;
  // Whether requests for jobs that were not added are refused. If false, clients are asked to retry until
  // set_all_jobs_known() is called, so that the owner can find its jobs first.
  bool all_jobs_known = true;
  // Returns the body of the answer to GET /metrics, in Prometheus' text format. Called on the server's thread, for
  // requests with or without a token. If the function is empty, there is no /metrics.
  std::function<std::string()> metrics;
  // Maximum number of connections, which is also limited to half of the files that the process may open. If there are
  // more, the connection that has been idle longest is closed or, if all are waiting for answers, the client that has
  // waited longest is asked to retry.
  std::size_t max_connections = 4096;
  // Time limit from the first byte of a request to its last, and for sending an answer. A longer limit tolerates slower
  // networks; a shorter one closes slow connections sooner.
  std::chrono::milliseconds request_time = std::chrono::seconds(10);
  // Time limit for a connection without a request. A short limit suffices, because replicas open a connection for each
  // request.
  std::chrono::milliseconds idle_time = std::chrono::seconds(60);
};

class Supervisor {
 public:
  // Starts listening and serving. Throws UsageError if the address is not an IP address, and Error if the socket cannot
  // be opened. `listener` must outlive the supervisor.
  Supervisor(const SupervisorOptions& options, SupervisorListener& listener);
  // Closes all connections.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  std::uint16_t port() const;
  // Returns "http://ADDRESS:PORT".
  std::string url() const;

  // `job_id` is namespace/name. If the job has already been added, only its token is replaced. The methods below do
  // nothing for jobs that have not been added.
  void add_job(const std::string& job_id, std::optional<std::string> token = {});
  void set_all_jobs_known();
  // Restores the hints that an earlier supervisor received and hints() returned.
  void set_hints(const std::string& job_id, nlohmann::json hints);
  // Removes the job. Requests that are waiting for it are answered in the same way as requests for an unknown job.
  void remove_job(const std::string& job_id);

  // Sets the answer to /discover requests for this group: addresses by rank. Requests for other groups wait.
  void set_addresses(const std::string& job_id, int group, std::vector<std::string> addresses);
  // Sets the current generation, which is the answer to all /generation requests that name an earlier generation.
  void set_generation(const std::string& job_id, Generation generation);
  // Removes the generation, so that numbers can start again from the beginning after a restart of the whole job.
  void clear_generation(const std::string& job_id);

  // Returns all hints that the job has sent, merged into an object without nulls; empty if there are none. As long as
  // the job sends no hints, the progress that it reports in Kubeflow's format is returned as the hints `progress` and
  // `targetProgress`.
  nlohmann::json hints(const std::string& job_id) const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace adaptdl::sched
