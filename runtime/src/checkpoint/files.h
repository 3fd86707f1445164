// File access for checkpoints: complete reads and writes, errors that name the path, and an output stream that computes
// the checksum of what it writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "adaptdl/checkpoint.h"
#include "base/fd.h"
#include "base/private_files.h"
#include "checkpoint/checksum.h"

namespace adaptdl::checkpoint {

// The data on the disk is not what was saved, so an older checkpoint may be used instead. Any other failure to read is
// a plain CheckpointError, which ends the load: missing permissions or too many open files do not mean that the data is
// damaged.
class Damage : public CheckpointError {
  using CheckpointError::CheckpointError;
};

// The disk failed to read the data (EIO). The data may be intact, and a later attempt may succeed.
class Unreadable : public Damage {
  using Damage::Damage;
};

// The disk, or the user's quota on it, is full.
class NoSpace : public CheckpointError {
  using CheckpointError::CheckpointError;
};

// Returns "ACTION: TEXT OF errno".
std::string errno_text(const std::string& action, int error);
// Throws CheckpointError with the text of errno_text, or NoSpace if `error` is ENOSPC or EDQUOT.
[[noreturn]] void throw_write_error(const std::string& action, int error);
// Throws CheckpointError with the text of errno_text, or Damage if `error` means a faulty disk (Unreadable) or a
// missing file.
[[noreturn]] void throw_read_error(const std::string& action, int error);

// Opens a directory for reading. Throws the same errors as throw_read_error.
Fd open_directory(const std::filesystem::path& path);

// A readable sequence of bytes of known length: a file, or data that another process sends.
class Input {
 public:
  Input(std::filesystem::path path, std::uint64_t size) : path_(std::move(path)), size_(size) {}
  virtual ~Input() = default;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return size_; }
  // Reads [offset, offset + out.size()). Throws Damage if the input is shorter.
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  // Throws CheckpointError if the bytes have changed since the input was opened.
  virtual void check_unchanged() const {}

  std::string read_all() const;
  // Returns the checksum of all bytes, read in order.
  std::string checksum() const;

 protected:
  std::filesystem::path path_;
  std::uint64_t size_;
};

// A regular file open for reading. It remembers its size and modification time to detect later changes.
class InputFile final : public Input {
 public:
  // Opens `name` in `directory`; `path` is the directory's path, for messages. Throws the same errors as
  // throw_read_error, and Damage if the file is not regular.
  InputFile(const Fd& directory, const std::filesystem::path& path, const std::string& name);

  // A large range is read by several threads: after the check, the data is usually in the page cache, and the speed of
  // copying it from there scales with the number of processors.
  void read(std::uint64_t offset, std::span<std::byte> out) const override;
  void check_unchanged() const override;

 private:
  void read_part(std::uint64_t offset, std::span<std::byte> out) const;

  Fd fd_;
  std::int64_t modified_ns_ = 0;
};

// A destination for bytes.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(std::span<const std::byte> data) = 0;
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
};

// A new file. Writeback to the disk starts while data is still being written, so that the final fsync has little left
// to wait for, and no more than a few tens of MiB are dirty at a time.
class OutputFile : public Sink {
 public:
  enum class Existing { kFail, kReplace };
  explicit OutputFile(const std::filesystem::path& path, Existing existing = Existing::kFail,
                      mode_t permissions = kPrivateFile);
  // Deletes the file unless finish() has succeeded.
  ~OutputFile() override;
  using Sink::write;
  void write(std::span<const std::byte> data) override;
  // Flushes the file to the disk and closes it. The data is durable only after this function returns. Throws
  // CheckpointError.
  FileInfo finish();

 private:
  void start_writeback();

  Fd fd_;
  std::filesystem::path path_;
  Checksum checksum_;
  std::uint64_t size_ = 0;
  std::uint64_t started_ = 0;  // writeback has started up to this byte
  std::uint64_t awaited_ = 0;  // writeback has completed up to this byte
};

// Syncs a directory to make the names in it durable.
void sync_directory(const std::filesystem::path& path);

// Renames without replacing: returns false if `to` already exists. Throws CheckpointError.
bool rename_new(const std::filesystem::path& from, const std::filesystem::path& to);

// Creates a private directory and its missing parents, and syncs them to the disk. Throws CheckpointError.
void make_directories(const std::filesystem::path& path);

// Returns 16 random hexadecimal digits, which keep the temporary names of concurrent saves distinct.
std::string random_suffix();

}  // namespace adaptdl::checkpoint
