// Files as checkpoints need them: descriptors that close themselves, complete reads and writes, errors that name the
// path, and a stream to disk that checksums what it writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "adaptdl/checkpoint.h"
#include "checkpoint/checksum.h"
#include "private_files.h"

namespace adaptdl::checkpoint {

// What is on the disk is not what was saved: an older checkpoint may be used instead. Any other failure to read is a
// plain CheckpointError, which ends the load: a missing permission or too many open files say nothing about the data.
class Damage : public CheckpointError {
  using CheckpointError::CheckpointError;
};

// What is on the disk could not be read, now: another time it may be whole.
class Unreadable : public Damage {
  using Damage::Damage;
};

// The disk, or what the user may have of it, is full.
class NoSpace : public CheckpointError {
  using CheckpointError::CheckpointError;
};

// "ACTION: TEXT OF errno"
std::string errno_text(const std::string& action, int error);
// Throws CheckpointError with that text, or NoSpace.
[[noreturn]] void throw_write_error(const std::string& action, int error);
// Throws CheckpointError with that text, or Damage if `error` is one that a damaged disk or a missing file gives.
[[noreturn]] void throw_read_error(const std::string& action, int error);

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd();
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Opens a directory for reading. Throws as throw_read_error.
Fd open_directory(const std::filesystem::path& path);

// Bytes of a known number that can be read: a file's, or those that another process sends.
class Input {
 public:
  Input(std::filesystem::path path, std::uint64_t size) : path_(std::move(path)), size_(size) {}
  virtual ~Input() = default;
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return size_; }
  // Reads [offset, offset + out.size()). Throws Damage if there is less.
  virtual void read(std::uint64_t offset, std::span<std::byte> out) const = 0;
  // Throws CheckpointError if the bytes are others than when it was opened.
  virtual void check_unchanged() const {}

  std::string read_all() const;
  // The checksum of all its bytes, read in order.
  std::string checksum() const;

 protected:
  std::filesystem::path path_;
  std::uint64_t size_;
};

// A regular file open for reading. It remembers its size and time of change, so that a later change can be told.
class InputFile final : public Input {
 public:
  // Opens `name` in `directory`, whose path is for messages. Throws as throw_read_error; Damage if it is not a regular
  // file.
  InputFile(const Fd& directory, const std::filesystem::path& path, const std::string& name);

  // A large range is read by several threads: it has been checked before, and copies from the page cache are as fast as
  // processors are many.
  void read(std::uint64_t offset, std::span<std::byte> out) const override;
  void check_unchanged() const override;

 private:
  void read_part(std::uint64_t offset, std::span<std::byte> out) const;

  Fd fd_;
  std::int64_t modified_ns_ = 0;
};

// Bytes on their way somewhere.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(std::span<const std::byte> data) = 0;
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
};

// A new file. The kernel is told to write while more comes in, so that the last fsync has little left to wait for, and
// no more than some tens of MiB of dirty pages exist at a time.
class OutputFile : public Sink {
 public:
  enum class Existing { kFail, kReplace };
  explicit OutputFile(const std::filesystem::path& path, Existing existing = Existing::kFail,
                      mode_t permissions = kPrivateFile);
  // Deletes the file if it was not finished.
  ~OutputFile() override;
  using Sink::write;
  void write(std::span<const std::byte> data) override;
  // Writes what is left to the disk and closes. Throws CheckpointError; nothing is on the disk for sure before it
  // returned.
  FileInfo finish();

 private:
  void start_writeback();

  Fd fd_;
  std::filesystem::path path_;
  Checksum checksum_;
  std::uint64_t size_ = 0;
  std::uint64_t started_ = 0;  // up to here writing to the disk has been started
  std::uint64_t awaited_ = 0;  // up to here it has ended
};

// fsync of a directory, so that the names in it are on the disk.
void sync_directory(const std::filesystem::path& path);

// Renames and never replaces: returns false if `to` is there already. Throws CheckpointError.
bool rename_new(const std::filesystem::path& from, const std::filesystem::path& to);

// Makes a private directory and those above it that are missing, on the disk. Throws CheckpointError.
void make_directories(const std::filesystem::path& path);

// Some digits that no other saver draws.
std::string random_suffix();

}  // namespace adaptdl::checkpoint
