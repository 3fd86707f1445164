// A directory of blobs, named by their digests: blobs/sha256/HEX, as in an OCI layout.
//
// A blob is written to a draft file, which is renamed when it is complete; drafts that a killed process left behind are
// removed by remove_drafts(). The modification time of a blob's file is the time when the blob was last used.
// Threading: any thread, and several processes may share a directory; a Draft belongs to one thread at a time.
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
  // Creates the directory with mode 0700 if it does not exist, and blobs/sha256 in it. Throws Error.
  explicit BlobStore(std::filesystem::path directory);

  const std::filesystem::path& directory() const { return directory_; }
  // Returns the path at which a blob is stored if it exists. REQUIRES: is_digest(digest).
  std::filesystem::path path_of(const std::string& digest) const;
  // Returns a blob's file and marks it as used; null if it does not exist, or its size is not `size`.
  std::optional<std::filesystem::path> find(const std::string& digest, std::optional<std::uint64_t> size = {}) const;
  // Returns a blob's bytes and marks it as used. Null if it does not exist, or if its bytes do not match the digest;
  // then the damaged file is removed. For blobs that fit in memory: configurations and manifests. Throws Error.
  std::optional<std::string> read(const std::string& digest) const;

  // Removes the blob if its bytes do not match the digest or cannot be read. Does not mark it as used.
  void check(const std::string& digest) const;

  // A blob that is being written; it is removed if it is not committed.
  class Draft {
   public:
    explicit Draft(const BlobStore& store, std::string_view algorithm = "sha256");
    ~Draft();
    Draft(const Draft&) = delete;
    Draft& operator=(const Draft&) = delete;

    void write(std::string_view bytes);  // throws Error, for example if the disk is full
    std::uint64_t size() const { return size_; }
    // Names the blob by its digest, which it returns. Throws Error if `expected` is given and differs.
    std::string commit(const std::string& expected = "");

   private:
    const BlobStore& store_;
    std::filesystem::path file_;  // empty once committed
    net::Fd fd_;
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
  // Returns true if the blob existed.
  bool remove(const std::string& digest) const;
  // Removes the drafts that no process is writing any more, and returns their size in bytes.
  std::uint64_t remove_drafts() const;

 private:
  std::filesystem::path directory_;
};

}  // namespace adaptdl::image
