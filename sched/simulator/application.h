// Measurements of an application's training: how long steps take for each placement and batch size, and how training
// progresses for each total batch size. docs/formats.md describes the files.
//
// Threading: an Application is const after construction and can be used from any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "adaptdl/goodput.h"
#include "simulator/step_times.h"

namespace adaptdl::sched {

// An epoch of training at one total batch size.
struct Epoch {
  double progress = 0;   // scale-invariant iterations at the end of the epoch
  double iteration = 0;  // steps at the end of the epoch
  double metric = 0;     // validation metric
  goodput::GradParams grad;
};

struct ApplicationData {
  std::string name;
  std::map<std::size_t, std::vector<Epoch>> validation;  // by total batch size; not empty; at least `epochs` each
  int epochs = 1;                                        // epochs to train
  std::size_t min_local_bsz = 1, max_local_bsz = 1;
  std::optional<std::size_t> fixed_batch_size;  // total size that adaptive policies keep; if unset, they choose it
  int max_replicas = 64;                        // limit for policies that choose the number of replicas
};

class Application {
 public:
  Application(ApplicationData data, StepTimes step_times);

  const std::string& name() const noexcept { return data_.name; }
  int epochs() const noexcept { return data_.epochs; }
  std::size_t init_batch_size() const noexcept { return data_.validation.begin()->first; }
  std::size_t max_batch_size() const noexcept { return data_.validation.rbegin()->first; }
  std::size_t min_local_bsz() const noexcept { return data_.min_local_bsz; }
  std::size_t max_local_bsz() const noexcept { return data_.max_local_bsz; }
  std::optional<std::size_t> fixed_batch_size() const noexcept { return data_.fixed_batch_size; }
  int max_replicas() const noexcept { return data_.max_replicas; }
  const StepTimes& step_times() const noexcept { return step_times_; }

  // Returns the gradient statistics during an epoch (epochs are counted from 0), interpolated linearly between the two
  // nearest validated batch sizes. Outside their range, returns the statistics of the nearest one. REQUIRES 0 <= epoch
  // < epochs().
  goodput::GradParams grad_params(std::size_t batch_size, int epoch) const;
  // Returns the scale-invariant iterations after `epochs` epochs: the minimum over the validated batch sizes, or 0
  // after 0 epochs. REQUIRES 0 <= epochs <= epochs(), here and below.
  double progress_after(int epochs) const { return progress_[static_cast<std::size_t>(epochs)]; }
  // Returns the steps at this total batch size after `epochs` epochs, interpolated in the same way as in grad_params(),
  // or 0 after 0 epochs.
  double iterations_after(std::size_t batch_size, int epochs) const;

 private:
  template <class Field>
  double between(std::size_t batch_size, std::size_t row, Field field) const;

  ApplicationData data_;
  StepTimes step_times_;
  std::vector<double> progress_;  // after 0, 1, ... epochs
};

// Applications by name.
using Applications = std::map<std::string, std::shared_ptr<const Application>>;

// Loads each subdirectory of `directory` as an application with the same name. Throws Error with the message
// "FILE:LINE:COLUMN: what is wrong; what to do", without line or column if the whole file is missing or unreadable.
// `known` is another such directory. If an application has no application.json, but its namesake in `known` has the
// same placements.csv, the namesake's application.json is used. The data that the paper's authors published does not
// contain application.json files.
Applications load_traces(const std::filesystem::path& directory, const std::filesystem::path& known = {});

}  // namespace adaptdl::sched
