// Builds the image that a Dockerfile and a context directory describe, and writes it to registries, an OCI directory or
// an archive for docker load.
//
// Every step has a key that covers all of its inputs; results of earlier builds are taken from the cache
// (build_cache.h). Layers of base images are passed on by their digests, and downloaded only if a step needs their
// contents. Builds of the same inputs give the same digest for every user.
//
// Threading: several builds may run at once, in one or several processes, on one cache; a build starts threads of its
// own, but calls its report from one thread at a time. Lifetime: a call leaves nothing open and nothing mounted.
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

// A secret for RUN --mount=type=secret,id=ID; it appears in no layer, key or message.
struct BuildSecret {
  std::string id;
  std::filesystem::path file;  // either this
  std::string variable;        // or a variable of this process's environment
  // Parses "id=ID[,src=FILE|,env=VARIABLE]" as docker build does: the default is the variable ID if it is set, else the
  // file ID. Throws UsageError.
  static BuildSecret parse(std::string_view text);
};

struct BuildOutput {
  enum class Kind { kOciDirectory, kDockerArchive };
  Kind kind = Kind::kOciDirectory;
  std::filesystem::path path;
  // Parses "oci:DIRECTORY" or "docker-archive:FILE". Throws UsageError.
  static BuildOutput parse(std::string_view text);
};

// The maximum size of the cache, enforced after a build; the least recently used files are removed first.
struct CacheLimit {
  // In bytes; 0: unlimited. Unset: ADAPTDL_BUILD_CACHE_LIMIT, else the smaller of 20 GiB and a tenth of the disk.
  std::optional<std::uint64_t> bytes;
};

struct BuildOptions {
  std::filesystem::path context;  // a directory
  // Empty: Dockerfile in the context; "-": standard input. A relative path is relative to the working directory.
  std::filesystem::path dockerfile;
  std::map<std::string, std::string> build_arguments;
  std::string target;                // a stage by name or number; empty: the last
  std::optional<Platform> platform;  // unset: this machine's
  std::vector<BuildSecret> secrets;
  std::map<std::string, std::string> labels;  // in addition to those of the Dockerfile
  bool no_network = false;                    // for RUN; then one with --network=host is an error
  bool no_cache = false;                      // executes every step again, and stores the results
  bool zstd = false;                          // compresses layers with zstd instead of gzip
  unsigned threads = 0;                       // for compression, unpacking and transfers; 0: one per core

  std::vector<Reference> tags;       // the image's names; with `push`, its destinations
  bool push = false;                 // to the registry of each tag; REQUIRES: at least one tag
  std::vector<BuildOutput> outputs;  // additional destinations

  // The upper limit of all times in the image, and its `created` time. Unset: times are not changed, and `created` is
  // the time of the newest file in the image. docs/images.md gives the reasons.
  std::optional<std::int64_t> source_date_epoch;

  std::filesystem::path cache;  // empty: build_cache_directory()
  CacheLimit cache_limit;
  RegistryOptions registry;
};

struct BuildResult {
  std::string digest;         // of the manifest
  std::string media_type;     // of the manifest
  std::string manifest;       // the manifest's bytes
  std::string config_digest;  // the image's ID
  std::string config;         // the configuration's bytes
  std::uint64_t size = 0;     // of the compressed layers and the configuration, in bytes
  std::size_t layers = 0;
  std::size_t steps = 0, cached_steps = 0;  // only steps that create layers
  std::vector<std::string> pushed;          // REGISTRY/REPOSITORY@DIGEST for each tag that was pushed
};

// The description of a step for the user: "[2/7] RUN make".
struct StepInfo {
  std::size_t number = 0, count = 0;  // from 1, among all shown steps of the build
  std::string stage;                  // its name or number; empty if it is the only one
  std::string text;                   // as in the Dockerfile, in one line
};

// The progress of a transfer: one layer's, or that of a whole push.
struct TransferInfo {
  std::string what;             // "pull python:3.12 layer 2/5", "push localhost:5000/x:1"
  std::uint64_t done = 0;       // bytes
  std::uint64_t total = 0;      // bytes; 0: unknown
  bool finished = false;        // true once, in the last report
  std::uint64_t was_there = 0;  // the part of `total` that did not have to be transferred
};

// Receives the progress of a build. An exception from it ends the build.
class BuildReport {
 public:
  virtual ~BuildReport() = default;
  virtual void begin_step(const StepInfo& step) = 0;
  virtual void end_step(const StepInfo& step, bool cached, std::chrono::milliseconds took) = 0;
  virtual void output(const StepInfo& step, std::string_view line) = 0;  // a line that a RUN wrote, without its newline
  virtual void transfer(const TransferInfo& transfer) = 0;               // at most a few times per second
  virtual void notice(std::string_view text) = 0;                        // one line that the user should see
};

// Returns $ADAPTDL_BUILD_CACHE, else adaptdl/build in $XDG_CACHE_HOME or ~/.cache. Throws Error if none of them is set.
std::filesystem::path build_cache_directory();
// Returns SOURCE_DATE_EPOCH of the environment; null if it is not set. Throws UsageError if it is not a number.
std::optional<std::int64_t> environment_source_date();

// REQUIRES: enter_build_namespace() (build_namespace.h) was called if the Dockerfile has a RUN or another step that
// reads a base image; without it, or where the kernel forbids namespaces, such a step throws Error with the reason.
// Throws Error, with file and line if a step fails, and http::Stopped after a stop request.
BuildResult build(const BuildOptions& options, BuildReport& report, const std::stop_token& stop = {});

}  // namespace adaptdl::image
