// Copies a checkpoint between a RemoteHost and a replica server if their machines do not share a directory.
//
// The sender's messages have the key "part":
//   {"part": "begin", "name": "checkpoint-7", "size": BYTES}
//   {"part": "file", "name": NAME}
//   {"part": "bytes", "base64": BYTES}      the file's next bytes
//   {"part": "end"} | {"part": "abort"}     commits, or discards, the checkpoint
// or, if the receiver's machine has the checkpoint in another directory, which the receiver may share:
//   {"part": "link", "path": PATH, "size": BYTES}
// The receiver answers each "bytes" with {"part": "received"}. Only a few of them may be unanswered, so that neither
// the channel nor a driver that forwards the messages holds much of the checkpoint in memory. The receiver answers
// "end" and "link" with {"part": "stored", "path": PATH} or, as soon as it cannot store the checkpoint, {"part":
// "failed", "why": TEXT}. All messages and answers also have the key "copy", the number of the copy. Callers add a key
// that identifies these messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/files.h"
#include "checkpoint/import.h"

namespace adaptdl::sched {

class CheckpointSender {
 public:
  // Opens all files, so that the checkpoint can be sent even if it is deleted. `copy` must differ from the numbers of
  // earlier copies over the same channel. Throws Error if the checkpoint cannot be read.
  CheckpointSender(std::filesystem::path checkpoint, int copy);

  // Returns the next message, or nullopt while the receiver must answer first, and after the last message. Throws Error
  // if a file cannot be read.
  std::optional<nlohmann::json> next();
  // Processes an answer from the receiver. Answers that belong to an earlier copy are ignored.
  void take(const nlohmann::json& answer);

  // Returns the size of the checkpoint's files in bytes.
  std::uint64_t size() const noexcept { return size_; }
  // Returns whether the receiver has stored the checkpoint or has failed to.
  bool done() const noexcept { return done_; }
  // Returns why the receiver has failed; empty if it has not.
  const std::string& failure() const noexcept { return failure_; }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes
  static constexpr int kMaxUnanswered = 8;                     // pieces

  nlohmann::json part();

  const std::filesystem::path path_;
  const int copy_;
  std::deque<std::unique_ptr<checkpoint::InputFile>> files_;  // not sent completely; the first one is the current one
  std::uint64_t size_ = 0;                                    // of all files, in bytes
  std::uint64_t offset_ = 0;                                  // in the current file
  int unanswered_ = 0;
  bool begun_ = false, named_ = false, ended_ = false, done_ = false;  // named: the current file's name has been sent
  std::string failure_;
};

class CheckpointReceiver {
 public:
  // Stores checkpoints in `directory`, of which it keeps the newest `keep`.
  CheckpointReceiver(std::filesystem::path directory, int keep) : directory_(std::move(directory)), keep_(keep) {}

  // Processes a message from the sender, and returns the answer to it, or null if there is none.
  nlohmann::json take(const nlohmann::json& message);
  // Returns the path of the checkpoint that was stored last; empty if none was.
  const std::filesystem::path& stored() const noexcept { return stored_; }

 private:
  nlohmann::json store(const nlohmann::json& message);
  nlohmann::json answer_stored(const checkpoint::Found& found);

  const std::filesystem::path directory_;
  const int keep_;
  std::optional<checkpoint::Import> incoming_;  // nullopt also after a failure
  std::filesystem::path stored_;
};

}  // namespace adaptdl::sched
