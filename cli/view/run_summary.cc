#include "view/run_summary.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

using sched::Verdict;

std::string failure(const sched::LaunchResult& result, bool colour) {
  const sched::ReplicaEnd& first = *result.outcome.first_failure;
  std::string text;
  if (!result.last_lines.empty()) {
    text += fmt::format("adaptdl: last lines of replica {}:\n", first.rank);
    for (const std::string& line : result.last_lines) text += "  | " + line + '\n';
  }
  text +=
      coloured(fmt::format("adaptdl: error: replica {} failed first: it {}", first.rank, sched::describe_end(first)),
               Colour::kRed, colour) +
      '\n';
  std::string others;
  for (const sched::ReplicaEnd& end : result.ends) {
    if (end.rank == first.rank) continue;
    others += fmt::format("{}replica {} {}", others.empty() ? "" : ", ", end.rank, sched::describe_end(end));
    if (end.killed || end.asked) others += " when stopped";
  }
  if (!others.empty()) text += fmt::format("adaptdl: other replicas: {}\n", others);
  return text;
}

std::string checkpoint_name(const sched::CheckpointNote& note) {
  return fmt::format("'{}'", printable(note.path.string())) +
         (note.epoch ? fmt::format(" (epoch {:g})", *note.epoch) : "");
}

// Describes the run's newest checkpoint, and how to continue from it.
std::string where_to_go_on(const sched::LaunchResult& result, const RunSummary& about) {
  if (!about.checkpoints) return "adaptdl: no checkpoint was saved because of --no-checkpoint\n";
  if (!result.checkpoint) return "adaptdl: no checkpoint was saved\n";
  return fmt::format("adaptdl: the newest checkpoint is {}; to continue from it:\n  {}\n",
                     checkpoint_name(*result.checkpoint), about.resume);
}

}  // namespace

std::string run_summary(const sched::LaunchResult& result, const RunSummary& about) {
  const auto headline = [&about](std::string_view text, Colour colour) {
    return coloured(text, colour, about.colour) + '\n';
  };
  switch (result.outcome.verdict) {
    case Verdict::kDone:
      return "";
    case Verdict::kCheckpointed:
      return headline(fmt::format("adaptdl: stopped with checkpoint {}", checkpoint_name(*result.checkpoint)),
                      Colour::kGreen) +
             fmt::format("adaptdl: to continue, with any number of replicas:\n  {}\n", about.resume);
    case Verdict::kNothingSaved:
      if (!about.checkpoints)
        return headline("adaptdl: stopped; no checkpoint was saved because of --no-checkpoint", Colour::kYellow);
      return headline(
                 "adaptdl: error: the replicas stopped without saving a checkpoint; either their first step had not "
                 "begun, or the program does not handle SIGTERM",
                 Colour::kRed) +
             where_to_go_on(result, about);
    case Verdict::kGraceExpired:
      return headline("adaptdl: error: replicas did not stop within the grace period and were killed; raise --grace",
                      Colour::kRed) +
             where_to_go_on(result, about);
    case Verdict::kNotStarted:
      return headline("adaptdl: stopped while waiting for devices; no replica was started", Colour::kYellow);
    case Verdict::kKilled:
      return headline("adaptdl: killed; progress since the last checkpoint is lost", Colour::kRed) +
             where_to_go_on(result, about);
    case Verdict::kFailed:
      return failure(result, about.colour) + where_to_go_on(result, about);
  }
  return "";
}

std::string shell_command(const std::vector<std::string>& words) {
  static constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./_-";
  std::string command;
  for (const std::string& word : words) {
    if (!command.empty()) command += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      command += word;
      continue;
    }
    // $'…' has the same escapes as printable().
    std::string quoted, escaped;
    for (const char c : word) {
      quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      escaped += (c == '\'' || c == '\\' ? "\\" : "") + std::string(1, c);
    }
    command += printable(word) == word ? '\'' + quoted + '\'' : "$'" + printable(escaped) + '\'';
  }
  return command;
}

}  // namespace adaptdl::cli
