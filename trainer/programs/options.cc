#include "options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/log.h"

namespace programs {

namespace {

// Finds out before the first epoch, not after it, that the log cannot be written.
void check_log(const Options& options) {
  if (options.log_json.empty() || adaptdl::env::replica_rank() != 0) return;
  if (!std::ofstream(options.log_json, std::ios::app))
    throw adaptdl::UsageError(fmt::format("cannot write to {} (--log-json)", options.log_json));
}

}  // namespace

int run_main(int argc, char** argv, const Options& defaults, const std::function<void(const Options&)>& body) {
  Options options = defaults;
  CLI::App app(
      "A training program on adaptdl. Alone, under `adaptdl run`, or with the ADAPTDL_* variables set by hand.");
  app.add_option("--data", options.data, "Where the data set lies")->capture_default_str();
  app.add_option("--epochs", options.epochs, "Passes over the training data")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Samples a step, over all replicas")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--lr", options.lr, "Learning rate")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of parameters, order of samples and dropout")->capture_default_str();
  app.add_option("--log-json", options.log_json, "File to which a JSON line an epoch is appended");
  try {
    app.parse(argc, argv);
    check_log(options);
    body(options);
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const adaptdl::UsageError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    // LibTorch's errors carry a backtrace: the first line says what happened.
    const std::string text = error.what();
    fmt::print(stderr, "error: {}\n", text.substr(0, text.find('\n')));
    return 1;
  }
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
  if (!file) adaptdl::log::warn(fmt::format("cannot write to {} (--log-json)", options.log_json));
}

}  // namespace programs
