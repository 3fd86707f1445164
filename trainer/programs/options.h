// What the training programs have in common: their command line, their log, and main's handling of errors.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace programs {

struct Options {
  std::string data;        // --data DIR: where the data set lies
  int epochs = 14;         // --epochs N: passes over the training data
  int batch_size = 64;     // --batch-size N: samples a step, over all replicas
  double lr = 1.0;         // --lr X: learning rate
  std::uint64_t seed = 1;  // --seed N: of the initial parameters, the order of samples and dropout
  std::string log_json;    // --log-json FILE: a JSON line an epoch is appended there
};

// Parses the common options over the program's own `defaults` and runs `body`. Returns main's exit code: that of the
// body's success is 0, 1 after an exception (one line on standard error), 2 after a wrong option. To be called once,
// from main.
int run_main(int argc, char** argv, const Options& defaults, const std::function<void(const Options&)>& body);

// The directory share/adaptdl/datasets/NAME beside this program: in the source tree or where it is installed; empty if
// none.
std::string sample_data(const std::string& name);

// On rank 0: prints `fields` as one readable line, and appends them as a JSON line to `options.log_json` if that is
// given.
void log_epoch(const Options& options, const nlohmann::ordered_json& fields);

}  // namespace programs
