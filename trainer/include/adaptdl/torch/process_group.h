// The replicas of a job as a process group: the counterpart of torch.distributed's default group.
//
// There is one group a process. init_process_group connects the replicas twice: adaptdl's collective
// (adaptdl/collective.h) for small values, and one of LibTorch's backends for tensors. It also installs the signal
// handlers of a graceful stop.
//
// Threading: called by the training thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <string>

namespace c10d {
class ProcessGroup;
}

namespace adaptdl {

// Connects this process to all replicas of its job; blocks until all of them have called it.
//
// `backend`: "gloo" or "nccl"; empty: ADAPTDL_BACKEND if that is set, else nccl where LibTorch has it and a GPU is
// there for this replica, else gloo.
// `init_method`: how the replicas find rank 0.
// - "tcp://HOST:PORT": its address.
// - "file:///PATH": a file that all replicas see, in which it writes its address (ADAPTDL_MASTER_ADDR if that is set),
//   and which it removes when all are connected.
// - "env://", or nothing: a supervisor is asked if ADAPTDL_SUPERVISOR_URL is set; else ADAPTDL_MASTER_ADDR and
//   ADAPTDL_MASTER_PORT are used.
//
// `world_size`, `rank`: without them, ADAPTDL_NUM_REPLICAS and ADAPTDL_REPLICA_RANK. If they are given, they replace
// those variables in this process, so that everything in it agrees.
//
// Throws UsageError on arguments that make no sense, Error if it was called before or if the scheduler's version does
// not fit, collective::CollectiveError if the replicas do not find each other, checkpoint::CheckpointError if they
// start from different checkpoints.
void init_process_group(const std::string& backend = "", const std::optional<std::string>& init_method = {},
                        std::optional<int> world_size = {}, std::optional<int> rank = {});

// Leaves the group; blocks until all replicas have called it, so that none goes while another still needs it. Call it
// at the end of a program that has ended well. Does nothing if there is no group.
void destroy_process_group();

// The group, for LibTorch's own collective calls. Throws Error, which says to call init_process_group, if there is
// none.
c10d::ProcessGroup& process_group();

// The device for this replica's model and data: a GPU if LibTorch sees one (GPU number rank modulo the number of GPUs),
// else the CPU. May be called before init_process_group.
c10::Device replica_device();

}  // namespace adaptdl
