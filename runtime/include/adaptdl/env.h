// The environment of a replica: every ADAPTDL_* variable, read at each call, with its default when unset or empty.
//
// The variables are those of AdaptDL 0.2, so that a program runs unchanged under `adaptdl run`, by hand, and in a
// cluster. Errors: a malformed or out-of-range value throws UsageError, which names the variable, its value and what it
// takes. Threading: safe as long as no thread changes the environment.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace adaptdl::env {

// ADAPTDL_CHECKPOINT_PATH: directory of checkpoints. Unset: nothing is saved or loaded.
std::optional<std::string> checkpoint_path();

// ADAPTDL_SHARE_PATH: directory that all replicas of the job share, for data sets and artifacts.
std::optional<std::string> share_path();

// ADAPTDL_JOB_ID: the job as `namespace/name`, part of the supervisor's URLs. Unset: a standalone run.
std::optional<std::string> job_id();

// ADAPTDL_MASTER_ADDR: host name or address of the replica of rank 0. Default "0.0.0.0".
std::string master_addr();

// ADAPTDL_MASTER_PORT: port on which rank 0 accepts its peers, 0..65535. Default 0: a free one, of use to one replica
// only.
int master_port();

// ADAPTDL_REPLICA_RANK: rank of this replica, 0 <= rank < num_replicas(). Default 0.
int replica_rank();

// ADAPTDL_NUM_NODES: distinct nodes of the job, 1..num_replicas(). Default num_replicas().
int num_nodes();

// ADAPTDL_NUM_REPLICAS: replicas of the job, >= 1. Default 1.
int num_replicas();

// What the three above say from now on, whatever the variables do: for a replica whose group changed while it runs.
// Callable while other threads ask. REQUIRES 0 <= rank < replicas, 1 <= nodes <= replicas.
void set_membership(int rank, int replicas, int nodes) noexcept;

// ADAPTDL_NUM_RESTARTS: how often the job's processes were restarted, >= 0. Default 0. It names the discovery group.
int num_restarts();

// ADAPTDL_SUPERVISOR_URL: base URL of the supervisor. Unset: none.
std::optional<std::string> supervisor_url();

// ADAPTDL_SUPERVISOR_TOKEN: the job's secret. It is sent to the supervisor as `Authorization: Bearer`, and replicas
// prove to each other that they have it. Unset: none is sent, and nothing is proved.
std::optional<std::string> supervisor_token();

// ADAPTDL_SCHED_VERSION: version of the scheduler, as semantic version. Unset: none.
std::optional<std::string> sched_version();

// ADAPTDL_TENSORBOARD_LOGDIR: a job writes events below it, in a directory of its own name. Unset: none.
std::optional<std::string> tensorboard_logdir();

// ADAPTDL_REPLICA_ID: identity of this replica over changes of rank. Unset: none.
std::optional<std::string> replica_id();

// ADAPTDL_GENERATION: the generation in which this replica starts, >= 0. Default 0.
int generation();

// ADAPTDL_CHECKPOINT_EVERY: time between periodic checkpoints, a duration as parse_duration takes it. Default 5
// minutes; 0 means none but those on request. Shorter loses less work at a crash and spends more time writing.
std::chrono::milliseconds checkpoint_every();

// ADAPTDL_CHECKPOINT_KEEP: how many of the newest checkpoints are kept, >= 1. Default 2.
int checkpoint_keep();

// ADAPTDL_BACKEND: the backend of LibTorch's process group, "gloo" or "nccl". Unset: chosen by device.
std::optional<std::string> backend();

// ADAPTDL_STATUS_FD: open file descriptor on which the launcher listens for progress. Unset: none listens.
std::optional<int> status_fd();

// ADAPTDL_RESULTS_FILE: file to which report() (adaptdl/report.h) appends results. Unset: none are kept.
std::optional<std::string> results_file();

// ADAPTDL_COLLECTIVE_TIMEOUT: none of the collective calls waits longer than this for a peer; above 0.
// Default 30 minutes.
std::chrono::milliseconds collective_timeout();

// A duration as users write it: a number followed by ms, s, m, h or d ("90s", "1.5h"); a bare number is seconds.
// Rounded up to whole milliseconds; 100 years at most. `what` names the option or variable in the error. Throws
// UsageError on anything else and on negative values.
std::chrono::milliseconds parse_duration(const std::string& text, const std::string& what);

}  // namespace adaptdl::env
