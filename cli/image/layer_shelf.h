// Gets layers to where they are needed: their blobs into the store, and unpacked for overlays.
//
// Threading: one thread; it has others of its own. Lifetime: what it is given outlives it.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "image/build_cache.h"
#include "image/builder.h"
#include "image/file_tree.h"
#include "image/overlay.h"
#include "image/registry.h"

namespace adaptdl::image {

// The files of layers, to look at, while it lives.
class StageView {
 public:
  StageView(const BuildCache& cache, const std::vector<std::filesystem::path>& trees);
  ~StageView();
  const FileTree& files() const { return *files_; }

 private:
  std::filesystem::path work_;
  std::unique_ptr<Overlay> overlay_;
  std::optional<FileTree> files_;
};

// What names a layer on those below it, as an unpacked one is kept: what it does not say of its directories, they do.
std::string chain_id(const std::string& below, const std::string& diff_id);
std::string chain_id(const std::vector<BuiltLayer>& layers);

class LayerShelf {
 public:
  LayerShelf(const BuildCache& cache, Registry& registry, BuildReport& report, unsigned threads, std::stop_token stop)
      : cache_(cache), registry_(registry), report_(report), threads_(threads), stop_(std::move(stop)) {}

  // Sees to it that all of them are in the store; in parallel.
  void fetch(const std::vector<BuiltLayer>& layers);
  // They unpacked, the topmost first, as overlays want them. Throws Error, and http::Stopped.
  std::vector<std::filesystem::path> trees(const std::vector<BuiltLayer>& layers);
  std::unique_ptr<StageView> view(const std::vector<BuiltLayer>& layers);

 private:
  const BuildCache& cache_;
  Registry& registry_;
  BuildReport& report_;
  const unsigned threads_;
  const std::stop_token stop_;
};

// Tells of bytes that several threads move, a few times a second.
class TransferReport {
 public:
  TransferReport(BuildReport& report, std::string what, std::uint64_t total);
  void add(std::int64_t bytes);
  void there(std::uint64_t bytes);
  void finish();

 private:
  BuildReport& report_;
  std::mutex mutex_;
  TransferInfo info_;
  std::chrono::steady_clock::time_point told_{};
};

}  // namespace adaptdl::image
