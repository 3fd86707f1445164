// The common parts of the training programs' command lines: the options, the log, and main's handling of errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace programs {

struct Options {
  std::string data;     // --data: where the data set is
  int epochs = 14;      // --epochs N: passes over the training data
  int batch_size = 64;  // --batch-size N: samples per step, over all replicas; with --autoscale-bsz the initial ones
  std::string optimizer = "sgd";  // --optimizer NAME: one of those that make_optimizer knows
  double lr = 1.0;                // --lr X: learning rate at the initial batch size
  std::uint64_t seed = 1;         // --seed N: seed of the initial parameters, the order of samples and dropout
  std::string log_json;           // --log-json FILE: where a JSON line per epoch is appended

  bool autoscale_bsz = false;      // --autoscale-bsz: choose the batch size by its goodput
  std::size_t max_batch_size = 0;  // --max-batch-size N: over all replicas; 0: 16 times batch_size
  std::optional<std::size_t> min_local_bsz, max_local_bsz;  // --local-bsz-bounds MIN:MAX: of a batch on one replica
  bool gradient_accumulation = true;                        // --no-gradient-accumulation: each batch is a step
  bool tensorboard = false;  // --tensorboard: write events; by default if ADAPTDL_TENSORBOARD_LOGDIR is set
  bool stop_on_nan = false;  // --stop-on-nan: fail at the first NaN or infinite gradient
};

// Parses the common options over the program's own `defaults`, and the options that `add_options` adds, and runs
// `body`. Returns main's exit code: 0 if the body succeeds, 2 after an invalid option or another UsageError, and 1
// after any other exception. An error is one line on standard error. Must be called once, from main.
int run_main(int argc, char** argv, const Options& defaults, const std::function<void(const Options&)>& body,
             const std::function<void(CLI::App&)>& add_options = {});

// Returns a validator, for add_options, that accepts numbers above 0.
CLI::Validator positive();

// Returns share/adaptdl/datasets/NAME in the nearest directory above this program that has it, in the source tree or
// where it is installed; empty if there is none.
std::string sample_data(const std::string& name);

// On rank 0, prints `fields` as one readable line, and appends them as a JSON line to `options.log_json` if set.
void log_epoch(const Options& options, const nlohmann::ordered_json& fields);

// Returns the seconds since run_main was called.
double elapsed();

}  // namespace programs
