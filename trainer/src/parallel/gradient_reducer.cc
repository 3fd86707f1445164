#include "parallel/gradient_reducer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "adaptdl/error.h"
#include "group/process_group.h"
#include "parallel/reducer_setup.h"

namespace adaptdl::internal {

namespace {

constexpr std::size_t kFirstBucketBytes = std::size_t{1} << 20;  // small, so that averaging starts early
constexpr std::size_t kShownUnused = 3;                          // maximum number of parameters in an error message

}  // namespace

GradientReducer::GradientReducer(std::string state, const torch::nn::Module& model, std::vector<at::Tensor> params,
                                 Names names, const DataParallelOptions& options)
    : state_(std::move(state)),
      params_(std::move(params)),
      names_(std::move(names)),
      options_{kFirstBucketBytes,
               options.bucket_cap_mb << 20,
               options.find_unused_parameters,
               options.gradient_as_bucket_view,
               sparse_params(model, params_),
               compressed_type(state_, options.gradient_compression)} {}

void GradientReducer::check_backend() const { check_compression(state_, options_, params_[0].device()); }

void GradientReducer::connect() {
  if (buckets_.empty()) buckets_ = compat::initial_buckets(params_, options_);
  reduction_ = compat::make_reducer(params_, buckets_, process_group_ptr(), options_, names_);
}

// Calls the reducer, and converts its error about missing gradients. The reducer reports missing gradients in the
// next forward pass, even those of passes that GradientStatistics does not observe.
void GradientReducer::call(const std::function<void(c10d::Reducer&)>& function) const {
  try {
    function(*reduction_.reducer);
  } catch (const c10::Error& error) {
    if (std::string_view(error.what()).find("finished reduction") == std::string_view::npos) throw;
    fail_unused("some parameters");
  }
}

void GradientReducer::before_forward() {
  call([](c10d::Reducer& reducer) {
    reducer.prepare_for_forward();
    if (reducer.should_rebuild_buckets()) reducer.rebuild_buckets();
  });
}

void GradientReducer::after_forward(const std::vector<at::Tensor>& outputs) {
  call([&](c10d::Reducer& reducer) {
    reducer.prepare_for_backward(options_.find_unused_parameters ? outputs : std::vector<at::Tensor>{});
  });
}

void GradientReducer::update_buckets() {
  auto& reducer = *reduction_.reducer;
  if (reducer.should_rebuild_buckets()) reducer.rebuild_buckets();
  std::unordered_map<const void*, std::size_t> index;
  for (std::size_t i = 0; i < params_.size(); ++i) index[params_[i].unsafeGetTensorImpl()] = i;
  buckets_.clear();
  for (auto& bucket : reducer.get_grad_buckets(/*return_zero_tensors=*/false)) {
    auto& members = buckets_.emplace_back();
    for (const auto& param : bucket.getParameters()) members.push_back(index.at(param.unsafeGetTensorImpl()));
  }
}

void GradientReducer::fail_unused(const std::vector<std::size_t>& params) const {
  std::string shown = names_.at(params[0]);
  for (std::size_t i = 1; i < std::min(params.size(), kShownUnused); ++i) shown += ", " + names_.at(params[i]);
  if (params.size() > kShownUnused) shown += fmt::format(" and {} more", params.size() - kShownUnused);
  fail_unused(shown);
}

void GradientReducer::fail_unused(const std::string& which) const {
  throw UsageError(
      fmt::format("'{}': no gradient for {} in a backward pass; use all parameters in each forward pass, or set "
                  "DataParallelOptions::find_unused_parameters",
                  state_, which));
}

}  // namespace adaptdl::internal
