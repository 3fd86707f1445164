#include "image/layer/build_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "adaptdl/error.h"
#include "base/foreign_json.h"
#include "base/printable.h"
#include "http/http.h"
#include "image/base/draft_file.h"
#include "image/base/small_file.h"
#include "image/dockerfile/values.h"
#include "image/layer/unpack.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uid_t kUnknownUser = 65534;  // overflowuid, user_namespaces(7)
constexpr std::uint64_t kUsualLimit = std::uint64_t{20} << 30;
constexpr auto kLook = std::chrono::milliseconds(100);
constexpr const char* kParts[] = {"steps", "trees", "used", "downloads", "files", "mounts", "work"};

fs::path made(fs::path directory) {
  const mode_t mask = ::umask(077);
  std::error_code error;
  fs::create_directories(directory, error);
  ::umask(mask);
  if (error)
    throw Error(
        one_line(fmt::format("cannot create the build cache '{}': {}; set ADAPTDL_BUILD_CACHE to another directory",
                             directory.string(), error.message())));
  return directory;
}

json json_of(const StepRecord& record) {
  json value = {{"date", record.date},
                {"directories", record.created.directories},
                {"merged", record.created.merged},
                {"links", record.created.links},
                {"files", record.created.files}};
  if (record.layer) {
    const Descriptor& layer = record.layer->descriptor;
    value["layer"] = {{"mediaType", layer.media_type},
                      {"digest", layer.digest},
                      {"size", layer.size},
                      {"diffId", record.layer->diff_id}};
  }
  return value;
}

}  // namespace

void write_whole(const fs::path& file, std::string_view text) {
  DraftFile draft(file);
  draft.write(text);
  draft.commit();
}

BuildCache::BuildCache(fs::path directory) : directory_(made(std::move(directory))), blobs_(directory_) {
  // In a user namespace, the machine's root may appear as the overflow user.
  struct stat about {};
  if (::geteuid() == 0 && ::stat(directory_.c_str(), &about) == 0 && about.st_uid != 0 && about.st_uid != kUnknownUser)
    throw Error(
        one_line(fmt::format("the build cache '{}' belongs to another user, who could put arbitrary files into it; "
                             "set ADAPTDL_BUILD_CACHE to another directory",
                             directory_.string())));
  for (const char* part : kParts) made(directory_ / part);
  ::chmod((directory_ / "blobs").c_str(), 0700);
  lock_ = Fd(::open((directory_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_)
    throw Error(
        one_line(fmt::format("cannot open the build cache '{}': {}; set ADAPTDL_BUILD_CACHE to another directory",
                             directory_.string(), std::strerror(errno))));
  // A process that holds the lock exclusively removes what killed builds have left behind.
  if (lock(LOCK_EX | LOCK_NB)) {
    clean_work();
    check_after_boot();
  }
  if (!lock(LOCK_SH))
    throw Error(
        one_line(fmt::format("cannot lock the build cache '{}': {}", directory_.string(), std::strerror(errno))));
}

bool BuildCache::lock(int how) {
  int result;
  do result = ::flock(lock_.get(), how);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

void BuildCache::clean_work() const {
  blobs_.remove_drafts();
  for (const auto& each : fs::directory_iterator(directory_ / "work")) remove_tree(each.path());
  for (const char* part : {"steps", "downloads", "files", "used"})
    for (const auto& each : fs::directory_iterator(directory_ / part))
      if (each.path().filename().string().find(".draft-") != std::string::npos) fs::remove(each.path());
  // A complete tree has a file in used/.
  for (const auto& each : fs::directory_iterator(directory_ / "trees"))
    if (!fs::exists(directory_ / "used" / each.path().filename())) remove_tree(each.path());
}

void BuildCache::check_after_boot() const {
  const std::string current = text_of_file("/proc/sys/kernel/random/boot_id");
  const fs::path mark = directory_ / "boot";
  if (current.empty() || text_of_file(mark) == current) return;
  for (const BlobStore::Info& blob : blobs_.list()) blobs_.check(blob.digest);
  // Remove the marks of complete trees first: a tree without its mark is treated as incomplete.
  for (const auto& each : fs::directory_iterator(directory_ / "used")) fs::remove(each.path());
  for (const auto& each : fs::directory_iterator(directory_ / "trees")) remove_tree(each.path());
  write_whole(mark, current);
}

json BuildCache::find(const std::string& kind, const std::string& key) const {
  const fs::path file = directory_ / kind / std::string(hex_of(key));
  const auto text = read_small_file(file, "build cache file");
  if (!text) return nullptr;
  std::error_code error;
  fs::last_write_time(file, fs::file_time_type::clock::now(), error);
  const json value = parse_foreign_json(*text);
  return value.is_discarded() ? json() : value;
}

void BuildCache::keep(const std::string& kind, const std::string& key, const json& value) const {
  const std::string text = value.dump();
  if (text.size() <= kMaxSmallFile) write_whole(directory_ / kind / std::string(hex_of(key)), text);
}

std::optional<StepRecord> BuildCache::find_step(const std::string& key) const {
  const json value = find("steps", key);
  if (!value.is_object()) return {};
  try {
    StepRecord record;
    value.at("date").get_to(record.date);
    value.at("directories").get_to(record.created.directories);
    value.at("merged").get_to(record.created.merged);
    value.at("links").get_to(record.created.links);
    value.at("files").get_to(record.created.files);
    if (const auto layer = value.find("layer"); layer != value.end()) {
      BuiltLayer built;
      layer->at("mediaType").get_to(built.descriptor.media_type);
      layer->at("digest").get_to(built.descriptor.digest);
      layer->at("size").get_to(built.descriptor.size);
      layer->at("diffId").get_to(built.diff_id);
      if (!is_digest(built.descriptor.digest) || !is_digest(built.diff_id) ||
          !blobs_.find(built.descriptor.digest, built.descriptor.size))
        return {};
      record.layer = std::move(built);
    }
    return record;
  } catch (const json::exception&) {
    return {};
  }
}

void BuildCache::keep_step(const std::string& key, const StepRecord& record) const {
  keep("steps", key, json_of(record));
}

fs::path BuildCache::tree_path(const std::string& chain_id) const {
  return directory_ / "trees" / std::string(hex_of(chain_id));
}

std::optional<fs::path> BuildCache::find_tree(const std::string& chain_id) const {
  const fs::path used = directory_ / "used" / std::string(hex_of(chain_id)), tree = tree_path(chain_id);
  std::error_code error;
  if (!fs::is_directory(tree, error) || !fs::exists(used, error)) return {};
  fs::last_write_time(used, fs::file_time_type::clock::now(), error);
  return tree;
}

void BuildCache::used_tree(const std::string& chain_id, std::uint64_t bytes) const {
  write_whole(directory_ / "used" / std::string(hex_of(chain_id)), std::to_string(bytes));
}

fs::path BuildCache::work_directory() const {
  std::string path = (directory_ / "work" / "XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr)
    throw Error(
        one_line(fmt::format("cannot write to the build cache '{}': {}; set ADAPTDL_BUILD_CACHE to another directory",
                             directory_.string(), std::strerror(errno))));
  return path;
}

namespace {

struct Kept {
  std::filesystem::file_time_type used;
  std::uint64_t bytes;
  std::string digest;  // set for blobs
  fs::path path;       // set for everything else
};

std::uint64_t bytes_below(const fs::path& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (const auto& each :
       fs::recursive_directory_iterator(directory, fs::directory_options::skip_permission_denied, error)) {
    std::error_code ignored;
    if (each.is_regular_file(ignored) && !each.is_symlink(ignored)) bytes += each.file_size(ignored);
  }
  return bytes;
}

std::vector<Kept> all_kept(const fs::path& directory, const BlobStore& blobs) {
  std::vector<Kept> all;
  for (const BlobStore::Info& blob : blobs.list())
    all.push_back({std::chrono::file_clock::from_sys(blob.used), blob.size, blob.digest, {}});
  for (const auto& each : fs::directory_iterator(directory / "used")) {
    std::ifstream stream(each.path());
    std::uint64_t bytes = 0;
    stream >> bytes;
    all.push_back({each.last_write_time(), bytes, "", directory / "trees" / each.path().filename()});
  }
  for (const auto& each : fs::directory_iterator(directory / "mounts")) {
    // Builds touch the lock file of each cache mount that they use; the modification time of the mount's directory does
    // not show when the mount was last used.
    std::error_code none;
    const auto used = fs::last_write_time(each.path().string() + ".lock", none);
    all.push_back({none ? each.last_write_time() : used, bytes_below(each.path()), "", each.path()});
  }
  for (const char* part : {"steps", "downloads", "files"})
    for (const auto& each : fs::directory_iterator(directory / part))
      all.push_back({each.last_write_time(), each.file_size(), "", each.path()});
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  return all;
}

}  // namespace

BuildCache::Pruned BuildCache::prune(std::uint64_t limit, bool wait, const std::stop_token& stop) {
  // flock() cannot upgrade a lock atomically: another process may acquire it first.
  lock(LOCK_UN);
  while (!lock(LOCK_EX | LOCK_NB)) {
    if (!wait) {
      lock(LOCK_SH);
      return {0, 0, true};
    }
    if (stop.stop_requested()) throw http::Stopped();
    std::this_thread::sleep_for(kLook);
  }
  clean_work();
  const std::vector<Kept> all = all_kept(directory_, blobs_);
  Pruned pruned;
  for (const Kept& each : all) pruned.before += each.bytes;
  pruned.after = pruned.before;
  for (const Kept& each : all) {
    if (pruned.after <= limit && limit != 0) break;
    if (stop.stop_requested()) throw http::Stopped();
    if (!each.digest.empty()) {
      blobs_.remove(each.digest);
    } else {
      // A tree without its mark is treated as incomplete.
      if (each.path.parent_path().filename() == "trees") fs::remove(directory_ / "used" / each.path.filename());
      remove_tree(each.path);
    }
    pruned.after -= each.bytes;
  }
  lock(LOCK_SH);
  return pruned;
}

fs::path build_cache_directory() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string own = variable("ADAPTDL_BUILD_CACHE"); !own.empty()) return fs::absolute(own);
  if (const std::string cache = variable("XDG_CACHE_HOME"); cache.starts_with('/'))
    return fs::path(cache) / "adaptdl/build";
  if (const std::string home = variable("HOME"); !home.empty()) return fs::absolute(home) / ".cache/adaptdl/build";
  throw Error("no directory for the build cache; set ADAPTDL_BUILD_CACHE or HOME");
}

std::uint64_t cache_limit(const std::optional<std::uint64_t>& wanted, const fs::path& directory) {
  if (wanted) return *wanted;
  if (const char* variable = std::getenv("ADAPTDL_BUILD_CACHE_LIMIT"); variable != nullptr && *variable != '\0') try {
      return parse_size(variable);
    } catch (const Error& error) {
      throw UsageError(fmt::format("ADAPTDL_BUILD_CACHE_LIMIT: {}", error.what()));
    }
  struct statvfs disk {};
  if (::statvfs(directory.c_str(), &disk) != 0) return kUsualLimit;
  return std::min<std::uint64_t>(kUsualLimit, static_cast<std::uint64_t>(disk.f_blocks) * disk.f_frsize / 10);
}

}  // namespace adaptdl::image
