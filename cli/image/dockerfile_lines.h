// The lines of a Dockerfile: parser directives, comments, continuations and heredocs.
//
// Threading: one thread at a time. Lifetime: the text and the name outlive it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "image/dockerfile.h"

namespace adaptdl::image {

// An error that begins with its place, "FILE:LINE: ".
class PlacedError : public Error {
  using Error::Error;
};

class DockerfileLines {
 public:
  // `first` is the number of the first line in messages. An image's trigger has no directives.
  DockerfileLines(std::string_view text, const std::string& file, int first = 1, bool directives = true);

  struct Logical {
    Lines lines;
    std::string text;
  };
  // The next instruction's, with its continuations joined; null at the end. Throws PlacedError.
  std::optional<Logical> next();
  // What follows as a heredoc; `instruction`'s lines grow by it. Throws PlacedError.
  std::string heredoc(const std::string& name, bool strip_tabs, Lines& lines);

  char escape() const { return escape_; }
  // Throws PlacedError.
  [[noreturn]] void fail(int line, std::string_view why) const;

 private:
  std::optional<std::string_view> read();  // with its end
  bool take_directive(std::string_view line);
  void apply_directive(const std::string& name, const std::string& value);
  bool take_continuation(std::string_view& line) const;

  std::string_view rest_;
  const std::string& file_;
  int line_;  // that was read last
  bool directives_;
  std::set<std::string> seen_;
  char escape_ = '\\';
};

}  // namespace adaptdl::image
