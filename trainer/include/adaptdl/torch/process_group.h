// The replicas of a job as a process group, which is the counterpart of torch.distributed's default group.
//
// There is one group per process. init_process_group connects the replicas twice: with adaptdl's collective
// (adaptdl/collective.h) for small values, and with one of LibTorch's backends for tensors. The signal handlers for a
// graceful stop are already installed when main begins.
//
// Threading: only the training thread may call these functions.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <optional>
#include <string>

namespace c10d {
class ProcessGroup;
}

namespace adaptdl {

// Connects this process to all replicas of its job. Blocks until all of them have called it.
//
// `backend`: "gloo" or "nccl". If empty: ADAPTDL_BACKEND if that is set, else nccl if LibTorch supports it and sees a
// GPU, else gloo.
// `init_method`: how the replicas find rank 0.
// - "tcp://HOST:PORT": the address of rank 0.
// - "file:///PATH": a file that all replicas can access. Rank 0 writes its address to it (ADAPTDL_MASTER_ADDR if that
//   is set), and removes it when all replicas are connected.
// - "env://", or none: a supervisor provides the address if ADAPTDL_SUPERVISOR_URL is set; otherwise
//   ADAPTDL_MASTER_ADDR and ADAPTDL_MASTER_PORT are used.
//
// `world_size`, `rank`: by default ADAPTDL_NUM_REPLICAS and ADAPTDL_REPLICA_RANK. If given, they replace those
// variables in this process, so that all of its code agrees.
//
// Throws UsageError for invalid arguments, Error if it was called before or the scheduler's version is incompatible,
// collective::CollectiveError if the replicas do not connect, and checkpoint::CheckpointError if their checkpoints
// differ.
void init_process_group(const std::string& backend = "", const std::optional<std::string>& init_method = {},
                        std::optional<int> world_size = {}, std::optional<int> rank = {});

// Leaves the group. Blocks until all replicas have called it, so that none leaves while another still needs it. Call it
// at the end of a program that has succeeded. Does nothing if there is no group.
void destroy_process_group();

// Returns the group, for LibTorch's own collective calls. Throws Error if init_process_group was not called. After this
// call, the job changes its replicas only by a restart, because the caller may keep the group.
c10d::ProcessGroup& process_group();

// Returns the device for this replica's model and data: if LibTorch sees GPUs, GPU number rank modulo the number of
// GPUs, else the CPU. May be called before init_process_group.
c10::Device replica_device();

}  // namespace adaptdl
