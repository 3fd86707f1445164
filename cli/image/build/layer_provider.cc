#include "image/build/layer_provider.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <set>

#include "adaptdl/error.h"
#include "http/http.h"
#include "image/base/digest.h"
#include "image/base/parallel.h"
#include "image/layer/unpack.h"
#include "image/sandbox/build_namespace.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;

constexpr auto kTellEvery = std::chrono::milliseconds(200);
constexpr unsigned kMaxTransfers = 8;

}  // namespace

TransferReport::TransferReport(BuildReport& report, std::string what, std::uint64_t total)
    : report_(report), info_{.what = std::move(what), .total = total} {}

void TransferReport::add(std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  info_.done += static_cast<std::uint64_t>(bytes);
  const auto now = std::chrono::steady_clock::now();
  if (now - told_ < kTellEvery) return;
  told_ = now;
  report_.transfer(info_);
}

void TransferReport::there(std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  info_.was_there += bytes;
}

void TransferReport::finish() {
  const std::scoped_lock lock(mutex_);
  info_.finished = true;
  report_.transfer(info_);
}

StageView::StageView(const BuildCache& cache, const std::vector<fs::path>& trees) : work_(cache.work_directory()) {
  try {
    const fs::path at = work_ / "view";
    fs::create_directory(at);
    overlay_ = std::make_unique<Overlay>(OverlayLayers{.lower = trees, .upper = {}, .work = {}}, at);
    files_.emplace(at, FileTree::Kind::kStage);
  } catch (...) {
    overlay_.reset();
    remove_tree(work_);
    throw;
  }
}

StageView::~StageView() {
  files_.reset();
  overlay_.reset();
  try {
    remove_tree(work_);
  } catch (const Error&) {
    // The directory is in work/, which is cleaned by the next process that locks the cache exclusively.
  }
}

void LayerProvider::fetch(const std::vector<BuiltLayer>& layers) {
  std::vector<const BuiltLayer*> missing;
  std::uint64_t bytes = 0;
  for (const BuiltLayer& layer : layers)
    if (!cache_.blobs().find(layer.descriptor.digest, layer.descriptor.size) &&
        std::none_of(missing.begin(), missing.end(),
                     [&](const BuiltLayer* other) { return other->descriptor.digest == layer.descriptor.digest; })) {
      if (layer.from.empty())
        throw Error(fmt::format("the layer {} is no longer in the build cache; build again", layer.descriptor.digest));
      missing.push_back(&layer);
      bytes += layer.descriptor.size;
    }
  if (missing.empty()) return;
  TransferReport report(report_, fmt::format("pull {}", missing.front()->from), bytes);
  for_each_parallel(
      missing.size(), std::min(threads_, kMaxTransfers), stop_, [&](std::size_t i, const std::stop_token& stop) {
        const BuiltLayer& layer = *missing[i];
        BlobStore::Draft draft(cache_.blobs(), layer.descriptor.digest.substr(0, layer.descriptor.digest.find(':')));
        registry_.pull_blob(
            Reference::parse(layer.from), layer.descriptor, [&](std::string_view piece) { draft.write(piece); }, stop,
            [&](std::int64_t count) { report.add(count); });
        draft.commit(layer.descriptor.digest);
      });
  report.finish();
}

std::string chain_id(const std::string& below, const std::string& diff_id) {
  return below.empty() ? diff_id : sha256(below + " " + diff_id);
}

std::string chain_id(const std::vector<BuiltLayer>& layers) {
  std::string chain;
  for (const BuiltLayer& layer : layers) chain = chain_id(chain, layer.diff_id);
  return chain;
}

std::vector<fs::path> LayerProvider::trees(const std::vector<BuiltLayer>& layers) {
  std::vector<std::string> chain;
  std::vector<fs::path> trees;
  std::vector<std::size_t> packed;
  std::vector<BuiltLayer> wanted;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    chain.push_back(chain_id(i == 0 ? "" : chain.back(), layers[i].diff_id));
    trees.insert(trees.begin(), cache_.tree_path(chain.back()));
    if (cache_.find_tree(chain.back())) continue;
    packed.push_back(i);
    wanted.push_back(layers[i]);
  }
  fetch(wanted);
  std::mutex mutex;
  std::condition_variable_any changed;
  std::set<std::size_t> going(packed.begin(), packed.end());
  SpaceBudget budget(cache_.directory());
  for_each_parallel(packed.size(), threads_, stop_, [&](std::size_t number, const std::stop_token& stop) {
    const std::size_t i = packed[number];
    UnpackOptions options{.limits = {}, .stop = stop, .budget = &budget, .lower = {}, .await_lower = {}};
    options.lower.assign(trees.end() - static_cast<std::ptrdiff_t>(i), trees.end());
    // Lower layers are started first, so at least one layer can always make progress.
    options.await_lower = [&] {
      std::unique_lock lock(mutex);
      if (!changed.wait(lock, stop, [&] { return *going.begin() == i; })) throw http::Stopped();
    };
    const fs::path blob = cache_.blobs().path_of(layers[i].descriptor.digest);
    cache_.used_tree(chain[i], unpack_layer(blob, layers[i].diff_id, trees[layers.size() - 1 - i], options).bytes);
    const std::scoped_lock lock(mutex);
    going.erase(i);
    changed.notify_all();
  });
  return trees;
}

std::unique_ptr<StageView> LayerProvider::view(const std::vector<BuiltLayer>& layers) {
  return std::make_unique<StageView>(cache_, trees(layers));
}

}  // namespace adaptdl::image
