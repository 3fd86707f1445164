#include "options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/log.h"

namespace programs {

namespace {

using adaptdl::UsageError;
using Clock = std::chrono::steady_clock;

constexpr const char* kTensorBoard = "ADAPTDL_TENSORBOARD_LOGDIR";

Clock::time_point& start() {
  static Clock::time_point time = Clock::now();
  return time;
}

// Checks that the log can be written, before the first epoch rather than after it.
void check_log(const Options& options) {
  if (options.log_json.empty() || adaptdl::env::replica_rank() != 0) return;
  if (!std::ofstream(options.log_json, std::ios::app))
    throw UsageError(fmt::format("cannot write to '{}' (--log-json): {}", options.log_json, std::strerror(errno)));
}

// Parses one side of --local-bsz-bounds; returns nullopt if it is empty.
std::optional<std::size_t> parse_bound(std::string_view side, const std::string& whole) {
  if (side.empty()) return {};
  std::size_t samples = 0;
  const auto [end, error] = std::from_chars(side.data(), side.data() + side.size(), samples);
  if (error != std::errc() || end != side.data() + side.size() || samples == 0)
    throw UsageError(
        fmt::format("invalid --local-bsz-bounds '{}': expected MIN:MAX in samples, either of which may be omitted "
                    "(32:, :256)",
                    whole));
  return samples;
}

void parse_bounds(const std::string& text, bool accumulation_wanted, Options& options) {
  const auto colon = text.find(':');
  const auto bounds = std::string_view(text);
  if (colon == std::string::npos || text.size() == 1) parse_bound(":", text);  // throws the error for a wrong format
  options.min_local_bsz = parse_bound(bounds.substr(0, colon), text);
  options.max_local_bsz = parse_bound(bounds.substr(colon + 1), text);
  const auto initial = static_cast<std::size_t>(options.batch_size);
  const auto low = options.min_local_bsz.value_or(1), high = options.max_local_bsz.value_or(SIZE_MAX);
  if (low > high)
    throw UsageError(fmt::format("--local-bsz-bounds {}: the lower bound is above the upper bound", text));
  if (low > initial) throw UsageError(fmt::format("--local-bsz-bounds {} excludes --batch-size {}", text, initial));
  if (high < initial && !accumulation_wanted) {
    throw UsageError(
        fmt::format("--local-bsz-bounds {} excludes --batch-size {}, the initial batch size of a single replica; "
                    "raise the upper bound, or specify --gradient-accumulation to begin with steps of several batches",
                    text, initial));
  }
}

void check_max_batch_size(Options& options) {
  const auto initial = static_cast<std::size_t>(options.batch_size);
  if (options.max_batch_size == 0) options.max_batch_size = 16 * initial;
  if (options.max_batch_size < initial)
    throw UsageError(
        fmt::format("--max-batch-size {} is smaller than --batch-size {}", options.max_batch_size, initial));
}

// Returns a typical learning rate, for users who select an optimizer other than the program's but no learning rate.
double usual_lr(const std::string& optimizer) {
  if (optimizer == "adadelta") return 1.0;
  return optimizer == "sgd" ? 0.05 : 0.001;
}

// The command line: the options that CLI11 sets, and their checks and defaults after parsing.
class CommandLine {
 public:
  CommandLine(Options& options, const std::function<void(CLI::App&)>& add_options)
      : options_(options),
        own_optimizer_(options.optimizer),
        app_(
            "Training program for adaptdl. Runs alone, under `adaptdl run`, or with ADAPTDL_* variables set by hand.") {
    options_.tensorboard = adaptdl::env::tensorboard_logdir().has_value();
    add_training();
    add_adaptive();
    if (add_options) add_options(app_);
    app_.failure_message(
        [](const CLI::App*, const CLI::Error& error) { return fmt::format("error: {}\n", error.what()); });
  }

  // Returns the exit code if the program must end.
  std::optional<int> parse(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? 0 : 2;
    }
    if (options_.optimizer != own_optimizer_ && lr_->empty()) options_.lr = usual_lr(options_.optimizer);
    check_max_batch_size(options_);
    if (!bounds_.empty()) parse_bounds(bounds_, accumulation_->count() > 0 && options_.gradient_accumulation, options_);
    if (options_.tensorboard && !adaptdl::env::tensorboard_logdir())
      throw UsageError(fmt::format("--tensorboard requires a directory for the events; set {}", kTensorBoard));
    check_log(options_);
    return {};
  }

 private:
  void add_training() {
    app_.add_option("--data", options_.data, "Path to the dataset")->capture_default_str();
    app_.add_option("--epochs", options_.epochs, "Number of passes over the training data")
        ->check(positive())
        ->capture_default_str();
    app_.add_option("--batch-size", options_.batch_size, "Number of samples per step, summed across all replicas")
        ->check(positive())
        ->capture_default_str();
    app_.add_option("--optimizer", options_.optimizer, "Optimizer")
        ->check(CLI::IsMember({"sgd", "adam", "adamw", "adadelta"}))
        ->capture_default_str();
    lr_ = app_.add_option("--lr", options_.lr, "Learning rate at --batch-size (the default depends on --optimizer)")
              ->check(positive())
              ->capture_default_str();
    app_.add_option("--seed", options_.seed, "Seed for the initial parameters, the sample order and dropout")
        ->capture_default_str();
    app_.add_option("--log-json", options_.log_json, "Append one JSON line per epoch to this file");
    app_.add_flag("--tensorboard,!--no-tensorboard", options_.tensorboard,
                  fmt::format("Write TensorBoard events under ${0} (default: yes if {0} is set)", kTensorBoard));
    app_.add_flag("--stop-on-nan", options_.stop_on_nan, "Fail at the first NaN or infinite gradient");
  }

  void add_adaptive() {
    auto* const autoscale =
        app_.add_flag("--autoscale-bsz", options_.autoscale_bsz,
                      "Adapt the batch size during training for the best goodput, starting at --batch-size");
    app_.add_option("--max-batch-size", options_.max_batch_size,
                    "Maximum batch size across all replicas (default: 16 times --batch-size)")
        ->check(positive())
        ->needs(autoscale);
    app_.add_option("--local-bsz-bounds", bounds_,
                    "Bounds on the batch size per replica, MIN:MAX; either may be omitted")
        ->needs(autoscale);
    accumulation_ = app_.add_flag("--gradient-accumulation,!--no-gradient-accumulation", options_.gradient_accumulation,
                                  "Allow steps of several batches (default: yes)")
                        ->needs(autoscale);
  }

  Options& options_;
  const std::string own_optimizer_;
  std::string bounds_;
  CLI::App app_;
  CLI::Option *lr_ = nullptr, *accumulation_ = nullptr;
};

}  // namespace

int run_main(int argc, char** argv, const Options& defaults, const std::function<void(const Options&)>& body,
             const std::function<void(CLI::App&)>& add_options) {
  start();
  try {
    Options options = defaults;
    CommandLine command_line(options, add_options);
    if (const auto code = command_line.parse(argc, argv)) return *code;
    body(options);
    return 0;
  } catch (const UsageError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    // LibTorch's errors contain a backtrace; the first line is the message.
    const std::string text = error.what();
    fmt::print(stderr, "error: {}\n", text.substr(0, text.find('\n')));
    return 1;
  }
}

CLI::Validator positive() {
  const auto check = [](const std::string& text) {
    double number = 0;
    const bool good = CLI::detail::lexical_cast(text, number) && number > 0;
    return good ? std::string() : fmt::format("'{}' is not a number above 0", text);
  };
  return CLI::Validator(check, "POSITIVE");
}

std::string sample_data(const std::string& name) {
  std::error_code error;
  auto directory = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (; !error && directory.has_relative_path(); directory = directory.parent_path()) {
    const auto candidate = directory / "share/adaptdl/datasets" / name;
    if (std::filesystem::is_directory(candidate, error)) return candidate;
    error.clear();
  }
  return {};
}

void log_epoch(const Options& options, const nlohmann::ordered_json& fields) {
  if (adaptdl::env::replica_rank() != 0) return;
  std::string line;
  for (const auto& [name, value] : fields.items()) {
    line += value.is_number_float() ? fmt::format("{} {:.4f}  ", name, value.get<double>())
                                    : fmt::format("{} {}  ", name, value.dump());
  }
  fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
  std::fflush(stdout);
  if (options.log_json.empty()) return;
  std::ofstream file(options.log_json, std::ios::app);
  file << fields.dump() << std::endl;
  if (!file)
    adaptdl::log::warn(fmt::format("cannot write to '{}' (--log-json): {}", options.log_json, std::strerror(errno)));
}

double elapsed() { return std::chrono::duration<double>(Clock::now() - start()).count(); }

}  // namespace programs
