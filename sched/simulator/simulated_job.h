// A job in the simulator. On each allocation, it trains at the speed that was measured for its application, and it
// learns from its own training, as a real job would.
//
// It pays a restart cost for each new allocation, profiles every (nodes, replicas, local batch size) with which it
// runs, fits its goodput model to these profiles, and, if its policy allows that, chooses its batch size according to
// the model. share/adaptdl/osdi21/README.md describes the rules.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "adaptdl/goodput.h"
#include "policy/base/speedup.h"
#include "simulator/workload.h"

namespace adaptdl::sched {

class SimulatedJob {
 public:
  // `job` must outlive the object. If `adapts` is true, the job chooses its own batch sizes instead of the one that its
  // user chose. `restart_cost` is in seconds.
  SimulatedJob(const WorkloadJob& job, bool adapts, double restart_cost);

  const WorkloadJob& workload_job() const noexcept { return *job_; }
  std::optional<double> completion_time() const noexcept { return completion_time_; }
  double attained_service() const noexcept { return attained_service_; }  // replica-seconds
  double cost() const noexcept { return cost_; }
  // The number of new, non-empty allocations that the job received after the first one.
  int restarts() const noexcept { return starts_ > 0 ? starts_ - 1 : 0; }
  bool restarting() const noexcept { return restart_left_ > 0; }
  int epoch() const noexcept { return epoch_; }  // completed epochs
  double progress() const noexcept { return progress_; }
  double target_progress() const { return application().progress_after(application().epochs()); }
  std::size_t batch_size() const noexcept;  // total; 0 if there are no replicas
  int accum_steps() const noexcept { return split_.accum_steps; }
  int profiled_replicas() const noexcept { return profiled_replicas_; }  // max replicas profiled; 0 if none

  // Returns the largest number of replicas that the job can use.
  int max_replicas() const;
  // The speedup according to what the job has learned so far; null if nothing has been measured yet. The object is
  // shared, and is replaced when the speedup changes.
  std::shared_ptr<const SpeedupFunction> speedup() const noexcept { return speedup_; }
  // An oracle's answer: the seconds that the epochs after the current one (or, in the last epoch, a single step) take
  // with the user's batch size and `replicas` replicas on nodes with `gpus_per_node` GPUs each. REQUIRES replicas >= 1.
  double remaining_time(int replicas, int gpus_per_node) const;

  // Gives the job a new allocation: the replicas on each node, the speed of the slowest GPU, and the price of all GPUs
  // per hour. If `placement` is empty, the job waits.
  void reallocate(std::vector<int> placement, double speed, double price = 0);
  // Trains for an interval that begins at `now`. `interference` is the fraction of the job's speed that is lost.
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
  bool chosen_ = false;  // whether the batch size is the best one according to speedup_ on this placement
};

}  // namespace adaptdl::sched
