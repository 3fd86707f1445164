#include "terminal/table.h"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "base/printable.h"
#include "terminal/print.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {

void Table::add_row(std::vector<std::string> cells) {
  if (cells.size() != columns_.size()) throw std::logic_error("a table row needs one cell per column");
  for (std::string& cell : cells) cell = printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::render(std::optional<std::size_t> width, bool colour) const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t widest = display_width(columns_[i].header);
    for (const auto& row : rows_) widest = std::max(widest, display_width(row[i]));
    widths.push_back(widest);
  }
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const std::string padding(widths[i] - display_width(cell), ' ');
      if (i > 0) text += "  ";
      text += columns_[i].align == Align::kRight ? padding + cell : cell + padding;
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return width ? truncated(text, *width) : text;
  };
  std::string out = coloured(line([this](std::size_t i) -> const std::string& { return columns_[i].header; }),
                             Colour::kBold, colour) +
                    '\n';
  for (const auto& row : rows_) out += line([&row](std::size_t i) -> const std::string& { return row[i]; }) + '\n';
  return out;
}

void Table::print() const { print_text(render(terminal_width(STDOUT_FILENO), use_colour(STDOUT_FILENO))); }

}  // namespace adaptdl::cli
