// A replica's environment: the ADAPTDL_* variables. Each call reads its variable again. If the variable is unset or
// empty, the default applies.
//
// The variables include those of AdaptDL 0.2, so that a program runs unchanged under `adaptdl run`, by hand, and in a
// cluster. Errors: a malformed or out-of-range value throws UsageError, which names the variable, its value and the
// values it accepts. Threading: any thread may call these functions as long as no thread
// changes the environment.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace adaptdl::env {

// ADAPTDL_CHECKPOINT_PATH: checkpoint directory. If unset, nothing is saved or loaded.
std::optional<std::string> checkpoint_path();

// ADAPTDL_SHARE_PATH: directory that all replicas of the job share, for datasets and artifacts.
std::optional<std::string> share_path();

// ADAPTDL_JOB_ID: the job as `namespace/name`, part of the supervisor's URLs. Unset in a standalone run.
std::optional<std::string> job_id();

// ADAPTDL_MASTER_ADDR: host name or address of the replica with rank 0. Default "0.0.0.0".
std::string master_addr();

// ADAPTDL_MASTER_PORT: port on which rank 0 accepts its peers, 0..65535. The default, 0, means any free port, which
// works only for a single replica.
int master_port();

// ADAPTDL_REPLICA_RANK: rank of this replica, 0 <= rank < num_replicas(). Default 0.
int replica_rank();

// ADAPTDL_NUM_NODES: number of distinct nodes that the job uses, 1..num_replicas(). Default num_replicas().
int num_nodes();

// ADAPTDL_NUM_REPLICAS: number of the job's replicas, >= 1. Default 1.
int num_replicas();

// Sets the values that replica_rank(), num_nodes() and num_replicas() return from now on, regardless of the variables;
// used after the group of a running replica has changed. Other threads may call those functions at the same time.
// REQUIRES 0 <= rank < replicas, 1 <= nodes <= replicas.
void set_membership(int rank, int replicas, int nodes) noexcept;

// ADAPTDL_NUM_RESTARTS: number of times the job's processes have been restarted, >= 0. Default 0. This number is also
// the group in discovery requests (supervisor.h).
int num_restarts();

// ADAPTDL_SUPERVISOR_URL: base URL of the supervisor. If unset, there is no supervisor.
std::optional<std::string> supervisor_url();

// ADAPTDL_SUPERVISOR_TOKEN: the job's secret. It is sent to the supervisor as `Authorization: Bearer`, and replicas
// prove to each other that they know it. If unset, no token is sent, and replicas do not authenticate each other.
std::optional<std::string> supervisor_token();

// ADAPTDL_SCHED_VERSION: semantic version of the scheduler. Unset if there is none.
std::optional<std::string> sched_version();

// ADAPTDL_TENSORBOARD_LOGDIR: directory below which the job writes events, in a subdirectory named after the job. If
// unset, no events are written.
std::optional<std::string> tensorboard_logdir();

// ADAPTDL_REPLICA_ID: identity of this replica, which remains the same when its rank changes. Unset if the replica has
// no identity.
std::optional<std::string> replica_id();

// ADAPTDL_GENERATION: the generation in which this replica starts, >= 0. Default 0.
int generation();

// ADAPTDL_CHECKPOINT_EVERY: time between periodic checkpoints, in the format of parse_duration. Default 5 minutes; with
// 0, checkpoints are saved only on request. With a shorter interval, a crash loses less work, but more time is spent on
// writing.
std::chrono::milliseconds checkpoint_every();

// ADAPTDL_CHECKPOINT_KEEP: how many of the newest checkpoints to keep, >= 1. Default 2.
int checkpoint_keep();

// ADAPTDL_BACKEND: backend of LibTorch's process group, "gloo" or "nccl". If unset, the backend depends on the device.
std::optional<std::string> backend();

// ADAPTDL_RAY: "1" in a job that `adaptdl submit --ray` started, for which from_ray() returns true. Default false.
bool from_ray();

// ADAPTDL_STATUS_FD: open file descriptor to which this process writes its progress for the launcher. If unset,
// progress is not reported.
std::optional<int> status_fd();

// ADAPTDL_RESULTS_FILE: file to which report() (adaptdl/report.h) appends results. If unset, no results are written.
std::optional<std::string> results_file();

// ADAPTDL_COLLECTIVE_TIMEOUT: maximum time that a collective call waits for a peer, > 0. Default 30 minutes.
std::chrono::milliseconds collective_timeout();

// ADAPTDL_CONNECT_TIMEOUT: maximum time that the replicas of a starting job wait for each other, > 0. Default 5
// minutes.
std::chrono::milliseconds connect_timeout();

// Parses a duration: a number followed by ms, s, m, h or d ("90s", "1.5h"); a number without a unit is in seconds. The
// result is rounded up to whole milliseconds, and must not exceed 100 years. Throws UsageError on anything else,
// including negative values; the message refers to the option or variable as `what`.
std::chrono::milliseconds parse_duration(const std::string& text, const std::string& what);

}  // namespace adaptdl::env
