#include "kube/copy/shell.h"

#include <fmt/format.h>

#include <algorithm>

namespace adaptdl::kube {
namespace {

constexpr int kNoSuchCommand = 127;
constexpr std::size_t kMaxOutputSize = std::size_t{1} << 20;

// Returns the first line of error output, without control characters.
std::string first_line(std::string text) {
  text.erase(0, text.find_first_not_of("\r\n"));
  text.resize(std::min(text.size(), text.find_first_of("\r\n")));
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  return text;
}

void append(std::string& text, std::string_view more) {
  text += more.substr(0, kMaxOutputSize - std::min(kMaxOutputSize, text.size()));
}

}  // namespace

void check(const std::stop_token& stop) {
  if (stop.stop_requested()) throw Interrupted();
}

std::vector<std::string> script(std::string_view text, const std::vector<std::string>& arguments) {
  std::vector<std::string> command{"sh", "-c", std::string(text), "sh"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

void feed_to(Process& process, const Feed& feed) {
  try {
    for (std::string_view piece; !(piece = feed()).empty();) process.write(piece);
  } catch (const Broken&) {
    // Reading throws this error again unless the process has ended.
  }
}

Outcome run(Shell& shell, std::string_view text, const std::vector<std::string>& arguments, const Feed& feed) {
  Outcome outcome;
  const auto process = shell.start(script(text, arguments), feed != nullptr);
  if (feed) feed_to(*process, feed);
  while (process->read([&](std::string_view more) { append(outcome.out, more); },
                       [&](std::string_view more) { append(outcome.err, more); })) {
  }
  outcome.exit_code = process->exit_code();
  return outcome;
}

void refuse(const Shell& shell, const std::string& action, const Outcome& outcome) {
  std::string why = first_line(outcome.err);
  if (outcome.exit_code == kNoSuchCommand) {
    why += ": " + shell.missing_program();
  } else if (why.empty()) {
    why = fmt::format("the command exited with code {}", outcome.exit_code);
  }
  throw Error(fmt::format("cannot {} in {}: {}", action, shell.name(), why));
}

}  // namespace adaptdl::kube
