// Table formats text in aligned columns.
//
// Cells are made printable (see printable.h) and never wrap. Columns are separated by two spaces; lines have no
// trailing blanks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace adaptdl::cli {

class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string header;
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // REQUIRES one cell per column.
  void add_row(std::vector<std::string> cells);
  bool empty() const noexcept { return rows_.empty(); }

  // Returns the table's lines, truncated to `width` if given: the header, in bold if `colour` is set, and the rows.
  std::string render(std::optional<std::size_t> width = {}, bool colour = false) const;

  // Prints the table to standard output. If standard output is a terminal, the table is truncated to the terminal's
  // width and may be colored.
  void print() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace adaptdl::cli
