// The process group of a job's replicas, which is the counterpart of torch.distributed's default group.
//
// There is one group per process. init_process_group connects the replicas twice: with adaptdl's collective
// (adaptdl/collective.h) for small values, and with a LibTorch backend for tensors. The signal handlers for a graceful
// stop are already installed when main begins.
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

// Connects this process to all replicas of its job. Blocks until all replicas have called this function.
//
// `backend`: "gloo" or "nccl". If empty, ADAPTDL_BACKEND selects the backend. If that is not set, the backend is nccl
// if LibTorch supports it and sees a GPU, and gloo otherwise.
// `init_method`: how the replicas find rank 0.
// - "tcp://HOST:PORT": the address of rank 0.
// - "file:///PATH": a file that all replicas can access. Rank 0 writes its address to it (ADAPTDL_MASTER_ADDR if that
//   is set), and removes it when all replicas are connected.
// - "env://", or no value: a supervisor provides the address if ADAPTDL_SUPERVISOR_URL is set; otherwise
//   ADAPTDL_MASTER_ADDR and ADAPTDL_MASTER_PORT are used.
//
// `world_size`, `rank`: by default ADAPTDL_NUM_REPLICAS and ADAPTDL_REPLICA_RANK. If given, they replace these
// environment variables in the whole process.
//
// Throws UsageError for invalid arguments, Error if the function was called before or if the scheduler's version is
// incompatible, collective::CollectiveError if the replicas do not connect, and checkpoint::CheckpointError if their
// checkpoints differ.
void init_process_group(const std::string& backend = "", const std::optional<std::string>& init_method = {},
                        std::optional<int> world_size = {}, std::optional<int> rank = {});

// Leaves the group. Blocks until all replicas have called this function, so that no replica leaves while another still
// needs it. Call it at the end of a successful program. Does nothing if there is no group.
void destroy_process_group();

// Returns the group, for LibTorch's own collective calls. Throws Error if init_process_group was not called. After this
// call, the job's replicas can change only through a restart, because the caller may keep the group.
c10d::ProcessGroup& process_group();

// Returns the device for this replica's model and data: if LibTorch sees GPUs, the GPU with the number `rank` modulo
// the number of GPUs; otherwise, the CPU. May be called before init_process_group.
c10::Device replica_device();

}  // namespace adaptdl
