// Splits a Dockerfile into lines: parser directives, comments, continuations and heredocs.
//
// Lifetime: the text and the file's name must outlive the object.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "image/dockerfile/dockerfile.h"

namespace adaptdl::image {

// An error whose message begins with "FILE:LINE: ".
class PlacedError : public Error {
  using Error::Error;
};

class DockerfileLines {
 public:
  // `first` is the number of the first line, for messages. `directives` is false for an image's trigger.
  DockerfileLines(std::string_view text, const std::string& file, int first = 1, bool directives = true);

  struct Logical {
    Lines lines;
    std::string text;
  };
  // Returns the next instruction, with continuation lines joined; nullopt at the end. Throws PlacedError.
  std::optional<Logical> next();
  // Reads the heredoc `name`, and extends `lines` to its last line. Throws PlacedError.
  std::string heredoc(const std::string& name, bool strip_tabs, Lines& lines);

  char escape() const { return escape_; }
  // Throws PlacedError for the line.
  [[noreturn]] void fail(int line, std::string_view why) const;

 private:
  std::optional<std::string_view> read();  // including its line end
  bool take_directive(std::string_view line);
  void apply_directive(const std::string& name, const std::string& value);
  bool take_continuation(std::string_view& line) const;

  std::string_view rest_;
  const std::string& file_;
  int line_;  // the number of the line that was read last
  bool directives_;
  std::set<std::string> seen_;
  char escape_ = '\\';
};

}  // namespace adaptdl::image
