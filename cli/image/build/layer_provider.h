// Provides layers: downloads their blobs into the store, and unpacks them for overlays.
//
// Threading: an object must be used from one thread; it starts its own threads. Lifetime: the constructor's arguments
// must outlive the object.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "image/build/builder.h"
#include "image/layer/build_cache.h"
#include "image/layer/file_tree.h"
#include "image/registry/registry.h"
#include "image/sandbox/overlay.h"

namespace adaptdl::image {

// A read-only view of several layers' files, mounted until the object is destroyed.
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

// Identifies a layer together with the layers below it. Unpacked layers are stored under this ID, since a directory
// that a layer does not list takes its attributes from the layers below.
std::string chain_id(const std::string& below, const std::string& diff_id);
std::string chain_id(const std::vector<BuiltLayer>& layers);

class LayerProvider {
 public:
  LayerProvider(const BuildCache& cache, Registry& registry, BuildReport& report, unsigned threads,
                std::stop_token stop)
      : cache_(cache), registry_(registry), report_(report), threads_(threads), stop_(std::move(stop)) {}

  // Downloads the layers that are not in the store, in parallel.
  void fetch(const std::vector<BuiltLayer>& layers);
  // Unpacks the layers; returns their directories, topmost first, as overlays expect. Throws Error or http::Stopped.
  std::vector<std::filesystem::path> trees(const std::vector<BuiltLayer>& layers);
  std::unique_ptr<StageView> view(const std::vector<BuiltLayer>& layers);

 private:
  const BuildCache& cache_;
  Registry& registry_;
  BuildReport& report_;
  const unsigned threads_;
  const std::stop_token stop_;
};

// Reports, a few times per second, how many bytes several threads have transferred.
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
