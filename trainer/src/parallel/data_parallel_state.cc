#include "parallel/data_parallel_impl.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <utility>

#include "adaptdl/torch/amp.h"
#include "base/counted.h"
#include "group/process_group.h"
#include "scaling/lr_scheduler_state.h"
#include "scaling/optimizer_state.h"
#include "support/tensor_io.h"
#include "support/torch_compat.h"

namespace adaptdl {

namespace {

constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;  // coalesced into one broadcast

// Returns the rule in the options, or else the default rule for an Adaptive optimizer; null if there is neither.
std::shared_ptr<ScalingRuleBase> rule_for(torch::optim::Optimizer& optimizer, const DataParallelOptions& options) {
  if (options.scaling_rule) return options.scaling_rule;
  if (dynamic_cast<internal::RuledOptimizer*>(&optimizer) == nullptr) return nullptr;
  if (is_adam(optimizer)) return std::make_shared<AdamScale>();
  return std::make_shared<AdaScale>();
}

}  // namespace

DataParallel::Impl::Impl(std::shared_ptr<torch::nn::Module> module, torch::optim::Optimizer& optim,
                         torch::optim::LRScheduler* sched, DataParallelOptions opts)
    : State(opts.name),
      model(std::move(module)),
      optimizer(optim),
      scheduler(sched),
      options(std::move(opts)),
      rule(rule_for(optim, options)),
      noise(optim.param_groups().size()) {
  internal::GradientReducer::Names names;
  for (const auto& entry : model->named_parameters()) {
    if (!entry.value().requires_grad()) continue;
    names.emplace(params.size(), entry.key());
    params.push_back(entry.value());
  }
  if (options.stop_on_nan && rule == nullptr)
    throw UsageError(fmt::format("'{}': stop_on_nan requires an Adaptive optimizer or a scaling rule", name()));
  if (params.empty())
    throw UsageError(fmt::format("'{}': the model has no parameter that requires a gradient", name()));
  reducer.emplace(name(), *model, params, std::move(names), options);
  const bool precondition = is_adam(optimizer) && dynamic_cast<AdamScale*>(rule.get()) != nullptr;
  statistics.emplace(params, optimizer, internal::process_group_ptr(), version,
                     GradientStatistics::Options{.measure = rule != nullptr,
                                                 .precondition = precondition,
                                                 .gradient_as_bucket_view = options.gradient_as_bucket_view,
                                                 .unused = unused_handler()});
}

std::function<void(const std::vector<std::size_t>&)> DataParallel::Impl::unused_handler() const {
  if (options.find_unused_parameters) return {};
  return [this](const std::vector<std::size_t>& unused) { reducer->fail_unused(unused); };
}

void DataParallel::Impl::connect() {
  compat::verify_same_parameters(internal::process_group_ptr(), params);
  reducer->check_backend();
  std::vector<at::Tensor> tensors;
  for (const auto& tensor : model->parameters()) tensors.push_back(tensor.detach());
  for (const auto& tensor : model->buffers()) tensors.push_back(tensor);
  broadcast(tensors);
  reducer->connect();
}

void DataParallel::Impl::leave_group() {
  reducer->disconnect();
  statistics->set_group({});
  if (!options.gradient_as_bucket_view) return;
  for (auto& param : params) param.mutable_grad().reset();  // they are views of the old buckets
}

// The parameters are already equal, but each replica has its own buffers, such as running statistics.
void DataParallel::Impl::join_group() {
  const auto& group = internal::process_group_ptr();
  statistics->set_group(group);
  compat::verify_same_parameters(group, params);
  broadcast(model->buffers());
  // After a loss, a replica may repeat an evaluation pass that the others have finished; it must not broadcast in
  // that pass.
  buffers_stale = false;
  reducer->connect();
}

// Local gradients that remain after a step do not begin another step. For example, the pass for a GAN's generator
// leaves gradients in the discriminator.
bool DataParallel::Impl::step_is_unfinished() {
  const bool unfinished = statistics->unreduced() && version.count == boundary_version;
  if (!unfinished) boundary_version = version.count;
  return unfinished;
}

// The step of a plain optimizer cannot be observed. For such an optimizer it is enough that gradients were averaged:
// a new group leaves them unchanged, unless they are views of the reducer's buckets.
bool DataParallel::Impl::has_stepped() const {
  if (version.count == step_version) return false;
  return rule != nullptr ? !statistics->begun() : !options.gradient_as_bucket_view;
}

void DataParallel::Impl::broadcast(const std::vector<at::Tensor>& tensors) const {
  if (tensors.empty()) return;
  torch::NoGradGuard no_grad;
  c10d::broadcast_coalesced(internal::process_group_ptr(), tensors, kBroadcastBytes, 0);
}

template <class Use>
void DataParallel::Impl::each_tensor(Use use) const {
  for (const auto& entry : model->named_parameters()) use("model/" + entry.key(), entry.value());
  for (const auto& entry : model->named_buffers()) use("model/" + entry.key(), entry.value());
}

void DataParallel::Impl::save(checkpoint::Writer& writer) const {
  each_tensor([&](const std::string& name, const at::Tensor& tensor) { save_tensor(writer, name, tensor); });
  save_optimizer(writer, optimizer);
  writer.json("buckets", reducer->buckets());
  save_scheduler(writer, scheduler);
  if (options.grad_scaler != nullptr) writer.json("grad_scaler", options.grad_scaler->save());
  if (rule == nullptr) return;
  writer.json("noise",
              {{"estimates", noise.save()}, {"scale", moments_scale}, {"gain", gain}, {"lr_factor", lr_factor}});
  statistics->save(writer);
}

void DataParallel::Impl::load(const checkpoint::Reader& reader) {
  std::size_t known = 0;
  each_tensor([&](const std::string& name, const at::Tensor& tensor) { check_tensor(reader, name, tensor), ++known; });
  check_no_other_tensors(reader, known);
  check_optimizer(reader, optimizer);
  statistics->check(reader);
  check_scheduler(reader, scheduler);
  each_tensor([&](const std::string& name, const at::Tensor& tensor) { load_tensor(reader, name, tensor); });
  load_optimizer(reader, optimizer);
  load_scheduler(reader, scheduler);
  reducer->set_buckets(reader.json("buckets").get<compat::Buckets>());
  load_noise(reader);
}

void DataParallel::Impl::load_noise(const checkpoint::Reader& reader) {
  if (options.grad_scaler != nullptr && reader.has_json("grad_scaler"))
    options.grad_scaler->load(reader.json("grad_scaler"));
  if (rule == nullptr || !reader.has_json("noise")) return;
  const auto saved = reader.json("noise");
  noise.load(saved.at("estimates"));
  saved.at("scale").get_to(moments_scale);
  saved.at("gain").get_to(gain);
  saved.at("lr_factor").get_to(lr_factor);
  statistics->load(reader);
}

void DataParallel::Impl::check_no_other_tensors(const checkpoint::Reader& reader, std::size_t known) const {
  std::size_t saved = 0;
  for (const auto& info : reader.tensors()) saved += info.name.starts_with("model/") ? 1 : 0;
  if (saved == known) return;
  throw checkpoint::CheckpointError(
      fmt::format("{} contains {}, but this program's model has {}: the model has changed; undo the "
                  "change, or start with another checkpoint directory",
                  reader.describe(), counted(saved, "model tensor"), known));
}

}  // namespace adaptdl
