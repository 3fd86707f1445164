#include "checkpoint/stream.h"

#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

#include "checkpoint/draft.h"
#include "checkpoint/group.h"
#include "checkpoint/registry.h"

namespace adaptdl::checkpoint {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxHead = std::size_t{64} << 20;
constexpr std::size_t kChunk = std::size_t{4} << 20;

// A file in memory of `size` bytes from the stream.
InputFile read_file(const std::string& name, std::uint64_t size,
                    const std::function<void(std::span<std::byte>)>& read) {
  Fd fd(::memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!fd) throw CheckpointError(errno_text("cannot make a file in memory", errno));
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min<std::uint64_t>(size, kChunk)));
  for (std::uint64_t left = size; left > 0;) {
    auto chunk = std::span(buffer).first(static_cast<std::size_t>(std::min<std::uint64_t>(left, buffer.size())));
    read(chunk);
    left -= chunk.size();
    while (!chunk.empty()) {
      const ssize_t written = ::write(fd.get(), chunk.data(), chunk.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) throw CheckpointError(errno_text("cannot write to a file in memory", errno));
      chunk = chunk.subspan(static_cast<std::size_t>(written));
    }
  }
  return InputFile(std::move(fd), name);
}

}  // namespace

void write_states(Sink& sink, int replicas, const std::set<std::string>* names) {
  std::vector<std::unique_ptr<StateWriter>> writers;
  std::vector<FileDraft> files;
  json head = {{"replicas", replicas}, {"states", json::array()}};
  for (const auto& [name, state] : states()) {
    if (names != nullptr && !names->contains(name)) continue;
    json entries = json::array();
    for (FileDraft& file : draft_state(*state, writers)) {
      entries.push_back({{"name", file.name}, {"size", file.size}});
      files.push_back(std::move(file));
    }
    head["states"].push_back({{"name", name}, {"files", entries}});
  }
  const std::string text = head.dump();
  std::array<std::byte, 8> length;
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  sink.write(length);
  sink.write(text);
  for (const FileDraft& file : files) file.write(sink);
}

Snapshot read_states(const std::function<void(std::span<std::byte>)>& read) {
  std::array<std::byte, 8> length;
  read(length);
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < length.size(); ++i) size |= std::to_integer<std::uint64_t>(length[i]) << (8 * i);
  if (size > kMaxHead) throw CheckpointError("what a member sent are no states");
  std::string text(size, '\0');
  read(std::as_writable_bytes(std::span(text)));
  Manifest manifest;
  std::map<std::string, InputFile> files;
  try {
    const json head = json::parse(text);
    head.at("replicas").get_to(manifest.replicas);
    for (const json& state : head.at("states")) {
      StateInfo& info = manifest.states.emplace_back();
      state.at("name").get_to(info.name);
      for (const json& file : state.at("files")) {
        info.files.push_back({file.at("name").get<std::string>(), file.at("size").get<std::uint64_t>(), ""});
        const FileInfo& last = info.files.back();
        files.emplace(last.name, read_file(last.name, last.size, read));
      }
    }
  } catch (const json::exception& error) {
    throw CheckpointError(fmt::format("what a member sent are no states: {}", one_line(error)));
  }
  return Snapshot("the running job", std::move(manifest), std::move(files));
}

}  // namespace adaptdl::checkpoint
