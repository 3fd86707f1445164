// What was measured of the training of an application: how long its steps take on which placement at which batch size,
// and how it progresses at which total batch size. docs/formats.md has the format of the files.
//
// Threading: const after construction; to be used from any thread.
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
  double progress = 0;   // scale-invariant iterations when it has finished
  double iteration = 0;  // steps when it has finished
  double metric = 0;     // of the validation
  goodput::GradParams grad;
};

struct ApplicationData {
  std::string name;
  std::map<std::size_t, std::vector<Epoch>> validation;  // by total batch size; at least one, each of `epochs` or more
  int epochs = 1;                                        // to be trained
  std::size_t min_local_bsz = 1, max_local_bsz = 1;
  std::optional<std::size_t> fixed_batch_size;  // total, that adaptive policies keep; none: they choose
  int max_replicas = 64;                        // under policies that choose the number of replicas
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

  // Gradient statistics during an epoch, from 0: linear between the two nearest validated batch sizes; beyond them, the
  // nearest. REQUIRES 0 <= epoch < epochs(), here and below.
  goodput::GradParams grad_params(std::size_t batch_size, int epoch) const;
  // Scale-invariant iterations after so many epochs: the least over the validated batch sizes. 0 after none.
  double progress_after(int epochs) const { return progress_[static_cast<std::size_t>(epochs)]; }
  // Steps at this total batch size after so many epochs: between the nearest validated ones as above. 0 after none.
  double iterations_after(std::size_t batch_size, int epochs) const;

 private:
  template <class Field>
  double between(std::size_t batch_size, std::size_t row, Field field) const;

  ApplicationData data_;
  StepTimes step_times_;
  std::vector<double> progress_;  // after 0, 1, ... epochs
};

// By name.
using Applications = std::map<std::string, std::shared_ptr<const Application>>;

// Every directory in `directory` is an application of that name. Throws Error, "FILE:LINE:COLUMN: what is wrong; the
// way out", or without line and column where the file as a whole is missing or unreadable.
// An application without an application.json has that of its namesake in `known`, another such directory, if its
// placements.csv is the same: the paper's data, as its authors published it, has no such files.
Applications load_traces(const std::filesystem::path& directory, const std::filesystem::path& known = {});

}  // namespace adaptdl::sched
