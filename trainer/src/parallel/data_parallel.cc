#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "adaptdl/checkpoint.h"
#include "adaptdl/generation.h"
#include "adaptdl/log.h"
#include "adaptdl/metrics.h"
#include "adaptdl/torch/amp.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "group/process_group.h"
#include "loop/step_boundary.h"
#include "parallel/reducer_setup.h"
#include "scaling/gradient_statistics.h"
#include "scaling/lr_scheduler_state.h"
#include "scaling/optimizer_state.h"
#include "support/regroup.h"
#include "support/replicas.h"
#include "support/step_profile.h"
#include "support/tagged_scalars.h"
#include "support/tensor_io.h"
#include "support/torch_compat.h"

namespace adaptdl {

namespace {

namespace optim = torch::optim;

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;  // small, so that averaging starts early
constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;  // coalesced into one broadcast
constexpr std::size_t kShownUnused = 3;                          // maximum number of parameters in an error message
constexpr int kMaxWarnings = 10;

// Returns the rule in the options, or else the default rule for an Adaptive optimizer; null if there is neither.
std::shared_ptr<ScalingRuleBase> rule_for(optim::Optimizer& optimizer, const DataParallelOptions& options) {
  if (options.scaling_rule) return options.scaling_rule;
  if (dynamic_cast<internal::RuledOptimizer*>(&optimizer) == nullptr) return nullptr;
  if (is_adam(optimizer)) return std::make_shared<AdamScale>();
  return std::make_shared<AdaScale>();
}

}  // namespace

struct DataParallel::Impl final : checkpoint::State, internal::GroupUser {
  Impl(std::shared_ptr<torch::nn::Module> module, optim::Optimizer& optim, optim::LRScheduler* sched,
       DataParallelOptions opts)
      : State(opts.name),
        model(std::move(module)),
        optimizer(optim),
        scheduler(sched),
        options(std::move(opts)),
        rule(rule_for(optim, options)),
        noise(optim.param_groups().size()) {
    for (const auto& entry : model->named_parameters()) {
      if (!entry.value().requires_grad()) continue;
      names.emplace(params.size(), entry.key());
      params.push_back(entry.value());
    }
    if (options.stop_on_nan && rule == nullptr)
      throw UsageError(fmt::format("'{}': stop_on_nan requires an Adaptive optimizer or a scaling rule", name()));
    if (params.empty())
      throw UsageError(fmt::format("'{}': the model has no parameter that requires a gradient", name()));
    reducer_options = {kFirstBucketBytes,
                       options.bucket_cap_mb << 20,
                       options.find_unused_parameters,
                       options.gradient_as_bucket_view,
                       internal::sparse_params(*model, params),
                       internal::compressed_type(name(), options.gradient_compression)};
    const bool precondition = is_adam(optimizer) && dynamic_cast<AdamScale*>(rule.get()) != nullptr;
    statistics.emplace(params, optimizer, internal::process_group_ptr(), version,
                       GradientStatistics::Options{.measure = rule != nullptr,
                                                   .precondition = precondition,
                                                   .gradient_as_bucket_view = options.gradient_as_bucket_view,
                                                   .unused = unused_handler()});
  }

  std::function<void(const std::vector<std::size_t>&)> unused_handler() const {
    if (options.find_unused_parameters) return {};
    return [this](const std::vector<std::size_t>& unused) {
      std::string shown = names.at(unused[0]);
      for (std::size_t i = 1; i < std::min(unused.size(), kShownUnused); ++i) shown += ", " + names.at(unused[i]);
      if (unused.size() > kShownUnused) shown += fmt::format(" and {} more", unused.size() - kShownUnused);
      fail_unused(shown);
    };
  }

  [[noreturn]] void fail_unused(const std::string& which) const {
    throw UsageError(
        fmt::format("'{}': no gradient for {} in a backward pass; use all parameters in each forward pass, or set "
                    "DataParallelOptions::find_unused_parameters",
                    name(), which));
  }

  // Calls the reducer, and converts its error about missing gradients. The reducer reports them in the next forward
  // pass, even for passes that `statistics` does not see.
  void with_reducer(const std::function<void(c10d::Reducer&)>& call) {
    try {
      call(*reduction.reducer);
    } catch (const c10::Error& error) {
      if (std::string_view(error.what()).find("finished reduction") == std::string_view::npos) throw;
      fail_unused("some parameters");
    }
  }

  // Makes the replicas' models equal and prepares the reduction of their gradients.
  void connect() {
    compat::verify_same_parameters(internal::process_group_ptr(), params);
    internal::check_compression(name(), reducer_options, params[0].device());
    std::vector<at::Tensor> tensors;
    for (const auto& tensor : model->parameters()) tensors.push_back(tensor.detach());
    for (const auto& tensor : model->buffers()) tensors.push_back(tensor);
    broadcast(tensors);
    ready_reduction();
  }

  void ready_reduction() {
    if (buckets.empty()) buckets = compat::initial_buckets(params, reducer_options);
    reduction = compat::make_reducer(params, buckets, internal::process_group_ptr(), reducer_options, names);
  }

  void leave_group() override {
    reduction = {};
    statistics->set_group({});
    if (!options.gradient_as_bucket_view) return;
    for (auto& param : params) param.mutable_grad().reset();  // they are views of the old buckets
  }

  // The parameters are already equal, but each replica has its own buffers, such as running statistics.
  void join_group() override {
    const auto& group = internal::process_group_ptr();
    statistics->set_group(group);
    compat::verify_same_parameters(group, params);
    broadcast(model->buffers());
    // After a loss, a replica may repeat an evaluation pass that the others have finished; it must not broadcast in
    // that pass.
    buffers_stale = false;
    ready_reduction();
  }

  // Local gradients that remain after a step do not begin another step. For example, the pass for a GAN's generator
  // leaves gradients in the discriminator.
  bool step_is_unfinished() override {
    const bool unfinished = statistics->unreduced() && version.count == boundary_version;
    if (!unfinished) boundary_version = version.count;
    return unfinished;
  }
  void drop_unfinished_step() override { statistics->drop_unreduced(); }

  void begin_step() override { step_version = version.count; }
  // The step of a plain optimizer cannot be observed. For such an optimizer it is enough that gradients were averaged:
  // a new group leaves them unchanged, unless they are views of the reducer's buckets.
  bool has_stepped() const override {
    if (version.count == step_version) return false;
    return rule != nullptr ? !statistics->begun() : !options.gradient_as_bucket_view;
  }

  void broadcast(const std::vector<at::Tensor>& tensors) const {
    if (tensors.empty()) return;
    torch::NoGradGuard no_grad;
    c10d::broadcast_coalesced(internal::process_group_ptr(), tensors, kBroadcastBytes, 0);
  }

  // LibTorch rebuilds the buckets before the second step, in the order in which gradients arrived. This function
  // rebuilds them earlier, so that the checkpoint contains the order of the next step.
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
    save_scheduler(writer, scheduler);
    if (options.grad_scaler != nullptr) writer.json("grad_scaler", options.grad_scaler->save());
    if (rule == nullptr) return;
    writer.json("noise",
                {{"estimates", noise.save()}, {"scale", moments_scale}, {"gain", gain}, {"lr_factor", lr_factor}});
    statistics->save(writer);
  }

  void load(const checkpoint::Reader& reader) override {
    std::size_t known = 0;
    each_tensor(
        [&](const std::string& name, const at::Tensor& tensor) { check_tensor(reader, name, tensor), ++known; });
    check_no_other_tensors(reader, known);
    check_optimizer(reader, optimizer);
    statistics->check(reader);
    check_scheduler(reader, scheduler);
    each_tensor([&](const std::string& name, const at::Tensor& tensor) { load_tensor(reader, name, tensor); });
    load_optimizer(reader, optimizer);
    load_scheduler(reader, scheduler);
    buckets = reader.json("buckets").get<compat::Buckets>();
    load_noise(reader);
  }

  void load_noise(const checkpoint::Reader& reader) {
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

  void tell_metrics() const {
    metrics::set_progress(name(), noise.progress());
    if (noise.known()) metrics::set_grad_params(name(), {noise.sqr_avg(), noise.var_avg()});
  }

  // Returns whether a backward pass may follow the next forward pass.
  bool learns() const {
    const auto* const loader = current_dataloader();
    if (!torch::GradMode::is_enabled() || loader == nullptr || !loader->nested()) return torch::GradMode::is_enabled();
    if (!model->is_training()) return false;
    throw UsageError(
        fmt::format("'{}': cannot train in the loop of data loader '{}', which is nested in another; call eval() on "
                    "the model, or use torch::NoGradGuard",
                    name(), loader->name()));
  }

  // Returns whether the next pass must be measured, timed or accumulated; otherwise it is a plain pass without extra
  // cost.
  bool watches() const { return rule != nullptr || !reduces || current_dataloader() != nullptr || statistics->begun(); }

  // Determines the role of the next pass in the training loader's loop.
  void begin_pass() {
    auto* const loader = current_dataloader();
    if (loader != nullptr && model->is_training()) loader->train();
    last = true;
    batch_in_step = 1;
    batch_scale = given_scale;
    if (loader == nullptr || !loader->training()) {
      if (statistics->incomplete()) statistics->abandon();  // the loop of that step has ended
      return;
    }
    if (rule == nullptr && loader->max_batch_size().value_or(0) > loader->batch_size()) {
      throw UsageError(
          fmt::format("the batch size of data loader '{}' is adaptive, but the learning rate of '{}' is not; use an "
                      "adaptdl::Adaptive optimizer, such as Adaptive<torch::optim::SGD>",
                      loader->name(), name()));
    }
    last = loader->is_optim_step();
    batch_in_step = loader->accumulated() + 1;
    batch_scale = static_cast<double>(loader->current_local_bsz()) * internal::num_replicas() /
                  static_cast<double>(loader->batch_size());
    const bool same_batch = std::exchange(batch, internal::batches_begun()) == internal::batches_begun();
    if (!same_batch) ++batches_since_step;
    if (same_batch && loader->accumulation_steps() > 0 && statistics->begun() && statistics->has_gradient()) {
      throw UsageError(
          fmt::format("'{}': a forward pass after a backward pass in one batch of data loader '{}', which accumulates "
                      "gradients; add the losses and call backward() once, or use torch::NoGradGuard",
                      name(), loader->name()));
    }
    // Uses the scale of the whole step, because replicas may run the model in different batches of the step.
    follow_scale(batch_scale * (loader->accumulation_steps() + 1));
    if (loader->accumulated() == 0 && !same_batch && statistics->incomplete()) statistics->abandon();
  }

  // Resets Adam's moments when the scale changes, because they must come from gradients of a single scale.
  void follow_scale(double planned) {
    if (std::abs(planned - moments_scale) <= 1e-8 + 1e-5 * std::abs(moments_scale)) return;
    if (moments_scale > 0) statistics->reset_moments();
    moments_scale = planned;
  }

  void check_passes() const {
    const auto* const loader = current_dataloader();
    if (statistics->passes_by_hand() == 1 || loader == nullptr || !loader->training()) return;
    if (!loader->adaptive() && batches == 1) return;
    throw UsageError(
        fmt::format("'{}': {} backward passes before one step, but data loader '{}' {}; call step() after each "
                    "backward(), and let autoscale_batch_size accumulate gradients",
                    name(), statistics->passes_by_hand(), loader->name(),
                    loader->adaptive() ? "adapts its batch size" : "accumulates gradients itself"));
  }

  void report_invalid() {
    std::string where;
    const auto* const loader = current_dataloader();
    if (loader != nullptr && current_epoch() && loader->current_batch_size() > 0)
      where = fmt::format(" in step {} of epoch {}", *loader->current_index() / loader->current_batch_size(),
                          *current_epoch());
    if (options.stop_on_nan)
      throw Error(fmt::format("'{}': NaN or infinite gradients{}; lower the learning rate, or disable stop_on_nan",
                              name(), where));
    if (internal::replica_rank() != 0 || ++warned > kMaxWarnings) return;
    log::warn(
        fmt::format("'{}': NaN or infinite gradients{}; such steps count neither as progress nor for the noise "
                    "scale, and no periodic checkpoint is saved after them",
                    name(), where));
  }

  void check_no_other_tensors(const checkpoint::Reader& reader, std::size_t known) const {
    std::size_t saved = 0;
    for (const auto& info : reader.tensors()) saved += info.name.starts_with("model/") ? 1 : 0;
    if (saved == known) return;
    throw checkpoint::CheckpointError(
        fmt::format("{} contains {} model tensors, but this program's model has {}: the model has changed; undo the "
                    "change, or start with another checkpoint directory",
                    reader.describe(), saved, known));
  }

  std::shared_ptr<torch::nn::Module> model;
  optim::Optimizer& optimizer;
  optim::LRScheduler* scheduler;
  DataParallelOptions options;
  std::vector<at::Tensor> params;  // parameters that require a gradient, in the order of registration
  std::unordered_map<std::size_t, std::string> names;
  compat::ReducerOptions reducer_options{};
  compat::Buckets buckets;
  compat::Reduction reduction;
  internal::Version version{name()};
  std::uint64_t boundary_version = 0;  // version after the last batch that left no unfinished step
  std::uint64_t step_version = 0;      // version at the last step boundary
  bool buffers_stale = true;  // whether a training step may have changed this replica's buffers

  const std::shared_ptr<ScalingRuleBase> rule;
  GradientNoiseScale noise;
  std::optional<GradientStatistics> statistics;
  bool reduces = true;       // whether the next passes average their gradients
  bool last = true;          // whether the current pass ends its step
  int batch_in_step = 1;     // number of the current pass's batch in its step, from 1
  std::uint64_t batch = 0;   // number of the loader's batch in the last forward pass
  double batch_scale = 1;    // samples of a pass on all replicas / initial batch size
  double given_scale = 1;    // same as batch_scale, but outside a loader's loop
  int batches = 1;           // batches of the last step
  int batches_since_step = 0;
  int batches_by_hand = 1;   // batches that the program accumulated in the last step; each adds to the progress
  bool stepped = false;      // whether the last step had gradients
  bool valid = true;         // whether the gradients of the last step that had any were finite
  int warned = 0;            // number of warnings about invalid gradients
  double moments_scale = 0;  // scale of the gradients in the optimizer's moments; 0: no gradients yet
  double gain = 1;
  double lr_factor = 1;
};

DataParallel::DataParallel(std::shared_ptr<torch::nn::Module> model, optim::Optimizer& optimizer,
                           optim::LRScheduler* scheduler, DataParallelOptions options) {
  check_supported(optimizer);
  internal::process_group_ptr();
  impl_ = std::make_unique<Impl>(std::move(model), optimizer, scheduler, std::move(options));
  checkpoint::load_state(*impl_, /*required=*/true);
  if (!generation::joining()) impl_->connect();
  impl_->tell_metrics();
  if (const auto device = impl_->params[0].device(); device.is_cuda())
    internal::set_step_timer(internal::make_step_timer(device));
  if (!impl_->rule) return;
  impl_->rule->initialize(*this, optimizer);
  if (auto* const ruled = dynamic_cast<internal::RuledOptimizer*>(&optimizer)) ruled->rule = impl_->rule.get();
}

DataParallel::~DataParallel() {
  if (auto* const ruled = dynamic_cast<internal::RuledOptimizer*>(&impl_->optimizer)) ruled->rule = nullptr;
}

void DataParallel::before_forward() {
  const bool training = torch::GradMode::is_enabled() && impl_->model->is_training();
  if (impl_->options.broadcast_buffers && impl_->buffers_stale && impl_->reduces)
    impl_->broadcast(impl_->model->buffers());
  impl_->buffers_stale = training || (impl_->buffers_stale && !impl_->reduces);
  if (!impl_->learns()) return;
  impl_->begin_pass();
  if (!impl_->last || !impl_->reduces) return;
  impl_->with_reducer([](c10d::Reducer& reducer) {
    reducer.prepare_for_forward();
    if (reducer.should_rebuild_buckets()) reducer.rebuild_buckets();
  });
}

bool DataParallel::set_sync(bool sync) noexcept { return std::exchange(impl_->reduces, sync); }

void DataParallel::after_forward(const std::vector<at::Tensor>& outputs, bool complete) {
  if (!impl_->learns()) return;
  if (!complete && impl_->options.find_unused_parameters)
    throw UsageError(fmt::format(
        "'{}': DataParallelOptions::find_unused_parameters requires the tensors in the model's output, which has "
        "a custom type; define std::vector<at::Tensor> tensors_of(const Output&) in its namespace",
        impl_->name()));
  const auto prepare = [&] {
    impl_->with_reducer([&](c10d::Reducer& reducer) {
      reducer.prepare_for_backward(impl_->options.find_unused_parameters ? outputs : std::vector<at::Tensor>{});
    });
  };
  if (impl_->watches()) {
    impl_->statistics->expect(impl_->batch_in_step, impl_->last, impl_->reduces || !impl_->last, prepare);
  } else {
    prepare();
  }
}

const GradientNoiseScale& DataParallel::gns() const noexcept { return impl_->noise; }
double DataParallel::gain() const noexcept { return impl_->gain; }
double DataParallel::lr_factor() const noexcept { return impl_->lr_factor; }
double DataParallel::accum_scale() const noexcept { return impl_->batch_scale; }
double DataParallel::scale() const noexcept { return impl_->batch_scale * impl_->batches; }
int DataParallel::accum_count() const noexcept { return impl_->batches; }
ScalingRuleBase* DataParallel::scaling_rule() const noexcept { return impl_->rule.get(); }

bool DataParallel::should_zero_grad() const {
  return !impl_->statistics->incomplete() && !impl_->statistics->unreduced();
}

void DataParallel::reset_accumulation() { impl_->statistics->discard(); }

void DataParallel::set_accum_scale(double scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    throw UsageError(fmt::format("'{}': accum_scale must be above 0 and finite, got {}", impl_->name(), scale));
  impl_->batch_scale = impl_->given_scale = scale;
  impl_->follow_scale(scale);
}

void DataParallel::set_progress(double progress) {
  if (!(progress >= 0) || !std::isfinite(progress))
    throw UsageError(fmt::format("'{}': progress must be 0 or more and finite, got {}", impl_->name(), progress));
  impl_->noise.set_progress(progress);
  impl_->tell_metrics();
}

void DataParallel::to_tensorboard(SummaryWriter& writer, std::int64_t global_step,
                                  const std::string& tag_prefix) const {
  internal::TaggedScalars scalars(writer, global_step, tag_prefix);
  scalars.add("Gradient_Norm_Sqr", impl_->noise.sqr_avg());
  scalars.add("Gradient_Variance", impl_->noise.var_avg());
  scalars.add("Gain", gain());
  scalars.add("Learning_Rate_Factor", lr_factor());
  scalars.add("Accum_Scale", accum_scale());
  scalars.add("Accum_Count", accum_count());
  scalars.add("Progress", impl_->noise.progress());
}

bool DataParallel::accumulating() const noexcept { return !impl_->last || impl_->statistics->is_void(); }

void DataParallel::take_gradients() {
  if (impl_->statistics->unreduced())
    throw UsageError(
        fmt::format("'{}': step() after a backward pass under no_sync() would use the gradients of this replica only; "
                    "end no_sync() before the last pass of the step",
                    impl_->name()));
  impl_->batches = impl_->statistics->begun() ? impl_->statistics->batches() : 1;
  impl_->check_passes();
  const double loss_scale = impl_->options.grad_scaler != nullptr ? impl_->options.grad_scaler->scale() : 1;
  impl_->stepped = impl_->statistics->begun() && !impl_->statistics->incomplete();
  const auto sample = impl_->statistics->take(impl_->batch_scale, loss_scale);
  impl_->batches_by_hand =
      std::clamp(std::exchange(impl_->batches_since_step, 0), 1, impl_->statistics->passes_by_hand());
  if (!impl_->stepped) return;
  const bool valid = !sample || impl_->noise.update(*sample);
  if (!valid && impl_->valid) impl_->report_invalid();
  impl_->valid = valid;
}

void DataParallel::finish_step(const std::vector<double>& lr_factors) {
  impl_->lr_factor =
      std::accumulate(lr_factors.begin(), lr_factors.end(), 0.0) / static_cast<double>(lr_factors.size());
  if (impl_->stepped) internal::note_step(impl_->name(), impl_->valid);
  if (!impl_->valid) {
    impl_->gain = 0;
    return;
  }
  impl_->gain = impl_->noise.gain(scale());
  impl_->noise.advance(impl_->gain * impl_->batches_by_hand);
  impl_->tell_metrics();
}

}  // namespace adaptdl
