// The differences between LibTorch 1.13 and 2.x are handled here and in torch_compat.cc, and nowhere else.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Event.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace adaptdl::compat {

using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

// Returns whether this build supports NCCL.
bool has_nccl();

// How a group handles the loss of a peer.
struct Losses {
  std::atomic<bool> tolerated{false};  // if true, operations succeed after a loss, with arbitrary results
  std::atomic<bool> found{false};      // whether a tolerated loss was found
};

// Creates a group of `size` replicas that find each other through `store`. Gloo peers connect to the local address
// `gloo_address`, and must prove that they have `secret`. Gloo's all-reductions and broadcasts tolerate the loss of a
// peer according to `losses`; the first loss closes all connections, so that no peer waits for this replica.
ProcessGroupPtr make_process_group(const std::string& backend, const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                   int size, std::chrono::milliseconds timeout, const std::string& gloo_address,
                                   const std::string& secret, std::shared_ptr<Losses> losses);

// Ends the communicators of an NCCL group, which would otherwise log a warning. REQUIRES that all replicas call it and
// none has been lost.
void shut_down(const ProcessGroupPtr& group);

// Parameters by index, one vector per bucket, in the order in which the buckets are reduced.
using Buckets = std::vector<std::vector<std::size_t>>;

struct ReducerOptions {
  std::size_t first_bucket_bytes;
  std::size_t bucket_bytes;
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  std::vector<bool> sparse;                 // which parameters have sparse gradients; if empty, none
  at::ScalarType compression = at::kFloat;  // type in which gradients are summed; kFloat: the gradients' own type
};

// Returns LibTorch's initial buckets for data-parallel training, in the reverse order of registration.
Buckets initial_buckets(const std::vector<at::Tensor>& params, const ReducerOptions& options);

// A reducer and its logger. LibTorch requires the logger only for the search for unused parameters.
struct Reduction {
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};
Reduction make_reducer(const std::vector<at::Tensor>& params, const Buckets& buckets, const ProcessGroupPtr& group,
                       const ReducerOptions& options, const std::unordered_map<std::size_t, std::string>& names);

// Throws unless all replicas have the same number of parameters, with the same types and shapes. This is a collective
// call.
void verify_same_parameters(const ProcessGroupPtr& group, const std::vector<at::Tensor>& params);

// Copies each tensor in `from` to the tensor at the same index in `to`.
void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);

// Return or set the state of automatic mixed precision for this thread's operations on a type of device (CPU or CUDA).
bool autocast_enabled(at::DeviceType device);
at::ScalarType autocast_dtype(at::DeviceType device);
void set_autocast(at::DeviceType device, bool enabled, at::ScalarType dtype);

// An event in a GPU's current stream. Null on a CPU, and if LibTorch cannot measure the time between two events.
using EventPtr = std::shared_ptr<c10::Event>;
EventPtr record_event(at::Device device);
// Returns the time between two events in seconds, or nullopt until the GPU has reached both.
std::optional<double> seconds_between(const c10::Event& from, const c10::Event& to);

// Returns the optimizer's state for `param`, or null if there is none.
torch::optim::OptimizerParamState* find_state(torch::optim::Optimizer& optimizer, const at::Tensor& param);
void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& param,
               std::unique_ptr<torch::optim::OptimizerParamState> state);

}  // namespace adaptdl::compat
