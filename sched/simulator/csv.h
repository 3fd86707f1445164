// A strict reader of small CSV files: comma-separated, a line of column names first.
//
// Cells may stand in double quotes (a quote in them is two), but not go over a line's end. A byte order mark, CRLF,
// blanks around a cell and blank lines are let pass. Columns come in any order; those that nobody asks for are ignored.
//
// Every error is an Error of one line, "FILE:LINE:COLUMN: what is wrong; the way out"; columns are counted in
// characters.
//
// Threading: const after construction.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::sched {

class Csv {
 public:
  // The columns named in `required` must be there. Throws on a file that cannot be read, is not text in UTF-8, has no
  // rows, or whose rows have not as many cells as there are columns.
  Csv(const std::filesystem::path& file, const std::vector<std::string_view>& required);

  std::size_t rows() const noexcept { return rows_.size(); }
  bool has(std::string_view column) const;

  // REQUIRES a row that there is, and a column of the file, here and below.
  const std::string& text(std::size_t row, std::string_view column) const;
  // A finite number, at least `least` and at most `most`. Throws on anything else.
  double number(std::size_t row, std::string_view column, double least = 0, double most = 1e100) const;
  // A whole number from 1 to a billion. Throws on anything else.
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

// The whole of a file. Throws Error, naming it.
std::string read_text(const std::filesystem::path& file);

}  // namespace adaptdl::sched
