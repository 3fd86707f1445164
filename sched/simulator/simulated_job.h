// A job in the simulator: trains by the measurements of its application on whatever it is given, and learns from what
// it sees of itself, as a real one would.
//
// It pays a restart cost on each new allocation, profiles every (nodes, replicas, local batch size) that it runs in,
// fits its goodput model to that, and chooses its batch size by it, if its policy lets it.
// share/adaptdl/osdi21/README.md has the rules.
//
// Threading: one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "adaptdl/goodput.h"
#include "policy/speedup.h"
#include "simulator/workload.h"

namespace adaptdl::sched {

class SimulatedJob {
 public:
  // `job` must outlive it. `adapts`: whether it chooses its own batch sizes, or keeps its user's. `restart_cost` in
  // seconds.
  SimulatedJob(const WorkloadJob& job, bool adapts, double restart_cost);

  const WorkloadJob& workload_job() const noexcept { return *job_; }
  std::optional<double> completion_time() const noexcept { return completion_time_; }
  double attained_service() const noexcept { return attained_service_; }  // replica-seconds
  double cost() const noexcept { return cost_; }
  // How often it got another allocation, the first not counted.
  int restarts() const noexcept { return starts_ > 0 ? starts_ - 1 : 0; }
  bool restarting() const noexcept { return restart_left_ > 0; }
  int epoch() const noexcept { return epoch_; }  // epochs done
  double progress() const noexcept { return progress_; }
  double target_progress() const { return application().progress_after(application().epochs()); }
  std::size_t batch_size() const noexcept;  // in all; 0 without replicas
  int accum_steps() const noexcept { return split_.accum_steps; }
  int profiled_replicas() const noexcept { return profiled_replicas_; }  // the most; 0: none

  // The most replicas that are of use to it.
  int max_replicas() const;
  // By what it has learned so far; null before it was measured. Shared, and the same object as long as nothing changed.
  std::shared_ptr<const SpeedupFunction> speedup() const noexcept { return speedup_; }
  // What an oracle knows: seconds for the epochs after this one (for a single step in the last epoch) with the user's
  // batch size, on so many replicas of nodes with that many GPUs each. REQUIRES replicas >= 1.
  double remaining_time(int replicas, int gpus_per_node) const;

  // Gives it another allocation: the replicas of each node, how fast the slowest GPU is, and the price of all GPUs per
  // hour. Empty: it waits.
  void reallocate(std::vector<int> placement, double speed, double price = 0);
  // Trains for an interval from `now` on. A fraction of its speed is lost to interference.
  void train(double now, double seconds, double interference);

 private:
  struct Split {
    std::size_t atomic_bsz = 0;
    int accum_steps = 0;
  };
  const Application& application() const noexcept { return *job_->application; }
  std::optional<std::size_t> kept_batch_size() const;
  Split split(std::size_t batch_size, int replicas) const;
  void choose_batch_size();
  void profile(double step_time, double sync_time, const goodput::GradParams& grad);
  double train_epoch(double now, double seconds, double interference);
  void hold(double seconds);

  const WorkloadJob* job_;
  bool adapts_;
  double restart_cost_;

  std::vector<int> placement_;
  int replicas_ = 0;
  double speed_ = 1, price_ = 0;
  Split split_;

  double restart_left_ = 0;  // seconds
  int starts_ = 0;
  int epoch_ = 0;
  double progress_ = 0;
  double attained_service_ = 0, cost_ = 0;
  std::optional<double> completion_time_;

  std::vector<goodput::Observation> observations_;
  std::set<std::tuple<int, int, std::size_t>> profiled_;  // nodes, replicas, atomic batch size
  int profiled_replicas_ = 0;
  goodput::PerfParams perf_;
  goodput::GradParams grad_;
  std::shared_ptr<const SpeedupFunction> speedup_;
  bool chosen_ = false;  // the batch size is the best by speedup_ on this placement
};

}  // namespace adaptdl::sched
