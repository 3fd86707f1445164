#include "simulator/csv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "adaptdl/error.h"
#include "base/counted.h"
#include "base/text_parts.h"
#include "base/utf8.h"

namespace adaptdl::sched {
namespace {

// Counts UTF-8 characters as the bytes that are not continuation bytes.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Returns the text of the quoted cell at `at` and moves `at` past the cell. Returns nullopt if the quote is not closed.
std::optional<std::string> quoted_cell(std::string_view line, std::size_t& at) {
  std::string text;
  for (++at; at < line.size(); ++at) {
    if (line[at] != '"') {
      text += line[at];
    } else if (at + 1 < line.size() && line[at + 1] == '"') {
      text += line[at++];
    } else {
      ++at;
      return text;
    }
  }
  return std::nullopt;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string read_text(const std::filesystem::path& file) {
  errno = 0;
  if (std::filesystem::is_directory(file))
    throw Error(fmt::format("{}: is a directory; expected a file", file.string()));
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.is_open() || stream.bad()) {
    throw Error(fmt::format("cannot read file '{}': {}; check the path and its permissions", file.string(),
                            std::strerror(errno ? errno : EIO)));
  }
  return text;
}

Csv::Csv(const std::filesystem::path& file, const std::vector<std::string_view>& required) : file_(file) {
  const std::string text = read_text(file);
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    if (!trimmed(rest.substr(0, length)).empty()) {
      Row row = parse(rest.substr(0, length), line);
      if (header_.cells.empty()) {
        header_ = std::move(row);
        check_header(required);
      } else {
        rows_.push_back(std::move(row));
      }
    }
    rest.remove_prefix(std::min(length + 1, rest.size()));
  }
  if (header_.cells.empty()) {
    fail(std::size_t{1}, std::size_t{1},
         fmt::format("the file is empty; expected a header with the columns {}", fmt::join(required, ",")));
  }
  if (rows_.empty()) fail(header_.line, header_.end, "no rows after the header; add at least one");
}

Csv::Row Csv::parse(std::string_view line, std::size_t number) const {
  if (line.ends_with('\r')) line.remove_suffix(1);
  check_text(line, number);
  Row row{{}, number, characters(line) + 1};
  const auto column = [&](std::size_t at) { return characters(line.substr(0, at)) + 1; };
  for (std::size_t at = 0;; ++at) {  // skips the comma
    at = std::min(line.find_first_not_of(" \t", at), line.size());
    Cell cell{"", column(at)};
    if (at < line.size() && line[at] == '"') {
      std::optional<std::string> quoted = quoted_cell(line, at);
      if (!quoted) fail(number, cell.column, "the quote is not closed; end the cell with \"");
      cell.text = std::move(*quoted);
      at = std::min(line.find_first_not_of(" \t", at), line.size());
      if (at < line.size() && line[at] != ',')
        fail(number, column(at), "unexpected text after a quoted cell; expected a comma");
    } else {
      const std::size_t end = std::min(line.find(',', at), line.size());
      cell.text = trimmed(line.substr(at, end - at));
      at = end;
    }
    row.cells.push_back(std::move(cell));
    if (at >= line.size()) break;
  }
  if (!header_.cells.empty() && row.cells.size() != header_.cells.size()) {
    const bool more = row.cells.size() > header_.cells.size();
    fail(number, more ? row.cells[header_.cells.size()].column : row.end,
         fmt::format("the row has {}, but the header has {}; {}", counted(row.cells.size(), "cell"),
                     counted(header_.cells.size(), "column"),
                     more ? "remove the extra cells" : "add the missing cells"));
  }
  return row;
}

// Names from the file are used in messages, on terminals and in JSON, so control characters are refused.
void Csv::check_text(std::string_view line, std::size_t number) const {
  const auto control = std::ranges::find_if(line, [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7F; });
  if (control != line.end()) {
    fail(number, characters({line.begin(), control}) + 1,
         fmt::format("byte {:#04x} is a control character; save the file as plain CSV",
                     static_cast<unsigned char>(*control)));
  }
  if (!is_utf8(line)) fail(number, std::size_t{1}, "the line is not valid UTF-8; save the file as UTF-8");
}

void Csv::check_header(const std::vector<std::string_view>& required) const {
  for (auto cell = header_.cells.begin(); cell != header_.cells.end(); ++cell) {
    if (std::any_of(header_.cells.begin(), cell, [&](const Cell& other) { return other.text == cell->text; })) {
      fail(header_.line, cell->column, fmt::format("duplicate column '{}'; keep one", cell->text));
    }
  }
  for (const std::string_view column : required) {
    if (!has(column)) {
      fail(header_.line, std::size_t{1},
           fmt::format("column '{}' not found; the header must have the columns {}", column, fmt::join(required, ",")));
    }
  }
}

bool Csv::has(std::string_view column) const {
  return std::ranges::find(header_.cells, column, &Cell::text) != header_.cells.end();
}

const Csv::Cell& Csv::cell(std::size_t row, std::string_view column) const {
  const auto found = std::ranges::find(header_.cells, column, &Cell::text);
  return rows_[row].cells[static_cast<std::size_t>(found - header_.cells.begin())];
}

const std::string& Csv::text(std::size_t row, std::string_view column) const { return cell(row, column).text; }

double Csv::number(std::size_t row, std::string_view column, double min_value, double max_value) const {
  const std::string& text = cell(row, column).text;
  const std::optional<double> number = parse_number<double>(text);
  if (!number || !std::isfinite(*number)) {
    fail(row, column, fmt::format("invalid {} '{}': expected a finite number, such as 0.25", column, text));
  }
  if (*number < min_value) {
    fail(row, column, fmt::format("invalid {} '{}': must be at least {}", column, text, min_value));
  }
  if (*number > max_value)
    fail(row, column, fmt::format("invalid {} '{}': must be at most {}", column, text, max_value));
  return *number;
}

int Csv::count(std::size_t row, std::string_view column) const {
  const std::string& text = cell(row, column).text;
  const std::optional<int> number = parse_number<int>(text);
  if (!number || *number < 1 || *number > 1'000'000'000) {
    fail(row, column, fmt::format("invalid {} '{}': expected an integer from 1 to 1000000000", column, text));
  }
  return *number;
}

void Csv::fail(std::size_t row, std::string_view column, std::string_view what) const {
  fail(rows_[row].line, cell(row, column).column, what);
}

void Csv::fail(std::size_t line, std::size_t column, std::string_view what) const {
  throw Error(fmt::format("{}:{}:{}: {}", file_.string(), line, column, what));
}

}  // namespace adaptdl::sched
