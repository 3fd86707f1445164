// SimulationScreen shows the progress of simulations on one line of standard error, if standard error is a terminal
// that can redraw a line. It updates the line when a simulation ends and, in between, at most ten times per second. It
// also passes the cycles to a log.
//
// Threading: the observer's functions may be called from any thread; all others must be called from one thread.
#pragma once

#include <chrono>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "simulation/cycle_log.h"
#include "simulator/simulator.h"

namespace adaptdl::cli {

// The progress of all simulations.
struct SimulationProgress {
  std::size_t simulations = 0, finished = 0;
  std::size_t jobs = 0, completed = 0;   // in all simulations
  std::string newest;                    // the latest cycle: "workload-6 pollux at 2:03:00"
  std::chrono::milliseconds elapsed{0};  // since the simulations started
};

// Returns at most `width` columns: "3/8 simulations  412/1,280 jobs  0:07  workload-6 pollux at 2:03:00".
std::string progress_text(const SimulationProgress& progress, std::size_t width);

class SimulationScreen : public sched::SimulationObserver {
 public:
  // `log` may be null; otherwise it must outlive the screen.
  SimulationScreen(std::span<const sched::SimulationTask> tasks, CycleLog* log);
  ~SimulationScreen() override { close(); }

  void cycle(const sched::CycleRecord& record) override;
  void finished(std::size_t task, const sched::SimulationResult& result) override;
  // Erases the line. Must be called after the simulations have ended.
  void close() noexcept;

 private:
  void draw();

  using Clock = std::chrono::steady_clock;
  std::mutex mutex_;
  CycleLog* log_;
  SimulationProgress progress_;
  std::vector<std::size_t> completed_;  // by task
  bool wanted_ = false;
  bool drawn_ = false;
  Clock::time_point started_ = Clock::now();
  Clock::time_point drawn_at_{};
};

}  // namespace adaptdl::cli
