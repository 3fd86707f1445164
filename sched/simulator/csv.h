// A strict reader of small CSV files, whose cells are comma-separated and whose first line names the columns.
//
// Cells may be in double quotes (with "" for a quote), but must end on the line on which they begin. A byte order mark,
// CRLF, blanks around a cell and blank lines are accepted. Columns may be in any order, and unused columns are ignored.
//
// Every error is an Error with one line, "FILE:LINE:COLUMN: what is wrong; what to do". Columns are counted in
// characters; if the file cannot be read, the error names only the file. A Csv is const after construction.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::sched {

class Csv {
 public:
  // The columns in `required` must exist. Throws if the file cannot be read, is not UTF-8 text, has no rows, or has a
  // row whose number of cells differs from the number of columns.
  Csv(const std::filesystem::path& file, const std::vector<std::string_view>& required);

  std::size_t rows() const noexcept { return rows_.size(); }
  bool has(std::string_view column) const;

  // REQUIRES that the row and the column exist, here and below.
  const std::string& text(std::size_t row, std::string_view column) const;
  // Returns a finite number from `min_value` to `max_value`. Throws on anything else.
  double number(std::size_t row, std::string_view column, double min_value = 0, double max_value = 1e100) const;
  // Returns an integer from 1 to a billion. Throws on anything else.
  int count(std::size_t row, std::string_view column) const;

  // Throws an Error that points to the cell.
  [[noreturn]] void fail(std::size_t row, std::string_view column, std::string_view what) const;

 private:
  struct Cell {
    std::string text;
    std::size_t column = 1;
  };
  struct Row {
    std::vector<Cell> cells;
    std::size_t line = 0;
    std::size_t end = 1;  // column after the last character
  };
  Row parse(std::string_view line, std::size_t number) const;
  void check_text(std::string_view line, std::size_t number) const;
  void check_header(const std::vector<std::string_view>& required) const;
  const Cell& cell(std::size_t row, std::string_view column) const;
  [[noreturn]] void fail(std::size_t line, std::size_t column, std::string_view what) const;

  std::filesystem::path file_;
  Row header_;
  std::vector<Row> rows_;
};

// Returns the contents of a file. Throws Error, naming the file, if it cannot be read.
std::string read_text(const std::filesystem::path& file);

}  // namespace adaptdl::sched
