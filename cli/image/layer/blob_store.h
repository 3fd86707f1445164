// A directory of blobs, named by their digests: blobs/sha256/HEX, as in an OCI layout.
//
// A blob is written to a draft file, which is renamed when it is complete; remove_drafts() removes drafts that killed
// processes left behind. A blob file's modification time is the time when the blob was last used.
// Threading: any thread may use a store, and several processes may share a directory. A Draft must be used from one
// thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "image/base/digest.h"

namespace adaptdl::image {

class BlobStore {
 public:
  // Creates the directory with mode 0700 if it does not exist, and blobs/sha256 in it. Throws Error.
  explicit BlobStore(std::filesystem::path directory);

  const std::filesystem::path& directory() const { return directory_; }
  // Returns the path of the blob's file, which need not exist. REQUIRES: is_digest(digest).
  std::filesystem::path path_of(const std::string& digest) const;
  // Returns a blob's path and marks the blob as used; nullopt if it does not exist or its size is not `size`.
  std::optional<std::filesystem::path> find(const std::string& digest, std::optional<std::uint64_t> size = {}) const;
  // Returns a blob's bytes and marks it as used; nullopt if it does not exist. If its bytes do not match the digest,
  // removes the damaged file and returns nullopt. Intended for blobs that fit in memory, that is, configurations and
  // manifests. Throws Error.
  std::optional<std::string> read(const std::string& digest) const;

  // Removes the blob if its bytes do not match the digest or cannot be read. Does not mark it as used.
  void check(const std::string& digest) const;

  // A blob that is being written; the destructor removes it unless it was committed.
  class Draft {
   public:
    explicit Draft(const BlobStore& store, std::string_view algorithm = "sha256");
    ~Draft();
    Draft(const Draft&) = delete;
    Draft& operator=(const Draft&) = delete;

    void write(std::string_view bytes);  // throws Error, for example if the disk is full
    std::uint64_t size() const { return size_; }
    // Stores the blob under its digest, and returns the digest. Throws Error if `expected` is not empty and differs
    // from the digest.
    std::string commit(const std::string& expected = "");

   private:
    const BlobStore& store_;
    std::filesystem::path file_;  // empty once committed
    Fd fd_;
    Digester digester_;
    std::uint64_t size_ = 0;
  };
  // Stores the bytes and returns their digest. Throws Error.
  std::string put(std::string_view bytes) const;

  struct Info {
    std::string digest;
    std::uint64_t size = 0;
    std::chrono::system_clock::time_point used;
  };
  // Returns all blobs, in no particular order.
  std::vector<Info> list() const;
  // Removes the blob. Returns whether the blob existed.
  bool remove(const std::string& digest) const;
  // Removes drafts that no process is writing any longer, and returns their total size in bytes.
  std::uint64_t remove_drafts() const;

 private:
  std::filesystem::path directory_;
};

}  // namespace adaptdl::image
