// TensorBoard: a writer of event files that the real TensorBoard reads.
//
//   if (const auto directory = adaptdl::tensorboard_directory()) {
//     adaptdl::SummaryWriter writer(*directory);
//     ...
//     writer.add_scalar("loss/train", loss, step);
//   }
//
// One writer makes one file, `events.out.tfevents.SECONDS.HOST.PID.N`, in its directory, which is what TensorBoard
// calls a run. Rank 0 writes; on the other replicas every call does nothing.
//
// Cost: a call encodes its event into memory and returns; a thread writes what has gathered every few seconds, at each
// checkpoint, and when the writer is destroyed or the job stops at a step boundary. What a killed process had not
// written yet is lost.
//
// Restarts: a resumed job goes on in a new file of the same directory. Its checkpoint has the last step of each tag
// (state "adaptdl-tensorboard"). Steps that were logged after that are void for TensorBoard; those that the job logs
// again while it replays the program up to where it was interrupted are left out. So every step appears once.
//
// Errors: a directory that cannot be written to is an Error when the writer is made. Later trouble, such as a full
// disk, is a single warning: training goes on, events wait in memory, 64 MiB at most, and are written when that works
// again.
//
// Threading: add_* and flush may be called from any thread, but add_graph and profile by the training thread, which
// also makes and destroys the writer.
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

// Where this job's events belong: a directory with the job's name in $ADAPTDL_TENSORBOARD_LOGDIR, the name being the
// part of $ADAPTDL_JOB_ID behind the namespace; without a job, that directory itself. Nullopt if the variable is unset.
std::optional<std::filesystem::path> tensorboard_directory();

// Options of SummaryWriter.
struct SummaryWriterOptions {
  // TensorBoard is to forget the events of this and later steps that earlier files of the directory have. Unset: those
  // after the last step that the checkpoint knows of, all if the job was restarted without one, none in a new job.
  std::optional<std::int64_t> purge_step;
  // How long an event waits in memory at most. Shorter shows and saves it sooner, longer means fewer writes; 0 writes
  // each at once.
  std::chrono::milliseconds flush_every = std::chrono::seconds(10);
  // Whether replicas other than rank 0 write too: then give each a directory, and when it is resumed a `purge_step`, of
  // its own.
  bool all_ranks = false;
};

// Hyperparameters by name.
using HParams = std::map<std::string, std::variant<bool, std::int64_t, double, std::string>>;

// A recording of the operators that run in this process while it lives, with their times, on all threads: those of
// forward and backward passes, optimizers, data loaders and collective operations, and what the program marks with
// RECORD_USER_SCOPE("name") of <ATen/record_function.h>. On a GPU, the times are those of the calls that launch
// kernels, not of the kernels.
//
// The destructor writes it, also when an exception leaves the scope, to the file `HOST_PID.TIME.pt.trace.json` in the
// writer's directory, which TensorBoard's plugin torch-tb-profiler, Perfetto and chrome://tracing show. A file that
// cannot be written is a warning. The recording has 200,000 operators at most, which take some 30 MB; it lacks those
// that end later. It may outlive its writer.
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

// Tags group by what stands before a slash ("loss/train"). Text that is not UTF-8 is mended. `step` is the x axis, in
// a unit of the caller's choice, the same one for all events of a writer; events of one tag should come in its order.
class SummaryWriter {
 public:
  // Creates `log_dir`, with parents, and the file in it. Throws Error, which names the directory, if that fails;
  // checkpoint::CheckpointError if the job has a checkpoint that cannot be read.
  explicit SummaryWriter(std::filesystem::path log_dir, SummaryWriterOptions options = {});
  // Writes what is left.
  ~SummaryWriter();
  SummaryWriter(const SummaryWriter&) = delete;
  SummaryWriter& operator=(const SummaryWriter&) = delete;

  // As given to the constructor.
  const std::filesystem::path& log_dir() const noexcept;

  // A number, which TensorBoard keeps in single precision. NaN and infinities are shown as such.
  void add_scalar(std::string_view tag, double value, std::int64_t step);

  // The distribution of values: counts in TensorFlow's buckets, whose limits grow by 10%. NaN and infinities are not
  // counted. A tensor may be on any device, of any shape and real type, and is counted there; an undefined one, such as
  // the gradient of an unused parameter, is left out. A large tensor takes some 40 ns an element on a CPU core.
  void add_histogram(std::string_view tag, const at::Tensor& values, std::int64_t step);
  void add_histogram(std::string_view tag, std::span<const double> values, std::int64_t step);

  // One scalar per name, to compare curves in one chart, such as {{"train", 0.3}, {"test", 0.4}}: the tag `main_tag` in
  // a run of its own, log_dir/<main_tag>_<name> with '_' for each '/'. Such a run is a file and a thread, created when
  // it is first logged to; a file that cannot be created is a single warning. Rank, `purge_step` and restarts work as
  // for the writer, but in a resumed job, the steps that a run logged after the checkpoint become void only when the
  // run is logged to again.
  void add_scalars(std::string_view main_tag, const std::map<std::string, double>& values, std::int64_t step);

  // An image of shape [channels, height, width] or [height, width], on any device: 1 channel is gray, 3 are RGB, 4 are
  // RGBA. uint8 is 0 to 255; floating point is 0 to 1, values outside are clamped, and NaN is 0. The calling thread
  // compresses it as PNG. Throws UsageError for other types or shapes, an empty tensor, more than 1 GiB of pixels, and
  // sides over 1,000,000 pixels.
  void add_image(std::string_view tag, const at::Tensor& image, std::int64_t step);
  // One image of several of shape [number, channels, height, width]: a grid of 8 per row, without borders.
  void add_images(std::string_view tag, const at::Tensor& images, std::int64_t step);

  // The precision and recall of a binary classifier at `num_thresholds` thresholds from 0 to 1, at equal distances: a
  // prediction at or above a threshold is positive. `labels` are 0 or 1 of any real type, `predictions` as many
  // floating-point probabilities; both may be of any shape and on any device. Predictions that are NaN are not counted.
  // Throws UsageError for other values or types, and for fewer than 2 or more than 10,000 thresholds.
  void add_pr_curve(std::string_view tag, const at::Tensor& labels, const at::Tensor& predictions, std::int64_t step,
                    int num_thresholds = 127);

  // Text in Markdown.
  void add_text(std::string_view tag, std::string_view text, std::int64_t step);

  // This run's line in the table of hyperparameters. `metrics` are results to compare runs by; they are written as
  // scalars too. With metrics the run counts as finished, so call it at the end; without, as running. Of several calls
  // for one directory, TensorBoard shows the first one's hyperparameters.
  void add_hparams(const HParams& hparams, const std::map<std::string, double>& metrics = {}, std::int64_t step = 0);

  // The graph of a model, with the shapes of its tensors: what model.forward(inputs...) does, traced by one pass in
  // evaluation mode, without gradients. It communicates nothing, and leaves the model, the inputs and the random
  // generators as they are. `model` is a module holder, a shared_ptr to a module, or an AdaptiveDataParallel, whose
  // module is traced. Parameters are grouped by their names, operators with the parameters that they use, and operators
  // without parameters by those that run before and after them. TensorBoard shows the last graph of a directory. Throws
  // UsageError if an operation in forward() fails.
  template <class Model, class... Inputs>
  void add_graph(Model& model, const Inputs&... inputs);

  // Records the operators of a training step, from now until the result is destroyed:
  //
  //   std::optional<adaptdl::ProfilerTrace> trace;
  //   if (step == 100) trace = writer.profile(step);
  //
  // Throws UsageError while another one is recorded in this process.
  ProfilerTrace profile(std::int64_t step);

  // Writes what has gathered; returns when it is in the file, or when that failed.
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
