// Parses the values of flags and arguments. All functions throw an Error that quotes the value and states what is
// allowed, without file or line.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

// Returns whether an ADD source is a URL.
inline bool is_url(std::string_view source) { return source.starts_with("http://") || source.starts_with("https://"); }

// The permissions of --chmod: octal ("0755") or symbolic, as in chmod(1) ("u=rwX,go=rX").
class FileMode {
 public:
  // `instruction` is named in errors.
  static FileMode parse(std::string_view text, std::string_view instruction);
  // Returns a file's permissions after the change, given the permissions before the change.
  unsigned apply(unsigned mode, bool is_directory) const;
  const std::string& text() const { return text_; }  // the text that was parsed

 private:
  struct Change {
    unsigned who;  // the bits of the selected classes
    char operation;
    std::string what;  // letters from "rwxXst", or one letter from "ugo"
  };
  std::string text_;
  bool octal_ = false;
  unsigned mode_ = 0;
  std::vector<Change> changes_;
};

// Returns whether a text contains no variable, quote or escape, so that expansion does not change it.
bool is_plain(std::string_view text);
// Parses Go's durations ("1m30s", "1.5h"), which must be 0 or at least a millisecond.
std::chrono::nanoseconds parse_duration(std::string_view text);
// Parses sizes in bytes, with units of 1024: "64m", "1.5GiB", "1024".
std::size_t parse_size(std::string_view text);
// Parses an integer from 0 to `max` in the given base.
unsigned parse_number(std::string_view text, unsigned base, unsigned max);
bool parse_bool(std::string_view text);  // as in Go: 1 t true 0 f false
// Parses EXPOSE's ports, such as "80", "80/udp" or "8000-8010/tcp", and returns each as "80/tcp". A host port, as in
// "8080:80", is accepted and ignored.
std::vector<std::string> parse_ports(std::string_view text);
// Checks a source of COPY or, if `add` is set, of ADD. `checksum` states whether the instruction has --checksum.
void check_copy_source(std::string_view source, bool add, bool checksum);
// Checks the digest of ADD's --checksum.
void check_checksum(std::string_view digest);
// Checks a signal: a number, or a name with or without "SIG".
void check_signal(std::string_view text);

}  // namespace adaptdl::image
