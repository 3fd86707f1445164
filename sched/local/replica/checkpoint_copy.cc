#include "local/replica/checkpoint_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <system_error>
#include <utility>

#include "adaptdl/error.h"
#include "base/base64.h"
#include "checkpoint/prune.h"

namespace adaptdl::sched {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

}  // namespace

CheckpointSender::CheckpointSender(fs::path checkpoint, int copy) : path_(std::move(checkpoint)), copy_(copy) {
  const Fd directory = checkpoint::open_directory(path_);
  std::error_code error;
  for (fs::directory_iterator it(path_, error), end; !error && it != end; it.increment(error)) {
    files_.push_back(std::make_unique<checkpoint::InputFile>(directory, path_, it->path().filename().string()));
    size_ += files_.back()->size();
  }
  if (error) throw Error(fmt::format("cannot read directory '{}': {}", path_.string(), error.message()));
}

std::optional<json> CheckpointSender::next() {
  if (ended_ || unanswered_ >= kMaxUnanswered) return std::nullopt;
  json message = part();
  message["copy"] = copy_;
  return message;
}

json CheckpointSender::part() {
  if (!std::exchange(begun_, true)) return {{"part", "begin"}, {"name", path_.filename().string()}, {"size", size_}};
  if (files_.empty()) {
    ended_ = true;
    return {{"part", "end"}};
  }
  const checkpoint::InputFile& file = *files_.front();
  if (!std::exchange(named_, true)) return {{"part", "file"}, {"name", file.path().filename().string()}};
  std::string bytes(std::min<std::uint64_t>(kPiece, file.size() - offset_), '\0');
  file.read(offset_, std::as_writable_bytes(std::span(bytes)));
  offset_ += bytes.size();
  if (offset_ == file.size()) {
    files_.pop_front();
    offset_ = 0;
    named_ = false;
  }
  ++unanswered_;
  return {{"part", "bytes"}, {"base64", encode_base64(bytes)}};
}

void CheckpointSender::take(const json& answer) {
  if (answer.at("copy") != copy_) return;
  const auto part = answer.at("part").get<std::string>();
  if (part == "received") {
    --unanswered_;
  } else {
    done_ = ended_ = true;
    if (part == "failed") answer.at("why").get_to(failure_);
  }
}

json CheckpointReceiver::take(const json& message) {
  json answer;
  try {
    answer = store(message);
  } catch (const Error& error) {
    incoming_.reset();
    answer = {{"part", "failed"}, {"why", error.what()}};
  }
  if (!answer.is_null()) answer["copy"] = message.at("copy");
  return answer;
}

json CheckpointReceiver::store(const json& message) {
  const auto part = message.at("part").get<std::string>();
  if (part == "link") {
    incoming_.reset();
    return answer_stored(checkpoint::link_checkpoint(message.at("path").get<std::string>(), directory_,
                                                     message.at("size").get<std::uint64_t>()));
  }
  if (part == "begin") {
    incoming_.reset();
    incoming_.emplace(directory_, message.at("name").get<std::string>(), message.at("size").get<std::uint64_t>());
  } else if (!incoming_) {
    return nullptr;  // the sender does not know of the failure yet
  } else if (part == "file") {
    incoming_->begin_file(message.at("name").get<std::string>());
  } else if (part == "bytes") {
    const auto bytes = decode_base64(message.at("base64").get_ref<const std::string&>());
    if (!bytes) throw Error("invalid base64 in a part of a checkpoint");
    incoming_->write(*bytes);
    return {{"part", "received"}};
  } else if (part == "end") {
    const checkpoint::Found found = incoming_->commit();
    incoming_.reset();
    checkpoint::prune_after_save(directory_, found, keep_);
    return answer_stored(found);
  } else {
    incoming_.reset();
  }
  return nullptr;
}

json CheckpointReceiver::answer_stored(const checkpoint::Found& found) {
  stored_ = found.path;
  return {{"part", "stored"}, {"path", found.path.string()}};
}

}  // namespace adaptdl::sched
