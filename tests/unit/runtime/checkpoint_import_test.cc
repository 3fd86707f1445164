// Tests checkpoints that arrive in pieces: they are committed intact and with the right number, or not at all.
#include "checkpoint/import.h"

#include "checkpoint_support.h"

namespace checkpoint_import_test {

using namespace checkpoint_test;

namespace {

std::uint64_t size_of(const fs::path& checkpoint) {
  std::uint64_t size = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(checkpoint, ignored))
    size += entry.is_regular_file() ? entry.file_size() : 0;
  return size;
}

// A directory with checkpoints, and another directory to which they are copied.
struct Copies {
  explicit Copies(int count) {
    ::setenv("ADAPTDL_CHECKPOINT_KEEP", "100", 1);
    model.tensors = {{"weight", {"U8", {3}, "abc"}}};
    for (int i = 0; i < count; ++i) REQUIRE(ckpt::save_all_states());
  }

  // Passes the files of a checkpoint to `incoming`, after `change` has changed their contents.
  template <typename Change>
  void feed(ckpt::Import& incoming, const std::string& name, const Change& change) const {
    for (const auto& entry : fs::directory_iterator(directory / name)) {
      std::string content = read_file(entry.path());
      change(entry.path().filename().string(), content);
      incoming.begin_file(entry.path().filename());
      for (std::size_t at = 0; at < content.size(); at += 7) incoming.write(std::string_view(content).substr(at, 7));
    }
  }
  ckpt::Found copy(const std::string& name) const {
    ckpt::Import incoming(target, name, 1000);
    feed(incoming, name, [](const std::string&, std::string&) {});
    return incoming.commit();
  }
  ckpt::Found link(const std::string& name) const {
    return ckpt::link_checkpoint(directory / name, target, size_of(directory / name));
  }
  std::vector<std::string> copied() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(target)) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  Directory directory;
  fs::path target = directory.root() / "a/b";
  MapState model{"model"};
};

}  // namespace

TEST_CASE("an imported checkpoint is identical to its original") {
  const Copies copies(3);
  const ckpt::Found found = copies.copy("checkpoint-2");
  CHECK(found.number == 2);
  CHECK(found.path == copies.target / "checkpoint-2");
  CHECK(ckpt::verify(found.path).empty());
  for (const auto& entry : fs::directory_iterator(copies.directory / "checkpoint-2"))
    CHECK(read_file(entry.path()) == read_file(found.path / entry.path().filename()));
}

TEST_CASE("an imported checkpoint becomes the newest, even if it had a lower number") {
  const Copies copies(3);
  copies.copy("checkpoint-2");
  const ckpt::Found found = copies.copy("checkpoint-0");
  CHECK(found.number == 3);
  CHECK(ckpt::verify(found.path).empty());
  const auto newest = ckpt::newest_whole(copies.target);
  REQUIRE(newest);
  CHECK(newest->number == 3);
  CHECK(newest->manifest->number == 3);
}

TEST_CASE("nothing is left of an imported checkpoint that is damaged or incomplete") {
  const Copies copies(1);
  const auto receive = [&](const auto& change) {
    ckpt::Import incomplete(copies.target, "checkpoint-0", 1000);
    copies.feed(incomplete, "checkpoint-0", change);
    incomplete.commit();
  };
  const auto changed = [](const std::string& name, std::string& content) {
    if (name == "model.safetensors") content.back() ^= 1;
  };
  CHECK_THROWS_AS(receive(changed), ckpt::Damage);
  const auto truncated = [](const std::string& name, std::string& content) {
    if (name == "manifest.json") content.resize(content.size() / 2);
  };
  CHECK_THROWS_AS(receive(truncated), ckpt::Damage);
  {
    ckpt::Import missing(copies.target, "checkpoint-0", 1000);
    missing.begin_file("manifest.json");
    missing.write(read_file(copies.directory / "checkpoint-0/manifest.json"));
    CHECK_THROWS_AS(missing.commit(), ckpt::Damage);
  }
  {
    ckpt::Import additional(copies.target, "checkpoint-0", 1000);
    copies.feed(additional, "checkpoint-0", [](const std::string&, std::string&) {});
    additional.begin_file("other");
    CHECK_THROWS_AS(additional.commit(), ckpt::Damage);
  }
  { const ckpt::Import abandoned(copies.target, "checkpoint-0", 1000); }
  CHECK(copies.copied().empty());
}

TEST_CASE("a checkpoint of another runtime keeps its name, and never replaces another checkpoint") {
  const Copies copies(0);
  const auto receive = [&](const std::string& content) {
    ckpt::Import foreign(copies.target, "checkpoint-4", 1000);
    foreign.begin_file(".adaptdl-epoch");
    foreign.write(content);
    return foreign.commit();
  };
  CHECK(receive("first").number == 4);
  CHECK_THROWS_AS(receive("second"), ckpt::CheckpointError);
  CHECK(read_file(copies.target / "checkpoint-4/.adaptdl-epoch") == "first");
  CHECK(copies.copied() == std::vector<std::string>{"checkpoint-4"});
}

TEST_CASE("names that would lead out of the checkpoint's directory are rejected") {
  const Copies copies(0);
  for (const char* name : {"checkpoint-", "checkpoint-01", "..", "x/checkpoint-1"})
    CHECK_THROWS_AS(ckpt::Import(copies.target, name, 1), ckpt::CheckpointError);
  ckpt::Import incoming(copies.target, "checkpoint-1", 1);
  CHECK_THROWS_AS(incoming.write("x"), ckpt::CheckpointError);
  for (const char* name : {"", ".", "..", "../x", "a/b"})
    CHECK_THROWS_AS(incoming.begin_file(name), ckpt::CheckpointError);
  incoming.begin_file("a");
  CHECK_THROWS_AS(incoming.begin_file("a"), ckpt::CheckpointError);
}

TEST_CASE("a linked checkpoint shares the files of its original, and survives it") {
  const Copies copies(3);
  const fs::path original = copies.directory / "checkpoint-1";
  const ckpt::Found found = ckpt::link_checkpoint(original, copies.target, size_of(original));
  CHECK(found.number == 1);
  CHECK(copies.copied() == std::vector<std::string>{"checkpoint-1"});
  for (const auto& entry : fs::directory_iterator(original))
    CHECK(fs::equivalent(entry.path(), found.path / entry.path().filename()));
  fs::remove_all(original);
  CHECK(ckpt::verify(found.path).empty());
}

TEST_CASE("a checkpoint that cannot be linked leaves nothing behind") {
  const Copies copies(2);
  CHECK_THROWS_AS(copies.link("checkpoint-7"), ckpt::CheckpointError);
  CHECK_THROWS_AS(copies.link("model"), ckpt::CheckpointError);
  fs::create_directory(copies.directory / "checkpoint-1/directory");
  CHECK_THROWS_AS(copies.link("checkpoint-1"), ckpt::CheckpointError);
  CHECK_THROWS_AS(ckpt::link_checkpoint(copies.directory / "checkpoint-0", copies.target, 1), ckpt::Damage);
  CHECK(copies.copied().empty());
  copies.link("checkpoint-0");
  CHECK_THROWS_AS(copies.link("checkpoint-0"), ckpt::CheckpointError);
  CHECK(copies.copied() == std::vector<std::string>{"checkpoint-0"});
}

}  // namespace checkpoint_import_test
