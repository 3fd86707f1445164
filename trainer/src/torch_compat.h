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

// Whether this build has the NCCL backend.
bool has_nccl();

// What happens to a group when a peer is lost.
struct Losses {
  std::atomic<bool> tolerated{false};  // operations then succeed, with arbitrary contents in their tensors
  std::atomic<bool> found{false};      // whether a loss was found while tolerated
};

// Creates a group of `size` replicas that find each other by `store`. Gloo's peers connect to the local address
// `gloo_address`, and must prove that they have `secret`. Gloo's all-reductions and broadcasts tolerate the loss of a
// peer according to `losses`; the first loss closes all connections, so that no peer waits for this replica.
ProcessGroupPtr make_process_group(const std::string& backend, const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                   int size, std::chrono::milliseconds timeout, const std::string& gloo_address,
                                   const std::string& secret, std::shared_ptr<Losses> losses);

// Ends the communicators of an NCCL group, which warns otherwise. REQUIRES that all replicas call it and none was lost.
void shut_down(const ProcessGroupPtr& group);

// Parameters by index, one vector per bucket, in the order in which the buckets are reduced.
using Buckets = std::vector<std::vector<std::size_t>>;

struct ReducerOptions {
  std::size_t first_bucket_bytes;
  std::size_t bucket_bytes;
  bool find_unused_parameters;
  bool gradient_as_bucket_view;
  std::vector<bool> sparse;  // which parameters get sparse gradients; empty: none
  at::ScalarType compression = at::kFloat;  // the type in which gradients are summed; kFloat: their own
};

// The buckets with which LibTorch's own data parallel starts: in the reverse order of registration.
Buckets initial_buckets(const std::vector<at::Tensor>& params, const ReducerOptions& options);

// The logger is needed only for the search for unused parameters, where LibTorch expects one.
struct Reduction {
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
};
Reduction make_reducer(const std::vector<at::Tensor>& params, const Buckets& buckets, const ProcessGroupPtr& group,
                       const ReducerOptions& options, const std::unordered_map<std::size_t, std::string>& names);

// Throws unless all replicas have the same number of parameters, of the same types and shapes. A collective call.
void verify_same_parameters(const ProcessGroupPtr& group, const std::vector<at::Tensor>& params);

// Copies each tensor of `from` to the one at the same index of `to`.
void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from);

// The state of automatic mixed precision for this thread's operations on a type of device, CPU or CUDA.
bool autocast_enabled(at::DeviceType device);
at::ScalarType autocast_dtype(at::DeviceType device);
void set_autocast(at::DeviceType device, bool enabled, at::ScalarType dtype);

// An event in the current stream of a GPU; null on a CPU, and where LibTorch cannot measure the time between two.
using EventPtr = std::shared_ptr<c10::Event>;
EventPtr record_event(at::Device device);
// The seconds between two events; nullopt until both have passed.
std::optional<double> seconds_between(const c10::Event& from, const c10::Event& to);

// The state that `optimizer` has for `param`; null if there is none.
torch::optim::OptimizerParamState* find_state(torch::optim::Optimizer& optimizer, const at::Tensor& param);
void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& param,
               std::unique_ptr<torch::optim::OptimizerParamState> state);

}  // namespace adaptdl::compat
