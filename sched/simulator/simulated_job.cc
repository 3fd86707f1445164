#include "simulator/simulated_job.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace adaptdl::sched {
namespace {

// The tolerance that keeps inexact quotients from being rounded up past an integer.
constexpr double kRounding = 1e-8;
// The maximum number of replicas of a simulated job, regardless of what its batch sizes allow.
constexpr std::size_t kMaxReplicas = 64;
// The end of an epoch is rounded to whole seconds, unless the epoch is shorter than this many seconds and could vanish.
constexpr double kShortEpoch = 1;

std::size_t ceil_div(double a, double b) { return static_cast<std::size_t>(std::ceil(a / b - kRounding)); }

bool same(const goodput::GradParams& a, const goodput::GradParams& b) { return a.sqr == b.sqr && a.var == b.var; }

double gain(const goodput::GradParams& grad, double scale) {
  const double denominator = grad.var / scale + grad.sqr;
  return denominator > 0 ? (grad.var + grad.sqr) / denominator : 1;
}

}  // namespace

SimulatedJob::SimulatedJob(const WorkloadJob& job, bool adapts, double restart_cost)
    : job_(&job), adapts_(adapts), restart_cost_(restart_cost) {}

std::size_t SimulatedJob::batch_size() const noexcept {
  return static_cast<std::size_t>(replicas_ * (split_.accum_steps + 1)) * split_.atomic_bsz;
}

std::optional<std::size_t> SimulatedJob::kept_batch_size() const {
  return adapts_ ? application().fixed_batch_size() : job_->batch_size;
}

int SimulatedJob::max_replicas() const {
  const std::size_t largest = kept_batch_size().value_or(application().max_batch_size());
  const std::size_t by_batch = std::max<std::size_t>(largest / application().min_local_bsz(), 1);
  const auto allowed = static_cast<std::size_t>(application().max_replicas());
  return static_cast<int>(std::min({by_batch, allowed, kMaxReplicas}));
}

SimulatedJob::Split SimulatedJob::split(std::size_t batch_size, int replicas) const {
  const std::size_t local_bsz = ceil_div(static_cast<double>(batch_size), replicas);
  std::size_t pieces = ceil_div(static_cast<double>(local_bsz), static_cast<double>(application().max_local_bsz()));
  // A single replica cannot measure gradient noise from only one gradient.
  if (replicas == 1 && batch_size > application().init_batch_size()) pieces = std::max<std::size_t>(pieces, 2);
  const std::size_t atomic_bsz = ceil_div(static_cast<double>(local_bsz), static_cast<double>(pieces));
  return {atomic_bsz, static_cast<int>(pieces) - 1};
}

double SimulatedJob::remaining_time(int replicas, int gpus_per_node) const {
  Split split = this->split(job_->batch_size, replicas);
  const std::size_t pieces = static_cast<std::size_t>(replicas * (split.accum_steps + 1));
  split.atomic_bsz = std::min(split.atomic_bsz, application().max_batch_size() / pieces);
  std::vector<int> placement(static_cast<std::size_t>(replicas / gpus_per_node), gpus_per_node);
  if (replicas % gpus_per_node > 0) placement.push_back(replicas % gpus_per_node);
  const StepTime time = application().step_times().at(placement, split.atomic_bsz);
  const int epochs = application().epochs();
  const double steps = epoch_ + 1 < epochs ? application().iterations_after(job_->batch_size, epochs) -
                                                 application().iterations_after(job_->batch_size, epoch_ + 1)
                                           : 1;
  return steps * (time.step + split.accum_steps * (time.step - time.sync));
}

void SimulatedJob::reallocate(std::vector<int> placement, double speed, double price) {
  placement_ = std::move(placement);
  replicas_ = std::accumulate(placement_.begin(), placement_.end(), 0);
  speed_ = speed;
  price_ = price;
  chosen_ = false;
  if (placement_.empty()) {
    split_ = {};
    return;
  }
  choose_batch_size();
  restart_left_ = restart_cost_;
  ++starts_;
}

void SimulatedJob::choose_batch_size() {
  if (chosen_) return;
  const std::optional<std::size_t> kept = kept_batch_size();
  if (!kept && speedup_) {
    goodput::PerfParams perf = perf_;
    perf.alpha_c /= speed_;
    perf.beta_c /= speed_;
    const goodput::GoodputFunction goodput(perf, grad_, application().init_batch_size());
    const goodput::Configuration best =
        goodput.optimize(static_cast<int>(placement_.size()), replicas_, speedup_->limits());
    split_ = {best.atomic_bsz, best.accum_steps};
    chosen_ = true;
  } else {
    const std::size_t min_batch_size = static_cast<std::size_t>(replicas_) * application().min_local_bsz();
    split_ = split(kept.value_or(std::max(application().init_batch_size(), min_batch_size)), replicas_);
  }
  const std::size_t pieces = static_cast<std::size_t>(replicas_ * (split_.accum_steps + 1));
  split_.atomic_bsz = std::max<std::size_t>(std::min(split_.atomic_bsz, application().max_batch_size() / pieces), 1);
}

void SimulatedJob::profile(double step_time, double sync_time, const goodput::GradParams& grad) {
  const auto nodes = static_cast<int>(placement_.size());
  const bool fresh = profiled_.emplace(nodes, replicas_, split_.atomic_bsz).second;
  if (!fresh && speedup_ && same(grad, grad_)) return;
  grad_ = grad;
  if (fresh) {
    observations_.push_back({nodes, replicas_, split_.atomic_bsz, step_time - sync_time, step_time});
    profiled_replicas_ = std::max(profiled_replicas_, replicas_);
    perf_ = goodput::fit_perf_params(observations_);
  }
  const goodput::Limits limits{application().max_batch_size(), application().min_local_bsz(),
                               application().max_local_bsz(), true};
  speedup_ = std::make_shared<const SpeedupFunction>(
      goodput::GoodputFunction(perf_, grad_, application().init_batch_size()), limits);
  chosen_ = false;
}

void SimulatedJob::train(double now, double seconds, double interference) {
  if (placement_.empty()) return;
  const double delay = std::min(restart_left_, seconds);
  restart_left_ -= delay;
  hold(delay);
  const double end = now + seconds;
  now += delay;
  while (now < end && !completion_time_) {
    now += train_epoch(now, end - now, interference);
    choose_batch_size();
  }
}

// Trains to the end of the epoch, or for `seconds` if that is shorter, and returns how long that took.
double SimulatedJob::train_epoch(double now, double seconds, double interference) {
  const StepTime time = application().step_times().at(placement_, split_.atomic_bsz);
  const auto total = static_cast<double>(batch_size());
  const goodput::GradParams grad = application().grad_params(batch_size(), epoch_);
  // The job profiles the step times of the GPU in the traces. Other GPUs differ by a known factor.
  profile(time.step, time.sync, grad);
  const double compute_time = (time.step - time.sync) / speed_;
  const double step_time = compute_time * (split_.accum_steps + 1) + time.sync;
  const double scale = total / static_cast<double>(application().init_batch_size());
  const double goodput = gain(grad, scale) / step_time * (1 - interference);
  const double target = application().progress_after(epoch_ + 1);
  if (progress_ + goodput * seconds < target) {
    progress_ += goodput * seconds;
    hold(seconds);
    return seconds;
  }
  double taken = (target - progress_) / goodput;
  if (target - application().progress_after(epoch_) >= goodput * kShortEpoch) taken = std::nearbyint(taken);
  taken = std::min(taken, seconds);
  progress_ = target;
  ++epoch_;
  if (epoch_ == application().epochs()) completion_time_ = now + taken;
  hold(taken);
  return taken;
}

// Charges the job for the GPUs that it holds.
void SimulatedJob::hold(double seconds) {
  attained_service_ += seconds * replicas_;
  cost_ += seconds / 3600 * price_;
}

}  // namespace adaptdl::sched
