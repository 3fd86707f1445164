#include "view/search_screen.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/counted.h"
#include "base/printable.h"
#include "terminal/format.h"
#include "terminal/table.h"
#include "terminal/terminal.h"
#include "view/status_line.h"

namespace adaptdl::cli {
namespace {

constexpr std::size_t kMinParameters = 12;  // columns
constexpr std::size_t kMaxMetric = 16;      // columns for the metric's name
constexpr std::size_t kUsualHeight = 24;
constexpr std::size_t kParameters = 2;  // index of the column

// Opens the terminal again in non-blocking mode, so that other processes that use the terminal do not share this mode.
Fd reopen_terminal() { return Fd(::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)); }

bool in_background(int fd) {
  const pid_t foreground = ::tcgetpgrp(fd);
  return foreground >= 0 && foreground != ::getpgrp();
}

// Returns the width of a line in columns, without its color sequences.
std::size_t visible_width(std::string_view line) {
  std::size_t width = display_width(line);
  for (std::size_t at = line.find('\x1b'); at != std::string_view::npos; at = line.find('\x1b', at + 1))
    width -= colour_sequence_size(line.substr(at));
  return width;
}

std::string number_or_dash(const std::optional<int>& number) { return number ? fmt::format("{}", *number) : "-"; }

std::string value_text(const std::optional<double>& value) { return value ? fmt::format("{:.6g}", *value) : "-"; }

std::vector<std::string> trial_cells(const TrialRow& row) {
  return {fmt::format("{}", row.number),
          row.state,
          printable(row.parameters),
          value_text(row.value),
          number_or_dash(row.rung),
          number_or_dash(row.replicas),
          row.goodput ? rate_text(*row.goodput) : "-",
          row.left ? format_clock(*row.left) : "-"};
}

std::vector<Table::Column> trial_columns(const std::string& metric) {
  using Align = Table::Align;
  std::string title = truncated(printable(metric), kMaxMetric);
  std::ranges::transform(title, title.begin(), [](unsigned char c) { return std::toupper(c); });
  return {{"TRIAL", Align::kRight},
          {"STATE"},
          {"PARAMETERS"},
          {title, Align::kRight},
          {"RUNG", Align::kRight},
          {"REPLICAS", Align::kRight},
          {"GOODPUT", Align::kRight},
          {"ETA", Align::kRight}};
}

// Returns the number of columns that are left for the parameters.
std::size_t parameters_width(const std::vector<Table::Column>& columns,
                             const std::vector<std::vector<std::string>>& rows, std::size_t width) {
  std::size_t others = 2 * (columns.size() - 1);
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (i == kParameters) continue;
    std::size_t widest = display_width(columns[i].header);
    for (const auto& row : rows) widest = std::max(widest, display_width(row[i]));
    others += widest;
  }
  return std::max(kMinParameters, width > others ? width - others : 0);
}

std::vector<std::string> split_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<std::string> table_lines(const SearchSnapshot& snapshot, std::size_t count, std::size_t width,
                                     bool colour) {
  std::vector<std::vector<std::string>> rows;
  for (std::size_t i = 0; i < count; ++i) rows.push_back(trial_cells(snapshot.rows[i]));
  const auto titles = trial_columns(snapshot.metric);
  const std::size_t limit = parameters_width(titles, rows, width);
  Table table(titles);
  for (auto& row : rows) {
    row[kParameters] = truncated(row[kParameters], limit);
    table.add_row(std::move(row));
  }
  return split_lines(table.render(width, colour));
}

std::string counts_text(const SearchSnapshot& snapshot) {
  std::string text =
      fmt::format("{}: {} of {}", printable(snapshot.study), snapshot.trials, counted(snapshot.all, "trial"));
  for (const auto& [state, trials] : snapshot.counts) text += fmt::format(", {} {}", trials, state);
  return text +
         fmt::format("  {}  {} device-hours", format_clock(snapshot.elapsed), format_hours(snapshot.device_seconds));
}

std::string best_text(const SearchSnapshot& snapshot) {
  if (!snapshot.best) return fmt::format("best: no trial has a value of '{}' yet", printable(snapshot.metric));
  return fmt::format("best: trial {}, {} {}: {}", snapshot.best->number, printable(snapshot.metric),
                     value_text(snapshot.best->value), printable(snapshot.best->parameters));
}

}  // namespace

std::vector<std::string> search_lines(const SearchSnapshot& snapshot, std::size_t width, std::size_t height,
                                      bool colour) {
  constexpr std::size_t kAbove = 3;  // counts, the best trial, and the header
  std::vector<std::string> lines;
  lines.push_back(coloured(truncated(counts_text(snapshot), width), Colour::kBold, colour));
  lines.push_back(coloured(truncated(best_text(snapshot), width), Colour::kGreen, colour));
  if (height > kAbove && !snapshot.rows.empty()) {
    const std::size_t room = height - kAbove;
    const bool all = static_cast<std::size_t>(snapshot.trials) <= std::min(room, snapshot.rows.size());
    const std::size_t count = all ? snapshot.rows.size() : std::min(room - 1, snapshot.rows.size());
    for (std::string& line : table_lines(snapshot, count, width, colour)) lines.push_back(std::move(line));
    if (!all)
      lines.push_back(
          coloured(truncated(fmt::format("... and {} more", snapshot.trials - static_cast<int>(count)), width),
                   Colour::kDim, colour));
  }
  if (lines.size() > height) lines.resize(height);
  return lines;
}

SearchScreen::SearchScreen()
    : terminal_(reopen_terminal()),
      fd_(terminal_ ? terminal_.get() : STDERR_FILENO),
      colour_(use_colour(STDERR_FILENO)) {}

// Leaves one line free for the cursor, and one column, because some terminals wrap a line that fills the last column.
SearchScreen::Size SearchScreen::size() const {
  const std::size_t width = terminal_width(fd_).value_or(kUsualWidth);
  const std::size_t height = terminal_height(fd_).value_or(kUsualHeight);
  return {std::max<std::size_t>(width, 2) - 1, std::max<std::size_t>(height, 2) - 1};
}

void SearchScreen::notice(std::string_view text) {
  // While the terminal accepts no output, notices beyond a limit are dropped.
  if (notices_.size() < OutputQueue::kFull) notices_ += "adaptdl: " + printable(text) + '\n';
}

// Returns the text that moves the cursor to the first drawn line, and erases everything from there. Lines that have
// become too wide occupy several rows, because terminals wrap them.
std::string SearchScreen::wiping() const {
  const std::size_t width = terminal_width(fd_).value_or(kUsualWidth);
  std::size_t rows = 0;
  for (const std::string& line : drawn_) {
    const std::size_t size = visible_width(line);
    rows += size > width ? (size + width - 1) / width : 1;
  }
  return rows == 0 ? "" : fmt::format("\x1b[{}A\r\x1b[J", rows);
}

void SearchScreen::draw(std::vector<std::string> lines, Clock::time_point now) {
  queue_.write_some();
  const bool hidden = in_background(fd_);
  if (hidden) {
    forget();
    lines.clear();
  }
  if (!queue_.empty() || now - drawn_at_ < kRedrawEvery || (notices_.empty() && lines == drawn_)) return;
  drawn_at_ = now;
  std::string text = wiping() + notices_;
  notices_.clear();
  for (const std::string& line : lines) text += line + '\n';
  drawn_ = std::move(lines);
  queue_.put(fd_, std::move(text));
  queue_.write_some();
}

void SearchScreen::close() {
  queue_.put(fd_, (in_background(fd_) ? "" : wiping()) + notices_);
  notices_.clear();
  forget();
  queue_.write_all();
}

}  // namespace adaptdl::cli
