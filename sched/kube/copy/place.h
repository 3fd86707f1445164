// Parses the names of sources and targets, and applies cp's rules to them.
#pragma once

#include <optional>
#include <string>

namespace adaptdl::kube {

// An argument of `cp`.
struct Place {
  std::string job;   // "NAME" or "NAMESPACE/NAME"; empty: on this machine
  std::string path;  // "-": a stream
  bool stream() const { return job.empty() && path == "-"; }
};

// Parses "JOB:PATH" or a local path. If a colon follows a valid job name, the text is a JOB:PATH; write "./" before a
// local path of this form. Throws UsageError if the path is missing.
Place parse_place(const std::string& text);

// Returns the last part of a path without trailing slashes; empty if that part is "", "." or "..".
std::string base_name(const std::string& path);
// Returns the path before the last part; "." if there is none.
std::string directory_of(const std::string& path);

// Returns a path that no command mistakes for an option.
std::string as_argument(const std::string& path);

// What exists at a path.
enum class Found { kNothing, kFile, kDirectory, kOther };

// Returns the path of the copy: in a target directory, the copy has the source's own name. Throws UsageError if cp
// would refuse to copy: a directory over a file, or a file to a name that ends in a slash.
std::string target_path(const std::string& source, Found source_is, const std::string& target, Found target_is);

}  // namespace adaptdl::kube
