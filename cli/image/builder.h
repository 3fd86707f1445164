// Builds the image that a Dockerfile describes, from a directory, and puts it where it is wanted: into registries, an
// OCI directory or an archive for docker load.
//
// Every step has a key made of all that decides what comes out of it; what was built once is taken from the cache
// (build_cache.h). Layers of base images are passed on by their digests, and downloaded only if something has to look
// into them. What is built of one tree has one digest, whoever builds it.
//
// Threading: several builds may go on at once, in one process or in many, on one cache; a build has threads of its own,
// and calls its report from one at a time. Lifetime: a call keeps nothing open and nothing mounted.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "image/platform.h"
#include "image/reference.h"
#include "image/registry_options.h"

namespace adaptdl::image {

// What a RUN may see by --mount=type=secret,id=ID; in no layer, key or message.
struct BuildSecret {
  std::string id;
  std::filesystem::path file;  // one of the two
  std::string variable;        // of this process's environment
  // "id=ID[,src=FILE|,env=VARIABLE]", as docker build has it: by default the variable ID if there is one, else the file
  // ID. Throws UsageError.
  static BuildSecret parse(std::string_view text);
};

struct BuildOutput {
  enum class Kind { kOciDirectory, kDockerArchive };
  Kind kind = Kind::kOciDirectory;
  std::filesystem::path path;
  // "oci:DIRECTORY" or "docker-archive:FILE". Throws UsageError.
  static BuildOutput parse(std::string_view text);
};

// How large the cache may get; it is brought down to it after a build, what was not used longest first.
struct CacheLimit {
  // In bytes; 0: no limit. Not said: ADAPTDL_BUILD_CACHE_LIMIT, else 20 GiB or a tenth of the disk if that is less.
  std::optional<std::uint64_t> bytes;
};

struct BuildOptions {
  std::filesystem::path context;  // a directory
  // Empty: Dockerfile in the context; "-": standard input. A relative path is the process's, not the context's.
  std::filesystem::path dockerfile;
  std::map<std::string, std::string> build_arguments;
  std::string target;                // a stage by name or number; empty: the last
  std::optional<Platform> platform;  // not said: this machine's
  std::vector<BuildSecret> secrets;
  std::map<std::string, std::string> labels;  // besides those of the Dockerfile
  bool no_network = false;                    // of RUN; one with --network=host is an error then
  bool no_cache = false;                      // every step anew; what comes out goes into the cache
  bool zstd = false;                          // compresses layers by zstd instead of gzip
  unsigned threads = 0;                       // that compress, and at most so many transfers; 0: one a core

  std::vector<Reference> tags;       // what the image is called; with `push`, where it goes
  bool push = false;                 // to the registry of each tag; REQUIRES: at least one
  std::vector<BuildOutput> outputs;  // besides

  // All times of the image are at most this, and `created` is this; not said: no times are changed, and `created` is
  // the time of the newest file in it. docs/images.md has the reasons.
  std::optional<std::int64_t> source_date_epoch;

  std::filesystem::path cache;  // empty: build_cache_directory()
  CacheLimit cache_limit;
  RegistryOptions registry;
};

struct BuildResult {
  std::string digest;         // of the manifest
  std::string media_type;     // of it
  std::string manifest;       // its bytes
  std::string config_digest;  // the image's ID
  std::string config;         // its bytes
  std::uint64_t size = 0;     // of the layers, as they are compressed, and the configuration
  std::size_t layers = 0;
  std::size_t steps = 0, cached_steps = 0;  // those that make layers
  std::vector<std::string> pushed;          // REGISTRY/REPOSITORY@DIGEST for each tag that was pushed
};

// What a step is, for people: "[2/7] RUN make".
struct StepInfo {
  std::size_t number = 0, count = 0;  // from 1, among all of the build that are shown
  std::string stage;                  // its name, or number; empty if there is but one
  std::string text;                   // as the Dockerfile has it, one line
};

// Bytes that come or go: one of a layer, or of all that is pushed.
struct TransferInfo {
  std::string what;             // "pull python:3.12 layer 2/5", "push localhost:5000/x:1"
  std::uint64_t done = 0;       // bytes
  std::uint64_t total = 0;      // bytes; 0: nobody knows
  bool finished = false;        // told once, at the end
  std::uint64_t was_there = 0;  // of `total`, that did not need to go over
};

// Hears of a build as it goes. What it throws ends the build.
class BuildReport {
 public:
  virtual ~BuildReport() = default;
  virtual void begin_step(const StepInfo& step) = 0;
  virtual void end_step(const StepInfo& step, bool cached, std::chrono::milliseconds took) = 0;
  virtual void output(const StepInfo& step, std::string_view line) = 0;  // what a RUN wrote, without the line's end
  virtual void transfer(const TransferInfo& transfer) = 0;               // a few times a second at most
  virtual void notice(std::string_view text) = 0;                        // one line that the user should see
};

// $ADAPTDL_BUILD_CACHE, else adaptdl/build in $XDG_CACHE_HOME or ~/.cache. Throws Error if none of them is set.
std::filesystem::path build_cache_directory();
// SOURCE_DATE_EPOCH of the environment; null if it is not set. Throws UsageError if it is no number.
std::optional<std::int64_t> environment_source_date();

// REQUIRES: if the Dockerfile has a RUN, or anything else that looks into a base image, that enter_build_namespace()
// (build_namespace.h) was called; without it, or where the kernel forbids it, such a step is an Error that says so.
// Throws Error, naming file and line for what a step cannot do, and http::Stopped at a stop.
BuildResult build(const BuildOptions& options, BuildReport& report, const std::stop_token& stop = {});

}  // namespace adaptdl::image
