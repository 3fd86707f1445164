// Blobs by their digests, in a directory: blobs/sha256/HEX, as in an OCI layout.
//
// A blob is written to a draft and gets its name when it is whole; what a killed process leaves is a draft, which
// remove_drafts() finds. When a blob was used last is its file's time of modification.
// Threading: any thread, and several processes on one directory; a Draft belongs to one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/digest.h"
#include "socket.h"

namespace adaptdl::image {

class BlobStore {
 public:
  // Makes the directory, if it is not there, for its owner alone, and blobs/sha256 in it. Throws Error.
  explicit BlobStore(std::filesystem::path directory);

  const std::filesystem::path& directory() const { return directory_; }
  // Where a blob is, or would be. REQUIRES: is_digest(digest).
  std::filesystem::path path_of(const std::string& digest) const;
  // The file of a blob, which counts as used now; null if it is not there, or has another size than `size`.
  std::optional<std::filesystem::path> find(const std::string& digest, std::optional<std::uint64_t> size = {}) const;
  // All of a blob, which counts as used now; null if it is not there, and, with the damaged file removed, if its bytes
  // are not the digest's. For what fits in memory: configurations and manifests. Throws Error.
  std::optional<std::string> read(const std::string& digest) const;

  // Removes the blob if its bytes are not the digest's, or cannot be read. It does not count as used.
  void check(const std::string& digest) const;

  // A blob that is being written; gone if it is not committed.
  class Draft {
   public:
    explicit Draft(const BlobStore& store, std::string_view algorithm = "sha256");
    ~Draft();
    Draft(const Draft&) = delete;
    Draft& operator=(const Draft&) = delete;

    void write(std::string_view bytes);  // Throws Error: a full disk.
    std::uint64_t size() const { return size_; }
    // Gives it its name, and returns its digest. Throws Error if `expected` is another.
    std::string commit(const std::string& expected = "");

   private:
    const BlobStore& store_;
    std::filesystem::path file_;  // empty: committed
    net::Fd fd_;
    Digester digester_;
    std::uint64_t size_ = 0;
  };
  // Returns its digest. Throws Error.
  std::string put(std::string_view bytes) const;

  struct Info {
    std::string digest;
    std::uint64_t size = 0;
    std::chrono::system_clock::time_point used;
  };
  // What there is, in no order.
  std::vector<Info> list() const;
  // True if it was there.
  bool remove(const std::string& digest) const;
  // Removes the drafts that no process is writing any more; returns their bytes.
  std::uint64_t remove_drafts() const;

 private:
  std::filesystem::path directory_;
};

}  // namespace adaptdl::image
