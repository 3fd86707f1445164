// Names of sources and targets, and what cp makes of them. Pure functions.
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

// "JOB:PATH", or a path of this machine. What has a colon behind the name of a job is the former; "./" before it makes
// it a path. Throws UsageError where a path is missing.
Place parse_place(const std::string& text);

// The last part of a path, without slashes at its end; empty for "/", ".", ".." and what ends in these.
std::string base_name(const std::string& path);
// What is before it; "." where there is nothing.
std::string directory_of(const std::string& path);

// A path that no command takes for an option.
std::string as_argument(const std::string& path);

// What is at a path.
enum class Found { kNothing, kFile, kDirectory, kOther };

// Where the copy of `source` goes: a target that is a directory gets it under its own name. Throws UsageError where
// cp would refuse: a directory over a file, a file to a name that ends in a slash.
std::string target_path(const std::string& source, Found source_is, const std::string& target, Found target_is);

}  // namespace adaptdl::kube
