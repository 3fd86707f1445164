#include "scaling/previous_gradient.h"

#include <torch/torch.h>

#include <string>
#include <utility>

#include "scaling/squared_norm.h"
#include "support/tensor_io.h"

namespace adaptdl {

namespace {

std::string previous_name(std::size_t param) { return "gradient/" + std::to_string(param); }

}  // namespace

void PreviousGradient::match(std::size_t param, at::Tensor& gradient) {
  auto& previous = gradients_[param];
  if (!gradient.defined() && previous.defined()) gradient = at::zeros_like(previous);
  if (gradient.defined() && !previous.defined()) previous = at::zeros_like(gradient);
  // A gradient that was loaded from a checkpoint is dense.
  if (gradient.defined() && gradient.is_sparse() != previous.is_sparse())
    previous = gradient.is_sparse() ? previous.to_sparse(gradient.sparse_dim()) : previous.to_dense();
}

std::optional<GradientSample> PreviousGradient::compare(const std::vector<double>& sums, double batch_scale,
                                                        double loss_scale) {
  GradientSample sample{.count = 2, .scale = 2 * batch_scale, .differenced = true};
  const auto local = first_sums(sums);
  if (!all_finite(local)) {
    sample.local_sqr = sample.total_sqr = local;
    invalidate();  // the next gradient cannot be compared with this one
    return sample;
  }
  const double before = std::exchange(loss_scale_, loss_scale), now = loss_scale;
  if (before == 0) return {};
  for (std::size_t i = 0; i < sums.size(); i += kPairSums) {
    const double current_sqr = sums[i] / (now * now);
    const double previous_sqr = sums[i + 1] / (before * before);
    const double product = (sums[i + 2] - sums[i] - sums[i + 1]) / 2 / (now * before);
    sample.local_sqr.push_back((current_sqr + previous_sqr) / 2);
    sample.total_sqr.push_back((current_sqr + previous_sqr + 2 * product) / 4);
  }
  return sample;
}

void PreviousGradient::clear() {
  gradients_.assign(gradients_.size(), {});
  invalidate();
}

void PreviousGradient::save(checkpoint::Writer& writer) const {
  if (loss_scale_ == 0) return;
  writer.json("previous_loss_scale", loss_scale_);
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (gradients_[i].defined()) save_tensor(writer, previous_name(i), gradients_[i]);
  }
}

void PreviousGradient::check(const checkpoint::Reader& reader, const std::vector<at::Tensor>& params) const {
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (reader.find(previous_name(i)) != nullptr) check_tensor(reader, previous_name(i), params[i]);
  }
}

void PreviousGradient::load(const checkpoint::Reader& reader, const std::vector<at::Tensor>& params) {
  if (!reader.has_json("previous_loss_scale")) return;
  loss_scale_ = reader.json("previous_loss_scale").get<double>();
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (reader.find(previous_name(i)) != nullptr) gradients_[i] = load_new_tensor(reader, previous_name(i), params[i]);
  }
}

}  // namespace adaptdl
