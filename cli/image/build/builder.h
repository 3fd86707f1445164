// Builds the image that a Dockerfile and a context directory describe, and writes it to registries, an OCI directory or
// an archive for docker load.
//
// Every step has a key that covers all of its inputs; results of earlier builds come from the cache (build_cache.h).
// Base image layers are referenced by digest, and downloaded only if a step needs their contents. Builds of the same
// inputs produce the same digest for every user.
//
// Threading: several builds may share a cache, in one process or in several. A build starts its own threads, but calls
// its report from one thread at a time. Nothing stays open or mounted after a build.
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

#include "image/base/platform.h"
#include "image/registry/reference.h"
#include "image/registry/registry_options.h"

namespace adaptdl::image {

// A secret for RUN --mount=type=secret,id=ID; it appears in no layer, key or message.
struct BuildSecret {
  std::string id;
  std::filesystem::path file;  // the file that contains the secret; empty if `variable` is set
  std::string variable;        // or the variable in this process's environment that contains it
  // Parses "id=ID[,src=FILE|,env=VARIABLE]" in the same way as docker build: by default, the secret is in the
  // environment variable ID if that variable is set, and otherwise in the file ID. Throws UsageError.
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
  // In bytes; 0 means unlimited. If unset, the limit is ADAPTDL_BUILD_CACHE_LIMIT or, if that is not set either, the
  // smaller of 20 GiB and a tenth of the disk.
  std::optional<std::uint64_t> bytes;
};

struct BuildOptions {
  std::filesystem::path context;  // a directory
  // Empty for the file "Dockerfile" in the context; "-" for standard input. A relative path is relative to the working
  // directory.
  std::filesystem::path dockerfile;
  std::map<std::string, std::string> build_arguments;
  std::string target;                // a stage's name or number; empty for the last stage
  std::optional<Platform> platform;  // unset for this machine's platform
  std::vector<BuildSecret> secrets;
  std::map<std::string, std::string> labels;  // in addition to the Dockerfile's labels
  bool no_network = false;                    // for RUN; a RUN with --network=host is then an error
  bool no_cache = false;                      // executes every step again, and stores the results
  bool zstd = false;                          // compresses layers with zstd instead of gzip
  unsigned threads = 0;                       // for compression, unpacking and transfers; 0 for one per core

  std::vector<Reference> tags;       // the image's names; with `push`, its destinations
  bool push = false;                 // to the registry of each tag; REQUIRES: at least one tag
  std::vector<BuildOutput> outputs;  // additional destinations

  // The upper limit for all times in the image, and the image's `created` time. If unset, times are not changed, and
  // `created` is the time of the newest file in the image. docs/images.md explains why.
  std::optional<std::int64_t> source_date_epoch;

  std::filesystem::path cache;  // empty for build_cache_directory()
  CacheLimit cache_limit;
  RegistryOptions registry;
};

struct BuildResult {
  std::string digest;         // the manifest's digest
  std::string media_type;     // the manifest's media type
  std::string manifest;       // the manifest's bytes
  std::string config_digest;  // the image's ID
  std::string config;         // the configuration's bytes
  std::uint64_t size = 0;     // total size of the compressed layers and the configuration, in bytes
  std::size_t layers = 0;
  std::size_t steps = 0, cached_steps = 0;  // only steps that create layers
  std::vector<std::string> pushed;          // REGISTRY/REPOSITORY@DIGEST for each tag that was pushed
};

// A step's description for the user: "[2/7] RUN make".
struct StepInfo {
  std::size_t number = 0, count = 0;  // from 1 to `count`, across all displayed steps of the build
  std::string stage;                  // the stage's name or number; empty if there is only one stage
  std::string text;                   // as in the Dockerfile, on one line
};

// The progress of a transfer, which is either one layer or a whole push.
struct TransferInfo {
  std::string what;             // "pull python:3.12 layer 2/5", "push localhost:5000/x:1"
  std::uint64_t done = 0;       // bytes
  std::uint64_t total = 0;      // bytes; 0 if unknown
  bool finished = false;        // true once, in the last report
  std::uint64_t was_there = 0;  // the part of `total` that did not have to be transferred
};

// Receives a build's progress. An exception from any of these functions ends the build.
class BuildReport {
 public:
  virtual ~BuildReport() = default;
  virtual void begin_step(const StepInfo& step) = 0;
  virtual void end_step(const StepInfo& step, bool cached, std::chrono::milliseconds took) = 0;
  virtual void output(const StepInfo& step, std::string_view line) = 0;  // a line that a RUN wrote, without its newline
  virtual void transfer(const TransferInfo& transfer) = 0;               // at most a few times per second
  virtual void notice(std::string_view text) = 0;                        // one line that the user should see
};

// Returns SOURCE_DATE_EPOCH from the environment; nullopt if it is not set. Throws UsageError if it is not a number.
std::optional<std::int64_t> environment_source_date();

// REQUIRES: if the Dockerfile contains a RUN or another step that reads a base image, enter_build_namespace()
// (build_namespace.h) has been called. If it has not, or if the kernel forbids namespaces, such a step throws an Error
// with the reason. Throws Error, with file and line if a step fails, or http::Stopped after a stop request.
BuildResult build(const BuildOptions& options, BuildReport& report, const std::stop_token& stop = {});

}  // namespace adaptdl::image
