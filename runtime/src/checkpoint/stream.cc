#include "checkpoint/stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "checkpoint/draft.h"
#include "checkpoint/group.h"
#include "checkpoint/states.h"

namespace adaptdl::checkpoint {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxHead = std::size_t{64} << 20;
constexpr std::uint64_t kPiece = std::uint64_t{4} << 20;  // max bytes per piece held in memory

// A file whose bytes come from a range of a stream.
class StreamedFile final : public Input {
 public:
  StreamedFile(std::shared_ptr<StateStream> stream, std::uint64_t begin, std::uint64_t size, const std::string& name)
      : Input(name, size), stream_(std::move(stream)), begin_(begin) {}

  void read(std::uint64_t offset, std::span<std::byte> out) const override {
    if (offset > size() || out.size() > size() - offset)
      throw Damage(fmt::format("'{}' is truncated: it ends at byte {}", path().string(), size()));
    stream_->read(begin_ + offset, out);
  }

 private:
  std::shared_ptr<StateStream> stream_;
  std::uint64_t begin_;
};

struct Outgoing {
  std::string name;
  std::vector<FileDraft> files;
  std::uint64_t size = 0;
};

}  // namespace

void write_states(Sink& sink, int replicas, const std::set<std::string>* names) {
  std::vector<std::unique_ptr<StateWriter>> writers;
  std::vector<Outgoing> outgoing;
  for (const auto& [name, state] : states()) {
    if (names != nullptr && !names->contains(name)) continue;
    Outgoing each{name, draft_state(*state, writers), 0};
    for (const FileDraft& file : each.files) each.size += file.size;
    outgoing.push_back(std::move(each));
  }
  // Small states come first. If the receiver requests a large state first, it needs to hold only these small states in
  // memory.
  std::ranges::stable_sort(outgoing, {}, &Outgoing::size);
  json head = {{"replicas", replicas}, {"states", json::array()}};
  for (const Outgoing& each : outgoing) {
    json entries = json::array();
    for (const FileDraft& file : each.files) entries.push_back({{"name", file.name}, {"size", file.size}});
    head["states"].push_back({{"name", each.name}, {"files", entries}});
  }
  const std::string text = head.dump();
  std::array<std::byte, 8> length;
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<std::byte>(text.size() >> (8 * i));
  sink.write(length);
  sink.write(text);
  for (const Outgoing& each : outgoing)
    for (const FileDraft& file : each.files) file.write(sink);
}

void StateStream::read(std::uint64_t at, std::span<std::byte> out) {
  if (at > position_) keep_until(at);
  while (!out.empty() && at < position_) {
    const auto after = kept_.upper_bound(at);
    const auto found = after == kept_.begin() ? kept_.end() : std::prev(after);
    if (found == kept_.end() || at - found->first >= found->second.bytes.size())
      throw Damage("states from another replica can be read only once");
    Kept& kept = found->second;
    const auto from = std::span(kept.bytes).subspan(static_cast<std::size_t>(at - found->first));
    const auto part = from.first(std::min(from.size(), out.size()));
    std::ranges::copy(part, out.begin());
    at += part.size();
    out = out.subspan(part.size());
    kept.unread -= std::min<std::uint64_t>(kept.unread, part.size());
    if (kept.unread == 0) kept_.erase(found);
  }
  if (out.empty()) return;
  source_(out);
  position_ += out.size();
}

void StateStream::keep_until(std::uint64_t end) {
  while (position_ < end) {
    const std::uint64_t size = std::min(kPiece, end - position_);
    Kept kept{std::vector<std::byte>(static_cast<std::size_t>(size)), size};
    source_(kept.bytes);
    kept_.emplace(position_, std::move(kept));
    position_ += size;
  }
}

void StateStream::fetch() { keep_until(end_); }

Snapshot read_states(const std::shared_ptr<StateStream>& stream) {
  std::array<std::byte, 8> length;
  stream->read(0, length);
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < length.size(); ++i) size |= std::to_integer<std::uint64_t>(length[i]) << (8 * i);
  if (size > kMaxHead) throw CheckpointError("received malformed state data");
  std::string text(size, '\0');
  stream->read(length.size(), std::as_writable_bytes(std::span(text)));
  Manifest manifest;
  std::map<std::string, std::unique_ptr<Input>> files;
  std::uint64_t end = stream->position_;
  try {
    const json head = json::parse(text);
    head.at("replicas").get_to(manifest.replicas);
    for (const json& state : head.at("states")) {
      StateInfo& info = manifest.states.emplace_back();
      state.at("name").get_to(info.name);
      for (const json& file : state.at("files")) {
        info.files.push_back({file.at("name").get<std::string>(), file.at("size").get<std::uint64_t>(), ""});
        const FileInfo& last = info.files.back();
        files.emplace(last.name, std::make_unique<StreamedFile>(stream, end, last.size, last.name));
        if (__builtin_add_overflow(end, last.size, &end)) throw CheckpointError("received malformed state data");
      }
    }
  } catch (const json::exception& error) {
    throw CheckpointError(fmt::format("received malformed state data: {}", first_line(error)));
  }
  stream->end_ = end;
  return Snapshot("the running job", std::move(manifest), std::move(files));
}

}  // namespace adaptdl::checkpoint
