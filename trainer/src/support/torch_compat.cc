#include "support/torch_compat.h"

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif

#include <c10/core/impl/VirtualGuardImpl.h>
#include <gloo/context.h>

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>

#include "adaptdl/error.h"
#include "support/form_timeout.h"
#include "support/gloo_device.h"

namespace adaptdl::compat {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Wraps a Work object. If it fails, `on_loss` is called, and the wrapper reports success.
class TolerantWork final : public c10d::Work {
 public:
  TolerantWork(WorkPtr work, std::vector<at::Tensor> tensors, std::function<void()> on_loss)
      : work_(std::move(work)), tensors_(std::move(tensors)), on_loss_(std::move(on_loss)) {}

  bool isCompleted() override { return work_->isCompleted(); }
  bool isSuccess() const override { return true; }
  std::vector<at::Tensor> result() override { return tensors_; }
  void synchronize() override {
    tolerate([&] { work_->synchronize(); });
  }
  bool wait(std::chrono::milliseconds timeout) override {
    tolerate([&] { work_->wait(timeout); });
    return true;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const auto inner = work_->getFuture();
    auto outer = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), inner->devices());
    inner->addCallback([outer, tensors = tensors_, on_loss = on_loss_](c10::ivalue::Future& done) {
      if (done.hasError()) on_loss();
      outer->markCompleted(done.hasError() ? c10::IValue(tensors) : done.value());
    });
    return outer;
  }

 private:
  template <class Step>
  void tolerate(const Step& step) const {
    try {
      step();
    } catch (const std::exception&) {
      on_loss_();
    }
  }

  const WorkPtr work_;
  const std::vector<at::Tensor> tensors_;
  const std::function<void()> on_loss_;
};

// A Gloo backend that can tolerate the loss of a peer: all replicas notice the loss, but none of them receives an
// exception.
class TolerantGloo final : public c10d::ProcessGroupGloo {
 public:
  TolerantGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options,
               std::chrono::milliseconds timeout, std::shared_ptr<Losses> losses)
      : ProcessGroupGloo(store, rank, size, std::move(options)), losses_(std::move(losses)) {
    for (const auto& context : contexts_) context->setTimeout(timeout);
  }
  // The base class would wait for pending operations, which are no longer needed.
  ~TolerantGloo() override { close(); }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    if (!losses_->tolerated) return ProcessGroupGloo::allreduce(tensors, options);
    return c10::make_intrusive<TolerantWork>(ProcessGroupGloo::allreduce(tensors, options), tensors, on_loss());
  }
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    if (!losses_->tolerated) return ProcessGroupGloo::broadcast(tensors, options);
    return c10::make_intrusive<TolerantWork>(ProcessGroupGloo::broadcast(tensors, options), tensors, on_loss());
  }

 private:
  // The callback may run after the group was destroyed, so it owns what it uses.
  std::function<void()> on_loss() {
    return [losses = losses_, contexts = contexts_, rank = getRank(), size = getSize()] {
      if (losses->found.exchange(true)) return;
      for (const auto& context : contexts) close_connections(*context, rank, size);
    };
  }
  void close() {
    for (const auto& context : contexts_) close_connections(*context, getRank(), getSize());
  }

  const std::shared_ptr<Losses> losses_;
};

c10::intrusive_ptr<c10d::ProcessGroupGloo> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                     std::chrono::milliseconds timeout,
                                                     std::shared_ptr<::gloo::transport::Device> device,
                                                     std::shared_ptr<Losses> losses) {
  auto options = c10d::ProcessGroupGloo::Options::create(std::min(timeout, internal::form_timeout));
  options->devices.push_back(std::move(device));
  options->threads = 2;  // one bucket is reduced while the next is copied; more threads do not help
  return c10::make_intrusive<TolerantGloo>(store, rank, size, options, timeout, std::move(losses));
}

#ifdef USE_C10D_NCCL
c10::intrusive_ptr<c10d::ProcessGroupNCCL> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                     std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}
#endif

// During 2.x, Reducer's constructor lost its third argument (limits that are used only for statistics) and gained
// trailing arguments. This function calls the constructor that this LibTorch has.
template <class Reducer, class... Rest>
std::shared_ptr<Reducer> construct_reducer(const std::vector<at::Tensor>& params, const Buckets& buckets,
                                           const Rest&... rest) {
  using Limits = std::vector<std::size_t>;
  using Caps = std::vector<std::int64_t>;
  using Params = std::vector<at::Tensor>;
  if constexpr (std::is_constructible_v<Reducer, Params, Buckets, Limits, Rest...>) {
    return std::make_shared<Reducer>(params, buckets, Limits(buckets.size(), 0), rest...);
  } else if constexpr (std::is_constructible_v<Reducer, Params, Buckets, Limits, Rest..., bool, bool>) {
    return std::make_shared<Reducer>(params, buckets, Limits(buckets.size(), 0), rest..., false, false);
  } else {
    return std::make_shared<Reducer>(params, buckets, rest..., /*skip_all_reduce_unused_params=*/false,
                                     /*use_python_reducer=*/false, /*bucket_bytes_cap_list=*/Caps{});
  }
}

#if TORCH_VERSION_MAJOR >= 2
void* state_key(const at::Tensor& param) { return param.unsafeGetTensorImpl(); }
#else
std::string state_key(const at::Tensor& param) { return c10::guts::to_string(param.unsafeGetTensorImpl()); }
#endif

std::vector<bool> sparse_flags(const std::vector<at::Tensor>& params, const ReducerOptions& options) {
  return options.sparse.empty() ? std::vector<bool>(params.size(), false) : options.sparse;
}

// Averages a bucket's gradients in a different type.
class CompressedReduction final : public c10d::CommHookInterface {
 public:
  CompressedReduction(ProcessGroupPtr group, at::ScalarType type) : group_(std::move(group)), type_(type) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    std::vector<at::Tensor> tensors{bucket.getBuffer().div(group_->getSize()).to(type_)};
    const auto sum = group_->allreduce(tensors)->getFuture();
    const auto expand = [buffer = bucket.getBuffer()](c10::ivalue::Future& done) {
      buffer.copy_(done.value().toTensorVector()[0]);
      return c10::IValue(buffer);
    };
    return sum->then(expand, c10::TensorType::get());
  }
  at::Tensor parseHookResult(const c10::IValue& result) override { return result.toTensor(); }

 private:
  const ProcessGroupPtr group_;
  const at::ScalarType type_;
};

// Calls shutdown(), which early 2.x releases do not have.
template <class Backend>
void shut_down_if_it_can(Backend& backend) {
  if constexpr (requires { backend.shutdown(); }) backend.shutdown();
}

}  // namespace

bool has_nccl() {
#ifdef USE_C10D_NCCL
  return true;
#else
  return false;
#endif
}

ProcessGroupPtr make_process_group(const std::string& backend, const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                   int size, std::chrono::milliseconds timeout, const std::string& gloo_address,
                                   const std::string& secret, std::shared_ptr<Losses> losses) {
#if TORCH_VERSION_MAJOR >= 2
  // Since 2.0, a ProcessGroup contains a backend for each type of device.
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, size);
  if (backend == "gloo") {
    const auto gloo = make_gloo(store, rank, size, timeout, make_gloo_device(gloo_address, secret), std::move(losses));
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, gloo);
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::GLOO, gloo);
    return group;
  }
#ifdef USE_C10D_NCCL
  if (backend == "nccl") {
    group->setDefaultBackend(c10d::ProcessGroup::BackendType::NCCL);
    group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL,
                      make_nccl(store, rank, size, timeout));
    return group;
  }
#endif
#else
  if (backend == "gloo")
    return make_gloo(store, rank, size, timeout, make_gloo_device(gloo_address, secret), std::move(losses));
#ifdef USE_C10D_NCCL
  if (backend == "nccl") return make_nccl(store, rank, size, timeout);
#endif
#endif
  if (backend == "nccl") throw UsageError("backend 'nccl': this LibTorch does not support NCCL; use 'gloo'");
  throw UsageError("unknown backend '" + backend + "'; use 'gloo' or 'nccl'");
}

void shut_down(const ProcessGroupPtr& group) {
#if defined(USE_C10D_NCCL) && TORCH_VERSION_MAJOR >= 2
  if (group->getBackendType() != c10d::ProcessGroup::BackendType::NCCL) return;
  const auto backend = group->getBackend(c10::DeviceType::CUDA);
  if (auto* const nccl = dynamic_cast<c10d::ProcessGroupNCCL*>(backend.get())) shut_down_if_it_can(*nccl);
#else
  (void)group;
#endif
}

Buckets initial_buckets(const std::vector<at::Tensor>& params, const ReducerOptions& options) {
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      params, {options.first_bucket_bytes, options.bucket_bytes}, sparse_flags(params, options));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

Reduction make_reducer(const std::vector<at::Tensor>& params, const Buckets& buckets, const ProcessGroupPtr& group,
                       const ReducerOptions& options, const std::unordered_map<std::size_t, std::string>& names) {
  Reduction made;
  made.reducer = construct_reducer<c10d::Reducer>(params, buckets, group, sparse_flags(params, options),
                                                  static_cast<std::int64_t>(options.bucket_bytes),
                                                  options.find_unused_parameters, options.gradient_as_bucket_view,
                                                  names, static_cast<std::int64_t>(options.first_bucket_bytes));
  if (options.compression != at::kFloat)
    made.reducer->register_comm_hook(std::make_unique<CompressedReduction>(group, options.compression));
  if (options.find_unused_parameters) {
    made.logger = std::make_shared<c10d::Logger>(made.reducer);
    made.reducer->set_logger(made.logger);
  }
  return made;
}

void verify_same_parameters(const ProcessGroupPtr& group, const std::vector<at::Tensor>& params) {
  c10d::verify_params_across_processes(group, params, c10::nullopt);
}

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
  // Dense tensors are copied in one operation.
  if (std::ranges::none_of(to, [](const at::Tensor& tensor) { return tensor.is_sparse(); })) {
    if (!to.empty()) at::_foreach_copy_(to, from);
    return;
  }
#endif
  for (std::size_t i = 0; i < to.size(); ++i) at::Tensor(to[i]).copy_(from[i]);
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
EventPtr record_event(at::Device device) {
  if (!device.is_cuda()) return nullptr;
  auto event = std::make_shared<c10::Event>(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return event;
}

std::optional<double> seconds_between(const c10::Event& from, const c10::Event& to) {
  if (!to.query() || !from.query()) return {};
  return from.elapsedTime(to) / 1e3;
}

bool autocast_enabled(at::DeviceType device) { return at::autocast::is_autocast_enabled(device); }
at::ScalarType autocast_dtype(at::DeviceType device) { return at::autocast::get_autocast_dtype(device); }
void set_autocast(at::DeviceType device, bool enabled, at::ScalarType dtype) {
  at::autocast::set_autocast_enabled(device, enabled);
  at::autocast::set_autocast_dtype(device, dtype);
}
#else
EventPtr record_event(at::Device) { return nullptr; }
std::optional<double> seconds_between(const c10::Event&, const c10::Event&) { return {}; }

bool autocast_enabled(at::DeviceType device) {
  return device == at::kCPU ? at::autocast::is_cpu_enabled() : at::autocast::is_enabled();
}
at::ScalarType autocast_dtype(at::DeviceType device) {
  return device == at::kCPU ? at::autocast::get_autocast_cpu_dtype() : at::autocast::get_autocast_gpu_dtype();
}
void set_autocast(at::DeviceType device, bool enabled, at::ScalarType dtype) {
  if (device == at::kCPU) {
    at::autocast::set_cpu_enabled(enabled);
    at::autocast::set_autocast_cpu_dtype(dtype);
  } else {
    at::autocast::set_enabled(enabled);
    at::autocast::set_autocast_gpu_dtype(dtype);
  }
}
#endif

torch::optim::OptimizerParamState* find_state(torch::optim::Optimizer& optimizer, const at::Tensor& param) {
  const auto found = optimizer.state().find(state_key(param));
  return found == optimizer.state().end() ? nullptr : found->second.get();
}

void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& param,
               std::unique_ptr<torch::optim::OptimizerParamState> state) {
  optimizer.state()[state_key(param)] = std::move(state);
}

}  // namespace adaptdl::compat
