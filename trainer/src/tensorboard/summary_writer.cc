#include "adaptdl/torch/summary_writer.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "adaptdl/env.h"
#include "support/replicas.h"
#include "tensorboard/model_graph.h"
#include "tensorboard/summary_writer_impl.h"

namespace adaptdl {

namespace {

using internal::Histogram;

constexpr std::string_view kGraphTag = "__run_graph__";          // the name in TensorBoard
constexpr std::int64_t kHistogramChunk = std::int64_t{1} << 20;  // elements counted at a time; keeps copies small

// Returns the upper limits of TensorFlow's buckets, ascending: 0, and on both sides of 0 from 1e-12 to 1e20 in steps of
// 10%.
std::vector<double> bucket_limits() {
  std::vector<double> positive;
  for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
  positive.push_back(std::numeric_limits<double>::max());
  std::vector<double> limits;
  for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) limits.push_back(-*limit);
  limits.push_back(0);
  for (const double limit : positive) limits.push_back(limit);  // GCC 14 warns of insert()
  return limits;
}

const at::Tensor& limits_tensor() {
  static const auto* const tensor = new at::Tensor(at::tensor(bucket_limits(), at::kDouble));
  return *tensor;
}

// Counts a chunk's values on its device, so that only the counts are copied back.
at::Tensor count(const at::Tensor& chunk, const at::Tensor& limits, Histogram& histogram) {
  auto values = chunk.to(at::kDouble);
  const auto finite = values.isfinite();
  if (!finite.all().item<bool>()) values = values.masked_select(finite);
  if (values.numel() == 0) return at::zeros({limits.numel()}, at::kLong);
  const auto low = values.min().item<double>(), high = values.max().item<double>();
  const bool first = histogram.num == 0;
  histogram.min = first ? low : std::min(histogram.min, low);
  histogram.max = first ? high : std::max(histogram.max, high);
  histogram.num += static_cast<double>(values.numel());
  histogram.sum += values.sum().item<double>();
  histogram.sum_squares += values.square().sum().item<double>();
  // The greatest finite double also belongs to the last bucket.
  const auto buckets = at::bucketize(values, limits, /*out_int32=*/false, /*right=*/true).clamp_max(limits.numel() - 1);
  return at::bincount(buckets, {}, limits.numel()).cpu();
}

// Drops empty buckets at both ends, where min and max are the limits, and merges adjacent empty buckets between
// nonempty buckets.
void compress(const std::vector<double>& limits, const std::int64_t* counts, Histogram& histogram) {
  const auto size = limits.size();
  std::size_t begin = 0, end = size;
  while (begin < size && counts[begin] == 0) ++begin;
  while (end > begin && counts[end - 1] == 0) --end;
  for (auto i = begin; i < end; ++i) {
    if (counts[i] == 0 && histogram.counts.back() == 0) {
      histogram.limits.back() = limits[i];
    } else {
      histogram.limits.push_back(limits[i]);
      histogram.counts.push_back(static_cast<double>(counts[i]));
    }
  }
}

Histogram histogram_of(const at::Tensor& values) {
  const c10::NoGradGuard no_grad;
  Histogram histogram;
  const auto& limits = limits_tensor();
  const auto device_limits = limits.to(values.device());
  auto counts = at::zeros({limits.numel()}, at::kLong);
  const auto flat = values.detach().reshape({-1});
  for (const auto& chunk : flat.split(kHistogramChunk)) counts += count(chunk, device_limits, histogram);
  static const auto* const numbers = new std::vector<double>(bucket_limits());
  compress(*numbers, counts.data_ptr<std::int64_t>(), histogram);
  return histogram;
}

}  // namespace

std::optional<std::filesystem::path> tensorboard_directory() {
  const auto directory = env::tensorboard_logdir();
  if (!directory) return std::nullopt;
  const auto job = env::job_id();
  if (!job) return *directory;
  const auto slash = job->rfind('/');
  return std::filesystem::path(*directory) / (slash == std::string::npos ? *job : job->substr(slash + 1));
}

SummaryWriter::Impl::Impl(std::filesystem::path directory, const SummaryWriterOptions& writer_options)
    : log_dir(std::move(directory)), name(internal::mended_utf8(log_dir.string())), options(writer_options) {}

void SummaryWriter::Impl::begin(std::optional<std::int64_t> purge_step) {
  file->append(internal::version_event());
  if (purge_step) {
    // TensorBoard treats a run's first session as the beginning of the run, and discards no events for it, so another
    // session must precede this one.
    file->append(internal::session_start_event(std::numeric_limits<std::int64_t>::max()));
    file->append(internal::session_start_event(*purge_step));
  }
  file->flush();
}

SummaryWriter::SummaryWriter(std::filesystem::path log_dir, SummaryWriterOptions options)
    : impl_(std::make_unique<Impl>(std::move(log_dir), options)) {
  if (internal::replica_rank() != 0 && !options.all_ranks) return;
  const auto purge_step = internal::resume_events(impl_->name, options.purge_step);
  impl_->file.emplace(impl_->log_dir, options.flush_every);
  impl_->begin(purge_step);
}

SummaryWriter::~SummaryWriter() = default;

const std::filesystem::path& SummaryWriter::log_dir() const noexcept { return impl_->log_dir; }

void SummaryWriter::add_scalar(std::string_view tag, double value, std::int64_t step) {
  impl_->log(tag, step, [&](const std::string& name) { return internal::scalar_event(name, value, step); });
}

void SummaryWriter::add_histogram(std::string_view tag, const at::Tensor& values, std::int64_t step) {
  if (!values.defined()) return;
  impl_->log(tag, step,
             [&](const std::string& name) { return internal::histogram_event(name, histogram_of(values), step); });
}

void SummaryWriter::add_histogram(std::string_view tag, std::span<const double> values, std::int64_t step) {
  // The data is only read.
  auto* const data = const_cast<double*>(values.data());
  add_histogram(tag, at::from_blob(data, {static_cast<std::int64_t>(values.size())}, at::kDouble), step);
}

void SummaryWriter::add_text(std::string_view tag, std::string_view text, std::int64_t step) {
  impl_->log(tag, step, [&](const std::string& name) { return internal::text_event(name, text, step); });
}

void SummaryWriter::add_hparams(const HParams& hparams, const std::map<std::string, double>& metrics,
                                std::int64_t step) {
  if (!impl_->file) return;
  impl_->file->append(internal::hparams_experiment_event(hparams, metrics));
  impl_->file->append(internal::hparams_start_event(hparams));
  for (const auto& [tag, value] : metrics) add_scalar(tag, value, step);
  if (!metrics.empty()) impl_->file->append(internal::hparams_end_event());
}

bool SummaryWriter::writes() const noexcept { return impl_->file.has_value(); }

void SummaryWriter::add_traced_graph(torch::nn::Module& model, const std::vector<at::Tensor>& inputs,
                                     const Forward& forward) {
  impl_->log(kGraphTag, 0,
             [&](const std::string&) { return internal::graph_event(internal::trace_model(model, inputs, forward)); });
}

void SummaryWriter::flush() { impl_->flush(); }

}  // namespace adaptdl
