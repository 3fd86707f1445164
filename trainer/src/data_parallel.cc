#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <unordered_map>

#include "adaptdl/checkpoint.h"
#include "adaptdl/torch/parallel.h"
#include "optimizer_state.h"
#include "process_group.h"
#include "tensor_io.h"
#include "torch_compat.h"

namespace adaptdl::torch {

namespace {

namespace optim = ::torch::optim;

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;  // small, so that the averaging starts early
constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;  // coalesced into one call

// LRScheduler counts its steps in a protected member and has no other state: the rates are the optimizer's.
struct SchedulerAccess : optim::LRScheduler {
  static unsigned& steps(optim::LRScheduler& scheduler) { return scheduler.*(&SchedulerAccess::step_count_); }
};

}  // namespace

struct DataParallel::Impl final : checkpoint::State {
  Impl(std::shared_ptr<::torch::nn::Module> module, optim::Optimizer& optim, optim::LRScheduler* sched,
       DataParallelOptions opts)
      : State(opts.name), model(std::move(module)), optimizer(optim), scheduler(sched), options(std::move(opts)) {
    for (const auto& entry : model->named_parameters()) {
      if (!entry.value().requires_grad()) continue;
      names.emplace(params.size(), entry.key());
      params.push_back(entry.value());
    }
    if (params.empty())
      throw UsageError(fmt::format("'{}': the model has no parameter that requires a gradient", name()));
    reducer_options = {kFirstBucketBytes, options.bucket_cap_mb << 20, options.find_unused_parameters,
                       options.gradient_as_bucket_view};
  }

  // Makes the replicas equal and readies the reduction of their gradients.
  void connect() {
    const auto& group = internal::process_group_ptr();
    compat::verify_same_parameters(group, params);
    std::vector<at::Tensor> tensors;
    for (const auto& tensor : model->parameters()) tensors.push_back(tensor.detach());
    for (const auto& tensor : model->buffers()) tensors.push_back(tensor);
    broadcast(tensors);
    if (buckets.empty()) buckets = compat::initial_buckets(params, reducer_options);
    reduction = compat::make_reducer(params, buckets, group, reducer_options, names);
  }

  void broadcast(const std::vector<at::Tensor>& tensors) const {
    if (tensors.empty()) return;
    ::torch::NoGradGuard no_grad;
    c10d::broadcast_coalesced(internal::process_group_ptr(), tensors, kBroadcastBytes, 0);
  }

  // Settles the order of buckets, which LibTorch rebuilds before the second step in the order in which gradients came,
  // now, so that the checkpoint holds the order of the coming step.
  void sync() override {
    auto& reducer = *reduction.reducer;
    if (reducer.should_rebuild_buckets()) reducer.rebuild_buckets();
    std::unordered_map<const void*, std::size_t> index;
    for (std::size_t i = 0; i < params.size(); ++i) index[params[i].unsafeGetTensorImpl()] = i;
    buckets.clear();
    for (auto& bucket : reducer.get_grad_buckets(/*return_zero_tensors=*/false)) {
      auto& members = buckets.emplace_back();
      for (const auto& param : bucket.getParameters()) members.push_back(index.at(param.unsafeGetTensorImpl()));
    }
  }

  template <class Use>
  void each_tensor(Use use) const {
    for (const auto& entry : model->named_parameters()) use("model/" + entry.key(), entry.value());
    for (const auto& entry : model->named_buffers()) use("model/" + entry.key(), entry.value());
  }

  void save(checkpoint::Writer& writer) const override {
    each_tensor([&](const std::string& name, const at::Tensor& tensor) { save_tensor(writer, name, tensor); });
    save_optimizer(writer, optimizer);
    writer.json("buckets", buckets);
    if (scheduler != nullptr) writer.json("scheduler", {{"steps", SchedulerAccess::steps(*scheduler)}});
  }

  void load(const checkpoint::Reader& reader) override {
    std::size_t known = 0;
    each_tensor(
        [&](const std::string& name, const at::Tensor& tensor) { check_tensor(reader, name, tensor), ++known; });
    check_no_other_tensors(reader, known);
    check_optimizer(reader, optimizer);
    if (scheduler != nullptr) SchedulerAccess::steps(*scheduler) = reader.json("scheduler").at("steps").get<unsigned>();
    each_tensor([&](const std::string& name, const at::Tensor& tensor) { load_tensor(reader, name, tensor); });
    load_optimizer(reader, optimizer);
    buckets = reader.json("buckets").get<compat::Buckets>();
  }

  void check_no_other_tensors(const checkpoint::Reader& reader, std::size_t known) const {
    std::size_t saved = 0;
    for (const auto& info : reader.tensors()) saved += info.name.starts_with("model/") ? 1 : 0;
    if (saved == known) return;
    throw checkpoint::CheckpointError(
        fmt::format("{} has {} tensors of a model, this program's model has {}: the model changed since; take back the "
                    "change or start with another checkpoint directory",
                    reader.describe(), saved, known));
  }

  std::shared_ptr<::torch::nn::Module> model;
  optim::Optimizer& optimizer;
  optim::LRScheduler* scheduler;
  DataParallelOptions options;
  std::vector<at::Tensor> params;  // those that require a gradient, in the order of registration
  std::unordered_map<std::size_t, std::string> names;
  compat::ReducerOptions reducer_options{};
  compat::Buckets buckets;
  compat::Reduction reduction;
  bool buffers_stale = true;  // whether a training step may have changed this replica's buffers
};

DataParallel::DataParallel(std::shared_ptr<::torch::nn::Module> model, optim::Optimizer& optimizer,
                           optim::LRScheduler* scheduler, DataParallelOptions options) {
  check_supported(optimizer);
  internal::process_group_ptr();
  impl_ = std::make_unique<Impl>(std::move(model), optimizer, scheduler, std::move(options));
  checkpoint::load_state(*impl_, /*required=*/true);
  impl_->connect();
}

DataParallel::~DataParallel() = default;

void DataParallel::before_forward() {
  const bool training = ::torch::GradMode::is_enabled() && impl_->model->is_training();
  if (impl_->options.broadcast_buffers && impl_->buffers_stale) impl_->broadcast(impl_->model->buffers());
  impl_->buffers_stale = training;
  if (!::torch::GradMode::is_enabled()) return;
  impl_->reduction.reducer->prepare_for_forward();
  if (impl_->reduction.reducer->should_rebuild_buckets()) impl_->reduction.reducer->rebuild_buckets();
}

void DataParallel::after_forward(const std::vector<at::Tensor>& outputs) {
  if (!::torch::GradMode::is_enabled()) return;
  impl_->reduction.reducer->prepare_for_backward(impl_->options.find_unused_parameters ? outputs
                                                                                       : std::vector<at::Tensor>{});
}

}  // namespace adaptdl::torch
