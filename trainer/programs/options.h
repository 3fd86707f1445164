// The common parts of the training programs' command lines: the options, the log, and the handling of errors in main.
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
  std::string data;     // --data: path to the dataset
  int epochs = 14;      // --epochs N: passes over the training data
  int batch_size = 64;  // --batch-size N: samples per step across all replicas; with --autoscale-bsz, at the start
  std::string optimizer = "sgd";  // --optimizer NAME: a name that make_optimizer accepts
  double lr = 1.0;                // --lr X: learning rate at the initial batch size
  std::uint64_t seed = 1;         // --seed N: seed of the initial parameters, the order of samples and dropout
  std::string log_json;           // --log-json FILE: file to which a JSON line per epoch is appended

  bool autoscale_bsz = false;      // --autoscale-bsz: choose the batch size by goodput
  std::size_t max_batch_size = 0;  // --max-batch-size N: across all replicas; 0: 16 times batch_size
  std::optional<std::size_t> min_local_bsz, max_local_bsz;  // --local-bsz-bounds MIN:MAX: per replica
  bool gradient_accumulation = true;                        // --no-gradient-accumulation: each batch is a step
  bool tensorboard = false;  // --tensorboard: write events (default: if ADAPTDL_TENSORBOARD_LOGDIR is set)
  bool stop_on_nan = false;  // --stop-on-nan: fail at the first NaN or infinite gradient
};

// Parses the common options, with the program's own `defaults`, and the options that `add_options` adds. Then runs
// `body`. Returns main's exit code: 0 if the body succeeds, 2 after an invalid option or another UsageError, and 1
// after any other exception. Prints an error as one line on standard error. Must be called once, from main.
int run_main(int argc, char** argv, const Options& defaults, const std::function<void(const Options&)>& body,
             const std::function<void(CLI::App&)>& add_options = {});

// Returns a validator, for add_options, that accepts numbers above 0.
CLI::Validator positive();

// Returns the path of share/adaptdl/datasets/NAME in the nearest directory above this program that contains it, in the
// source tree or in the installation. Returns "" if there is none.
std::string sample_data(const std::string& name);

// On rank 0, prints `fields` as one readable line, and appends them as a JSON line to `options.log_json` if that is
// set.
void log_epoch(const Options& options, const nlohmann::ordered_json& fields);

// Returns the seconds since run_main was called.
double elapsed();

}  // namespace programs
