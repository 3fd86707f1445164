// The values that flags and arguments of instructions take. All throw Error that quotes the value and says what it may
// be, but not where it stands.
//
// Threading: plain functions and values.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

// The permissions of --chmod: octal ("0755") or symbolic, as chmod(1) has it ("u=rwX,go=rX").
class FileMode {
 public:
  static FileMode parse(std::string_view text);
  // Those of a file after the change, of its present ones.
  unsigned apply(unsigned mode, bool is_directory) const;

 private:
  struct Change {
    unsigned who;  // the bits of the classes meant
    char operation;
    std::string what;  // of "rwxXst", or one of "ugo"
  };
  bool octal_ = false;
  unsigned mode_ = 0;
  std::vector<Change> changes_;
};

// Go's durations ("1m30s", "1.5h"), that are 0 or at least a millisecond.
std::chrono::nanoseconds parse_duration(std::string_view text);
// "64m", "1.5GiB", "1024": in units of 1024.
std::size_t parse_size(std::string_view text);
// A whole number in a base, no larger than `most`.
unsigned parse_number(std::string_view text, unsigned base, unsigned most);
bool parse_bool(std::string_view text);  // as Go has it: 1 t true 0 f false
// The ports of EXPOSE's "80", "80/udp", "8000-8010/tcp", each as "80/tcp". What a container's port would be published
// as
// ("8080:80") is read, and left out.
std::vector<std::string> parse_ports(std::string_view text);
// A signal by number, or by name with or without "SIG".
void check_signal(std::string_view text);

}  // namespace adaptdl::image
