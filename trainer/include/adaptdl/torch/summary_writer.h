// A writer of event files that TensorBoard reads.
//
//   if (const auto directory = adaptdl::tensorboard_directory()) {
//     adaptdl::SummaryWriter writer(*directory);
//     ...
//     writer.add_scalar("loss/train", loss, step);
//   }
//
// A writer creates one file, `events.out.tfevents.SECONDS.HOST.PID.N`, in its directory, which TensorBoard calls a run.
// Rank 0 writes; on the other replicas every call does nothing.
//
// Cost: a call encodes its event into memory and returns. A thread writes the collected events every few seconds. They
// are also written at each checkpoint, when the writer is destroyed, and when the job stops at a step boundary. Events
// that a killed process had not written are lost.
//
// Restarts: a resumed job continues in a new file in the same directory. Its checkpoint contains the last step of each
// tag (state "adaptdl-tensorboard"). TensorBoard discards the events of later steps in earlier files. Events of earlier
// steps that are logged again while the program is replayed up to the interruption are skipped. Each step therefore
// appears only once.
//
// Errors: the constructor throws Error if the directory cannot be written to. Later problems, such as a full disk,
// cause a single warning: training continues, and up to 64 MiB of events wait in memory until they can be written.
//
// Threading: any thread may call add_* and flush. Only the training thread may call add_graph and profile, and create
// or destroy the writer.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "adaptdl/torch/internal/each_tensor.h"
#include "adaptdl/torch/internal/model_output.h"

namespace torch::nn {
class Module;
}

namespace adaptdl {

// Returns the directory for this job's events: $ADAPTDL_TENSORBOARD_LOGDIR/NAME, where NAME is the part of
// $ADAPTDL_JOB_ID after the namespace. Without a job, it is $ADAPTDL_TENSORBOARD_LOGDIR itself. Returns nullopt if
// ADAPTDL_TENSORBOARD_LOGDIR is not set.
std::optional<std::filesystem::path> tensorboard_directory();

// Options of SummaryWriter.
struct SummaryWriterOptions {
  // The step from which TensorBoard discards the events in earlier files of the directory. If unset, this is the step
  // after the last step in the checkpoint. Therefore, if a job was restarted without a checkpoint, TensorBoard discards
  // all earlier steps by default; in a new job, it discards none.
  std::optional<std::int64_t> purge_step;
  // Maximum time that an event waits in memory. If 0, each event is written immediately. Shorter times cause more
  // writes.
  std::chrono::milliseconds flush_every = std::chrono::seconds(10);
  // Whether replicas other than rank 0 also write. Each of them then requires its own directory and, when the job is
  // resumed, its own `purge_step`.
  bool all_ranks = false;
};

// Hyperparameters by name.
using HParams = std::map<std::string, std::variant<bool, std::int64_t, double, std::string>>;

// Records the operators that run on all threads of this process while the object exists, with their times. These are
// the operators of forward and backward passes, optimizers, data loaders and collective operations, and the ranges that
// the program marks with RECORD_USER_SCOPE("name") from <ATen/record_function.h>. For GPUs, only the times of kernel
// launches are recorded.
//
// The destructor writes the recording to the file `HOST_PID.TIME.pt.trace.json` in the writer's directory, even if an
// exception leaves the scope. TensorBoard's torch-tb-profiler plugin, Perfetto and chrome://tracing can show this file.
// If it cannot be written, a warning is logged. A recording contains at most 200,000 operators, which take about 30 MB;
// operators that end after that are left out. The object may outlive its writer.
class [[nodiscard]] ProfilerTrace {
 public:
  ProfilerTrace(ProfilerTrace&&) noexcept;
  ProfilerTrace& operator=(ProfilerTrace&&) noexcept;
  ~ProfilerTrace();

 private:
  friend class SummaryWriter;
  struct Impl;
  explicit ProfilerTrace(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;  // null on replicas that do not write
};

// Writes the events of one run. TensorBoard groups tags by the part before a slash ("loss/train"). Bytes that are not
// valid UTF-8 are replaced by U+FFFD. `step` is the position on the x axis, in a unit of the caller's choice that must
// be the same for all events of a writer. The events of a tag should be logged in the order of their steps.
class SummaryWriter {
 public:
  // Creates `log_dir`, including its parents, and a file in it. Throws Error, which names the directory, if that fails,
  // and checkpoint::CheckpointError if the job has a checkpoint that cannot be read.
  explicit SummaryWriter(std::filesystem::path log_dir, SummaryWriterOptions options = {});
  // Writes the remaining events.
  ~SummaryWriter();
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  // Returns the directory given to the constructor.
  const std::filesystem::path& log_dir() const noexcept;

  // Logs a number, which TensorBoard keeps in single precision. NaN and infinities are shown as such.
  void add_scalar(std::string_view tag, double value, std::int64_t step);

  // Logs the distribution of values as counts in TensorFlow's buckets, each of whose limits is 10% above the previous
  // one. NaN and infinities are not counted. A tensor may have any shape and real type, and is counted on its device.
  // An undefined tensor, such as the gradient of an unused parameter, is ignored. A large tensor takes about 40 ns per
  // element on a CPU core.
  void add_histogram(std::string_view tag, const at::Tensor& values, std::int64_t step);
  void add_histogram(std::string_view tag, std::span<const double> values, std::int64_t step);

  // Logs one scalar per name, such as {{"train", 0.3}, {"test", 0.4}}, so that TensorBoard shows the curves in one
  // chart. Each name is a separate run with the tag `main_tag` in log_dir/<main_tag>_<name>, where '_' replaces each
  // '/'. The run's file and thread are created when the run is first logged to. If the file cannot be created, a single
  // warning is logged. Rank, `purge_step` and restarts have the same effect as for the writer, with one exception: in a
  // resumed job, the steps that a run logged after the checkpoint are discarded only at the next call that logs to this
  // run.
  void add_scalars(std::string_view main_tag, const std::map<std::string, double>& values, std::int64_t step);

  // Logs an image of shape [channels, height, width] or [height, width], on any device. 1 channel is gray, 3 are RGB,
  // and 4 are RGBA. uint8 values are from 0 to 255. Floating-point values are from 0 to 1; others are clamped, and NaN
  // becomes 0. The calling thread compresses the image as PNG. Throws UsageError for other types or shapes, an empty
  // tensor, more than 1 GiB of pixels, and sides over 1,000,000 pixels.
  void add_image(std::string_view tag, const at::Tensor& image, std::int64_t step);
  // Logs images of shape [number, channels, height, width] as a single image: a grid with 8 images per row, without
  // borders.
  void add_images(std::string_view tag, const at::Tensor& images, std::int64_t step);

  // Logs the precision and recall of a binary classifier at `num_thresholds` equidistant thresholds from 0 to 1. A
  // prediction at or above a threshold is positive. `labels` are 0 or 1, of any real type. `predictions` are
  // floating-point probabilities, one per label. Both may have any shape and be on any device. Predictions that are NaN
  // are not counted. Throws UsageError for other values or types, and for fewer than 2 or more than 10,000 thresholds.
  void add_pr_curve(std::string_view tag, const at::Tensor& labels, const at::Tensor& predictions, std::int64_t step,
                    int num_thresholds = 127);

  // Logs text in Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t step);

  // Logs this run's row in the table of hyperparameters. `metrics` are results by which runs can be compared; they are
  // also written as scalars. With metrics, TensorBoard shows the run as finished, so call this function at the end;
  // without metrics, its status is unknown. If there are several calls for one directory, TensorBoard shows the
  // hyperparameters of the first call.
  void add_hparams(const HParams& hparams, const std::map<std::string, double>& metrics = {}, std::int64_t step = 0);

  // Logs the graph of a model, with the shapes of its tensors. model.forward(inputs...) is traced in one pass in
  // evaluation mode, without gradients. The pass does not communicate, and leaves the model, the inputs and the random
  // number generators unchanged. `model` is a module holder, a shared_ptr to a module, or an AdaptiveDataParallel,
  // whose module is traced. Parameters are grouped by name. An operator is grouped with the parameters that it uses; an
  // operator without parameters, with the operators before and after it. TensorBoard shows the last graph of a
  // directory. Throws UsageError if an operation in forward() fails.
  template <class Model, class... Inputs>
  void add_graph(Model& model, const Inputs&... inputs);

  // Records the operators of a training step, from now until the result is destroyed:
  //
  //   std::optional<adaptdl::ProfilerTrace> trace;
  //   if (step == 100) trace = writer.profile(step);
  //
  // Throws UsageError while another recording exists in this process.
  ProfilerTrace profile(std::int64_t step);

  // Writes the collected events. Returns when the events are in the file, or when the write has failed.
  void flush();

 private:
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;
  bool writes() const noexcept;
  void add_traced_graph(torch::nn::Module& model, const std::vector<at::Tensor>& inputs, const Forward& forward);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

template <class Model, class... Inputs>
void SummaryWriter::add_graph(Model& model, const Inputs&... inputs) {
  if constexpr (requires { model.module(); }) {
    add_graph(model.module(), inputs...);
  } else if (writes()) {
    std::tuple<std::decay_t<Inputs>...> arguments{inputs...};
    std::vector<at::Tensor> tensors;
    const auto keep = [&](const at::Tensor& tensor) {
      if (tensor.defined()) tensors.push_back(tensor);
    };
    internal::each_tensor(arguments, keep);
    add_traced_graph(*model, tensors, [&](const std::vector<at::Tensor>& traced) {
      std::size_t next = 0;
      const auto take = [&](at::Tensor& tensor) {
        if (tensor.defined()) tensor = traced[next++];
      };
      internal::each_tensor(arguments, take);
      const auto output = std::apply([&](auto&... each) { return model->forward(each...); }, arguments);
      std::vector<at::Tensor> outputs;
      internal::collect(output, outputs);
      return outputs;
    });
  }
}

}  // namespace adaptdl
