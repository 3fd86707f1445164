// Tests inspecting checkpoints without the program that wrote them: list, verify, newest_whole, export and prune.
#include "checkpoint_support.h"
#include "golden.h"

namespace checkpoint_inspect_test {

using namespace checkpoint_test;

namespace {

MapState::Tensor floats(const std::vector<float>& values) {
  return {"F32",
          {static_cast<std::int64_t>(values.size())},
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
}

// Splits a safetensors file into its header and its data.
std::pair<json, std::string> parse_safetensors(const fs::path& path) {
  const std::string text = read_file(path);
  REQUIRE(text.size() >= 8);
  std::uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  REQUIRE(length <= text.size() - 8);
  return {json::parse(text.substr(8, length)), text.substr(8 + length)};
}

std::string data_of(const std::pair<json, std::string>& file, const std::string& tensor) {
  const auto offsets = file.first.at(tensor).at("data_offsets").get<std::vector<std::size_t>>();
  return file.second.substr(offsets[0], offsets[1] - offsets[0]);
}

struct Checkpoints {
  explicit Checkpoints(int count) {
    ::setenv("ADAPTDL_CHECKPOINT_KEEP", "100", 1);
    ::setenv("ADAPTDL_JOB_ID", "default/job", 1);
    model.tensors = {
        {"weight", floats({1, 2, 3})}, {"flags", {"BOOL", {3}, std::string("\1\0\1", 3)}}, {"none", {"F64", {0}, ""}}};
    model.values["lr"] = 0.5;
    optimizer.tensors = {{"weight", floats({4, 5})}};
    for (int i = 0; i < count; ++i) REQUIRE(ckpt::save_all_states());
    ::unsetenv("ADAPTDL_JOB_ID");
  }
  fs::path at(int number) const { return directory / ("checkpoint-" + std::to_string(number)); }
  std::vector<std::string> names_of(const std::vector<fs::path>& paths) const {
    std::vector<std::string> names;
    for (const fs::path& path : paths) {
      CHECK(path.parent_path() == directory.path());
      names.push_back(path.filename().string());
    }
    return names;
  }

  Directory directory;
  MapState model{"model"}, optimizer{"optimizer"};
};

}  // namespace

TEST_CASE("the manifest records the job, states and files, with checksums as printed by xxhsum -H2") {
  const Checkpoints checkpoints(1);
  const std::string text = read_file(checkpoints.at(0) / "manifest.json");
  const json manifest = json::parse(text);
  CHECK(manifest["format"] == 1);
  CHECK(manifest["number"] == 0);
  CHECK(manifest["job"] == "default/job");
  CHECK(manifest["replicas"] == 1);
  CHECK(manifest["created"].get<std::string>().size() == std::string("2024-01-01T00:00:00Z").size());
  const std::string before = text.substr(0, text.rfind("\"checksum\""));
  CHECK(manifest["checksum"] == xxh128(before));
  CHECK(xxh128("") == "99aa06d3014798d86001c324468d497f");
  REQUIRE(manifest["states"].size() == 2);
  for (const json& state : manifest["states"])
    for (const json& file : state["files"]) {
      const std::string content = read_file(checkpoints.at(0) / file["name"].get<std::string>());
      CHECK(file["size"] == content.size());
      CHECK(file["checksum"] == xxh128(content));
    }
}

TEST_CASE("tensor data is aligned to its element size, so that loaders can map the file") {
  const Checkpoints checkpoints(1);
  const auto file = parse_safetensors(checkpoints.at(0) / "model.safetensors");
  CHECK(data_of(file, "weight") == checkpoints.model.tensors.at("weight").data);
  CHECK(file.first["weight"]["data_offsets"][0].get<std::size_t>() % 4 == 0);
  CHECK((fs::file_size(checkpoints.at(0) / "model.safetensors") - file.second.size()) % 8 == 0);
}

TEST_CASE("list returns the newest checkpoint first and reports missing files and damaged manifests") {
  const Checkpoints checkpoints(4);
  fs::remove(checkpoints.at(2) / "model.json");
  write_file(checkpoints.at(1) / "manifest.json", "{}");
  const auto entries = ckpt::list(checkpoints.directory.path());
  REQUIRE(entries.size() == 4);
  CHECK(entries[0].number == 3);
  CHECK(entries[0].path == checkpoints.at(3));
  CHECK(entries[0].problem.empty());
  CHECK(entries[0].manifest->states.size() == 2);
  CHECK(entries[1].manifest);
  CHECK(contains(entries[1].problem, "model.json': No such file"));
  CHECK_FALSE(entries[2].manifest);
  CHECK(contains(entries[2].problem, "manifest.json' is damaged"));
  CHECK(entries[3].problem.empty());
  CHECK(contains(error_of([&] { ckpt::list(checkpoints.directory / "missing"); }), "cannot read"));
}

TEST_CASE("verify reads every byte and names each damaged file") {
  const Checkpoints checkpoints(1);
  CHECK(ckpt::verify(checkpoints.at(0)).empty());
  CHECK(ckpt::verify(checkpoints.at(0) / "").empty());
  flip_bit(checkpoints.at(0) / "model.json", 2);
  fs::resize_file(checkpoints.at(0) / "optimizer.safetensors", 3);
  const auto problems = ckpt::verify(checkpoints.at(0));
  REQUIRE(problems.size() == 2);
  CHECK(contains(problems[0], "model.json' is damaged"));
  CHECK(contains(problems[1], "optimizer.safetensors' has 3 bytes"));
  CHECK_GOLDEN(error_of([&] { ckpt::verify(checkpoints.at(9)); }));
}

TEST_CASE("a checkpoint copied under another name still passes verification") {
  const Checkpoints checkpoints(1);
  fs::copy(checkpoints.at(0), checkpoints.directory / "best");
  CHECK(ckpt::verify(checkpoints.directory / "best").empty());
}

TEST_CASE("newest_whole skips checkpoints with corrupt data") {
  const Checkpoints checkpoints(3);
  flip_bit(checkpoints.at(2) / "model.json", 2);
  CHECK(ckpt::newest_whole(checkpoints.directory.path())->number == 1);
  for (const int i : {0, 1}) flip_bit(checkpoints.at(i) / "model.json", 2);
  CHECK_FALSE(ckpt::newest_whole(checkpoints.directory.path()));
}

TEST_CASE("export_tensors writes all tensors, those of one state, or those whose names have a prefix") {
  const Checkpoints checkpoints(1);
  const fs::path file = checkpoints.directory.root() / "out.safetensors";
  ckpt::export_tensors(checkpoints.at(0), file);
  auto exported = parse_safetensors(file);
  CHECK(exported.first.size() == 4);
  CHECK(data_of(exported, "model/weight") == checkpoints.model.tensors.at("weight").data);
  CHECK(data_of(exported, "model/flags") == std::string("\1\0\1", 3));
  CHECK(data_of(exported, "model/none").empty());
  CHECK(data_of(exported, "optimizer/weight") == checkpoints.optimizer.tensors.at("weight").data);
  CHECK(exported.first["optimizer/weight"]["data_offsets"][0].get<std::size_t>() % 4 == 0);

  ckpt::export_tensors(checkpoints.at(0), file, "optimizer");  // replaces the file
  exported = parse_safetensors(file);
  CHECK(exported.first.size() == 1);
  CHECK(data_of(exported, "weight") == checkpoints.optimizer.tensors.at("weight").data);

  ckpt::export_tensors(checkpoints.at(0), file, {}, "fl");
  exported = parse_safetensors(file);
  CHECK(exported.first.size() == 1);
  CHECK(data_of(exported, "ags") == std::string("\1\0\1", 3));
  CHECK_GOLDEN(error_of([&] { ckpt::export_tensors(checkpoints.at(0), file, {}, "wei"); }));
  CHECK_GOLDEN(error_of([&] { ckpt::export_tensors(checkpoints.at(0), file, {}, "x"); }));
}

TEST_CASE("a failed export leaves the existing file unchanged") {
  Checkpoints checkpoints(1);
  const fs::path file = checkpoints.directory.root() / "out.safetensors";
  write_file(file, "before");
  const auto refused = [&](const std::string& reason, const std::optional<std::string>& state = {}) {
    CHECK(contains(error_of([&] { ckpt::export_tensors(checkpoints.at(0), file, state); }), reason));
    CHECK(read_file(file) == "before");
    CHECK(std::distance(fs::directory_iterator(checkpoints.directory.root()), {}) == 2);
  };
  refused("has no state 'other'", "other");
  flip_bit(checkpoints.at(0) / "model.safetensors", 30);
  refused("model.safetensors' is damaged");
  CHECK_THROWS_AS(ckpt::export_tensors(checkpoints.at(0), checkpoints.directory.root() / "missing/out", "optimizer"),
                  ckpt::CheckpointError);
  fs::remove_all(checkpoints.at(0));
  MapState clash("model/weight");
  clash.tensors["x"] = floats({1});
  checkpoints.model.tensors = {{"weight/x", floats({1})}};
  REQUIRE(ckpt::save_all_states());
  refused("two tensors of '" + checkpoints.at(0).string() + "' would be named 'model/weight/x'");
}

TEST_CASE("exporting a checkpoint without tensors fails") {
  const Directory directory;
  const Number state("a");
  REQUIRE(ckpt::save_all_states());
  CHECK_GOLDEN(error_of([&] { ckpt::export_tensors(directory / "checkpoint-0", directory / "out"); }));
}

TEST_CASE("prune keeps the newest intact checkpoints, and a single remaining one even if it is damaged") {
  const Checkpoints checkpoints(5);
  const fs::path& directory = checkpoints.directory.path();
  fs::create_directory(directory / ".saving-7-1-dead");
  flip_bit(checkpoints.at(4) / "model.json", 2);
  using Names = std::vector<std::string>;
  const Names all = checkpoints.directory.names();
  const Names doomed{".saving-7-1-dead", "checkpoint-4", "checkpoint-1", "checkpoint-0"};
  CHECK(checkpoints.names_of(ckpt::prune(directory, 2, true)) == doomed);
  CHECK(checkpoints.directory.names() == all);
  CHECK(checkpoints.names_of(ckpt::prune(directory, 2)) == doomed);
  CHECK(checkpoints.directory.names() == Names{"checkpoint-2", "checkpoint-3"});
  CHECK(ckpt::prune(directory, 2).empty());
  CHECK_THROWS_AS(ckpt::prune(directory, 0), adaptdl::UsageError);

  flip_bit(checkpoints.at(3) / "optimizer.safetensors", 50);
  CHECK(checkpoints.names_of(ckpt::prune(directory, 1)) == Names{"checkpoint-3"});
  flip_bit(checkpoints.at(2) / "model.json", 2);
  CHECK(ckpt::prune(directory, 1).empty());
  CHECK(checkpoints.directory.names() == Names{"checkpoint-2"});
}

TEST_CASE("prune keeps checkpoints written by a newer version") {
  const Checkpoints checkpoints(3);
  for (const int i : {0, 2}) write_file(checkpoints.at(i) / "manifest.json", R"({"format": 2})");
  CHECK(ckpt::prune(checkpoints.directory.path(), 1).empty());
  CHECK(checkpoints.directory.names().size() == 3);
}

}  // namespace checkpoint_inspect_test
