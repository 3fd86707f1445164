// A table of text in aligned columns.
//
// Cells are made printable (see printable.h) and never wrap; columns are two spaces apart and have no trailing blanks.
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

  // REQUIRES one cell a column.
  void add_row(std::vector<std::string> cells);
  bool empty() const noexcept { return rows_.empty(); }

  // The lines of the table: the header, in bold with `colour`, then the rows. With `width`, lines are cut to it.
  std::string render(std::optional<std::size_t> width = {}, bool colour = false) const;

  // render() as it fits what is at the other end of standard output.
  void print() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace adaptdl::cli
