// The supervisor: the HTTP server that replicas ask who their peers are, and tell how their training goes.
//
// One implementation for the runs of a machine and for a cluster. What it answers is docs/formats.md's protocol:
// /healthz, /discover, /generation (both as long polls), /hints, /kubeflow, and /metrics where the owner has some. It
// decides nothing: its owner sets what is answered, and hears through a listener what replicas say.
//
// Whoever can reach the port can send it anything. Every request but /healthz must prove that it is a replica's: by the
// job's token, or as WithoutToken says. Requests are bounded in size and time, hints are checked, and the
// connections are bounded in number: the one that has been idle longest makes room for a new one.
//
// Threading: a thread of its own, with all signals blocked, serves all connections. All methods may be called from any
// thread, also from the listener's; the destructor from any but the server's own.
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

// What replicas say. Called on the server's thread, and must not block.
class SupervisorListener {
 public:
  virtual ~SupervisorListener() = default;

  // The job's hints are others than before.
  virtual void hints_changed(const std::string& job_id) = 0;
  // A replica asks for its peers without a token: it is of another runtime, such as AdaptDL's Python package, that
  // knows nothing of generations. Called for each such request, before its answer.
  virtual void foreign_discovers(const std::string& job_id) = 0;
  // A replica asks for a generation after `after`: a newcomer that is ready to join, or one whose group broke. Called
  // for each such request, before its answer.
  virtual void replica_waits(const std::string& job_id, const std::string& replica_id, int after, bool broken) = 0;
  // A member of generation `after`, in which all members train, asks for the next one without waiting for it. Called for
  // each such request, before its answer.
  virtual void member_follows(const std::string& job_id, int after) = 0;
  // A program reports its progress in the format of Kubeflow, with the keys of adaptdl/progress.h (kubeflow_report.h).
  // `replica_id` is empty if the request names no replica. Called before hints_changed(), for progress that becomes a
  // hint.
  virtual void progress_reported(const std::string& job_id, const std::string& replica_id,
                                 const nlohmann::json& report) = 0;
};

// Version of the protocol that replicas are told (ADAPTDL_SCHED_VERSION). The Python package rejects other major
// versions.
inline constexpr const char* kSchedVersion = "0.0.0";

// Which requests without a token are served for a job that has one. AdaptDL's Python package sends none. A wrong token
// is refused in any case, and /generation requires the right one.
enum class WithoutToken {
  kServed,
  kServedToOwner,  // those of this process's user and of root, on connections within this machine
  kRefused,
};

struct SupervisorOptions {
  std::string address = "127.0.0.1";  // an IP address to listen on
  std::uint16_t port = 0;             // 0: a free one
  WithoutToken without_token = WithoutToken::kServed;
  // Whether requests for jobs that were not added are refused. If false, they are asked to retry until
  // set_all_jobs_known() is called, for owners that must find their jobs first.
  bool all_jobs_known = true;
  // Returns the body of the answer to GET /metrics, in Prometheus' text format. Called on the server's thread, for
  // requests with or without a token. None: there is no /metrics.
  std::function<std::string()> metrics;
  // Connections at a time, and never more than half of the files that the process may open. Beyond, the one that has
  // been idle longest is closed; if all wait for an answer, the one that has waited longest is told to ask again.
  std::size_t max_connections = 4096;
  // From the first byte of a request to its last, and for taking an answer. More serves slower networks, less frees
  // connections that trickle sooner.
  std::chrono::milliseconds request_time = std::chrono::seconds(10);
  // Without a request. Replicas open a connection a request, so this may be short.
  std::chrono::milliseconds idle_time = std::chrono::seconds(60);
};

class Supervisor {
 public:
  // Listens and serves from now on. Throws UsageError on an address that is none, and Error if the system refuses the
  // socket. `listener` must outlive it.
  Supervisor(const SupervisorOptions& options, SupervisorListener& listener);
  // Closes all connections.
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  std::uint16_t port() const;
  // "http://ADDRESS:PORT".
  std::string url() const;

  // `job_id` is namespace/name. A job that is there already gets the token and keeps all else. The methods below do
  // nothing for a job that is not there.
  void add_job(const std::string& job_id, std::optional<std::string> token = {});
  void set_all_jobs_known();
  // Restores the hints that an earlier supervisor received and hints() returned.
  void set_hints(const std::string& job_id, nlohmann::json hints);
  // Who waits is told that the job is unknown.
  void remove_job(const std::string& job_id);

  // What /discover answers to those who ask for this group: addresses by rank. Other groups wait.
  void set_addresses(const std::string& job_id, int group, std::vector<std::string> addresses);
  // What /generation answers to those who ask for one after an earlier number.
  void set_generation(const std::string& job_id, Generation generation);
  // From now on there is none, so that numbers can begin anew: before the whole job is restarted.
  void clear_generation(const std::string& job_id);

  // All that the job said so far, merged: an object without nulls. Empty if it said nothing or is not there. Progress
  // in the format of Kubeflow is among the hints, as `progress` of `targetProgress`, as long as the job sends no hints.
  nlohmann::json hints(const std::string& job_id) const;

 private:
  class Server;
  std::unique_ptr<Server> server_;
};

}  // namespace adaptdl::sched
