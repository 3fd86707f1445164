// Tests how loading handles checkpoints that are damaged, invalid, or of a newer format.
#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "adaptdl/checkpoint.h"
#include "checkpoint_load_support.h"
#include "checkpoint_support.h"
#include "golden.h"

namespace checkpoint_damage_test {

using namespace checkpoint_test;
using namespace checkpoint_load_support;

namespace {

// Applies `change` to the manifest, and corrects its checksum.
void rewrite_manifest(const fs::path& checkpoint, const std::function<void(json&)>& change) {
  json manifest = json::parse(read_file(checkpoint / "manifest.json"));
  change(manifest);
  manifest.erase("checksum");
  std::string text = manifest.dump(2);
  text.resize(text.size() - 2);
  text += ",\n  ";
  write_file(checkpoint / "manifest.json", text + "\"checksum\": \"" + xxh128(text) + "\"\n}\n");
}

// Replaces a file of a checkpoint with `content`, and corrects its size and checksum in the manifest.
void replace_file(const fs::path& checkpoint, const std::string& file, const std::string& content) {
  write_file(checkpoint / file, content);
  rewrite_manifest(checkpoint, [&](json& manifest) {
    for (json& state : manifest["states"])
      for (json& entry : state["files"])
        if (entry["name"] == file) entry["size"] = content.size(), entry["checksum"] = xxh128(content);
  });
}

std::string safetensors(const std::string& header, const std::string& data = "") {
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[static_cast<std::size_t>(i)] = static_cast<char>(header.size() >> (8 * i));
  return length + header + data;
}

}  // namespace

TEST_CASE("a checkpoint with a damaged file is skipped with a warning that states the reason") {
  TwoCheckpoints two;
  const fs::path newest = two.directory / "checkpoint-1";
  const std::string data = (newest / "model.safetensors").string();
  SUBCASE("a flipped bit in tensor data") {
    flip_bit(data, read_file(data).size() - 1);
    two.expect_older("'" + data + "' is damaged: its checksum does not match");
  }
  SUBCASE("a flipped bit in a JSON file") {
    flip_bit(newest / "number.json", 3);
    two.expect_older("number.json' is damaged");
  }
  SUBCASE("a truncated file") {
    fs::resize_file(data, 500);
    two.expect_older("has 500 bytes, but should have ");
  }
  SUBCASE("a file with extra bytes") {
    write_file(data, read_file(data) + "x");
    two.expect_older("according to the manifest");
  }
  SUBCASE("a missing file") {
    fs::remove(data);
    two.expect_older("cannot open '" + data + "': No such file");
  }
  SUBCASE("a file from another checkpoint") {
    fs::remove(data);
    fs::copy_file(two.directory / "checkpoint-0/model.safetensors", data);
    two.expect_older("its checksum does not match");
  }
  SUBCASE("a directory in place of a file") {
    fs::remove(data);
    fs::create_directory(data);
    two.expect_older("is not a regular file");
  }
  SUBCASE("a pipe in place of a file") {
    fs::remove(data);
    REQUIRE(::mkfifo(data.c_str(), 0600) == 0);
    two.expect_older("is not a regular file");
  }
}

TEST_CASE("a checkpoint with a damaged manifest or directory is skipped with a warning that states the reason") {
  TwoCheckpoints two;
  const fs::path newest = two.directory / "checkpoint-1";
  SUBCASE("a flipped bit in the manifest") {
    flip_bit(newest / "manifest.json", read_file(newest / "manifest.json").find("created"));
    two.expect_older("manifest.json' is damaged");
  }
  SUBCASE("a flipped bit in the manifest's own checksum") {
    flip_bit(newest / "manifest.json", read_file(newest / "manifest.json").size() - 6);
    two.expect_older("manifest.json' is damaged");
  }
  SUBCASE("a missing manifest") {
    fs::remove(newest / "manifest.json");
    two.expect_older("manifest.json': No such file");
  }
  SUBCASE("an empty manifest") {
    write_file(newest / "manifest.json", "");
    two.expect_older("manifest.json' is damaged");
  }
  SUBCASE("an intact checkpoint under another number") {
    fs::remove_all(newest);
    fs::copy(two.directory / "checkpoint-0", newest);
    two.expect_older("contains the manifest of checkpoint-0");
  }
  SUBCASE("an empty directory") {
    fs::remove_all(newest);
    fs::create_directory(newest);
    two.expect_older("manifest.json': No such file");
  }
  SUBCASE("a file in place of the directory") {
    fs::remove_all(newest);
    write_file(newest, "x");
    const Log log;
    CHECK(two.load() == 10);
    CHECK(log.has("checkpoint-1': Not a directory"));
  }
}

TEST_CASE("without an intact checkpoint, loading fails with the reasons and loads no state") {
  TwoCheckpoints two;
  flip_bit(two.directory / "checkpoint-1/model.safetensors", 200);
  fs::remove(two.directory / "checkpoint-0/manifest.json");
  // This state is intact in both checkpoints, but it must not be loaded, because neither checkpoint is intact.
  const std::string text = error_of([&] { ckpt::load_state(two.number); });
  CHECK(two.number.value == -1);
  CHECK(contains(text, "no intact checkpoint in '" + two.directory.path().string()));
  CHECK(contains(text, "checkpoint-1/model.safetensors' is damaged"));
  CHECK(contains(text, "checkpoint-0/manifest.json"));
  CHECK(contains(text, "move the checkpoint-* directories away"));
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("loading a checkpoint of a newer format fails instead of falling back to an older one") {
  TwoCheckpoints two;
  std::string cause = "up to 1: it was written by a newer adaptdl; upgrade";
  SUBCASE("with a valid checksum") {
    rewrite_manifest(two.directory / "checkpoint-1", [](json& manifest) { manifest["format"] = 2; });
  }
  SUBCASE("with an unknown layout and no checksum") {
    write_file(two.directory / "checkpoint-1/manifest.json", R"({"format": 2, "blobs": []})");
    cause = "its checksum does not match: it was written by a newer adaptdl, or is damaged; upgrade";
  }
  const std::string text = error_of([&] { ckpt::load_state(two.number); });
  CHECK(contains(text, "checkpoint-1/manifest.json' has format 2"));
  CHECK(contains(text, cause));
  CHECK_THROWS_AS(ckpt::newest_whole(two.directory.path()), ckpt::CheckpointError);
  CHECK(contains(ckpt::verify(two.directory / "checkpoint-1").at(0), "newer adaptdl"));
}

TEST_CASE("an older checkpoint of a newer format is ignored unless it is needed") {
  TwoCheckpoints two;
  rewrite_manifest(two.directory / "checkpoint-0", [](json& manifest) { manifest["format"] = 2; });
  CHECK(two.load() == 11);
}

TEST_CASE("an invalid manifest is rejected even if its checksum matches") {
  TwoCheckpoints two;
  const fs::path newest = two.directory / "checkpoint-1";
  const auto refused = [&](const std::string& reason, const std::function<void(json&)>& change) {
    CAPTURE(reason);
    const std::string before = read_file(newest / "manifest.json");
    rewrite_manifest(newest, change);
    two.expect_older(reason);
    write_file(newest / "manifest.json", before);
    ckpt::reset();
  };
  refused("unknown format", [](json& m) { m["format"] = 0; });
  refused("'format' is missing", [](json& m) { m.erase("format"); });
  refused("'format' is missing or has the wrong type", [](json& m) { m["format"] = "1"; });
  refused("'number'", [](json& m) { m["number"] = -1; });
  refused("'states'", [](json& m) { m["states"] = json::object(); });
  refused("'replicas' is out of range", [](json& m) { m["replicas"] = 0; });
  refused("'replicas' is out of range", [](json& m) { m["replicas"] = 1ULL << 40; });
  refused("'progress'", [](json& m) { m["progress"] = 3; });
  refused("duplicate state 'model'", [](json& m) {
    m["states"].push_back({{"name", "model"}, {"files", json::array()}});
  });
  refused("duplicate file 'model.safetensors'", [](json& m) {
    json& files = m["states"][0]["files"];
    files.push_back(files[0]);
  });
  refused("invalid file name '../../secret'", [](json& m) { m["states"][0]["files"][0]["name"] = "../../secret"; });
  refused("invalid file name 'number.json'", [](json& m) { m["states"][0]["files"][0]["name"] = "number.json"; });
  refused("invalid file name", [](json& m) { m["states"][0]["files"][0]["name"] = "model.rank-1.json"; });
  refused("invalid file name", [](json& m) { m["states"][0]["files"][0]["name"] = "model.rank01.json"; });
  refused("'size'", [](json& m) { m["states"][0]["files"][0]["size"] = -5; });
  refused("according to the manifest", [](json& m) { m["states"][0]["files"][0]["size"] = std::uint64_t(-1); });
  refused("the checksum of 'model.safetensors' is invalid",
          [](json& m) { m["states"][0]["files"][0]["checksum"] = "0"; });
  refused("the name of a state must not be empty", [](json& m) { m["states"][0]["name"] = ""; });
}

TEST_CASE("an invalid safetensors file is rejected even if its checksum matches") {
  TwoCheckpoints two;
  const auto refused = [&](const std::string& reason, const std::string& content) {
    CAPTURE(reason);
    replace_file(two.directory / "checkpoint-1", "model.safetensors", content);
    two.expect_older(reason);
    ckpt::reset();
  };
  const std::string four = "dtype\":\"U8\",\"shape\":[4],\"data_offsets\":";
  refused("too short", "abc");
  refused("invalid length", safetensors("{}").replace(0, 8, std::string(8, '\xff')));
  std::string long_header = safetensors("{}");
  long_header[3] = '\x7f';
  refused("invalid length", long_header);
  refused("not a JSON object", safetensors("[]"));
  refused("not a JSON object", safetensors(""));
  refused("is not valid JSON", safetensors("{\"a\""));
  refused("is nested more than", safetensors("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}"));
  refused("duplicate key 'a'", safetensors("{\"a\":{\"" + four + "[0,4]},\"a\":{\"" + four + "[0,4]}}", "data"));
  refused("overlaps", safetensors("{\"a\":{\"" + four + "[0,4]},\"b\":{\"" + four + "[2,6]}}", "data12"));
  refused("there is a gap", safetensors("{\"a\":{\"" + four + "[0,4]},\"b\":{\"" + four + "[5,9]}}", "data1data"));
  refused("the tensors end at", safetensors("{\"a\":{\"" + four + "[0,4]}}", "data1"));
  refused("the tensors end at", safetensors("{\"a\":{\"" + four + "[0,4]}}", "dat"));
  refused("do not match its shape", safetensors("{\"a\":{\"" + four + "[0,5]}}", "data1"));
  refused("do not match its shape", safetensors("{\"a\":{\"" + four + "[4,0]}}", "data"));
  refused("do not match its shape",
          safetensors("{\"a\":{\"" + four + "[18446744073709551612,18446744073709551615]}}", "data"));
  refused("wrong type", safetensors("{\"a\":{\"" + four + "[0,-4]}}", "data"));
  refused("wrong type", safetensors("{\"a\":{\"" + four + "[0,4.0]}}", "data"));
  refused("exactly the members", safetensors("{\"a\":{}}"));
  refused("too large", safetensors(R"({"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"));
  refused("too large", safetensors(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})"));
  refused("invalid size", safetensors(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})"));
  refused("invalid size", safetensors(R"({"a":{"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0]}})"));
  refused("unknown dtype", safetensors(R"({"a":{"dtype":"F8","shape":[0],"data_offsets":[0,0]}})"));
}

TEST_CASE("a safetensors file written by another tool, with metadata and padding, can be loaded") {
  TwoCheckpoints two;
  replace_file(two.directory / "checkpoint-1", "model.safetensors",
               safetensors(R"({"__metadata__":{"format":"pt"},"b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]},)"
                           R"("a":{"dtype":"I16","shape":[],"data_offsets":[0,2]}}   )",
                           "data"));
  REQUIRE(ckpt::load_state(two.model, true));
  CHECK(two.model.tensors["a"].data == "da");
  CHECK(two.model.tensors["b"].data == "ta");
  CHECK(two.model.tensors.size() == 2);
}

TEST_CASE("excessively nested JSON is rejected without recursion") {
  TwoCheckpoints two;
  replace_file(two.directory / "checkpoint-1", "number.json", "{\"value\":" + std::string(1000000, '[') + "}");
  two.expect_older("number.json' is nested more than");
}

TEST_CASE("loading a file that changed after its verification fails") {
  TwoCheckpoints two;
  REQUIRE(ckpt::load_state(two.number, true));
  flip_bit(two.directory / "checkpoint-1/model.safetensors", 500);
  CHECK_GOLDEN(error_of([&] { ckpt::load_state(two.model); }));
}

}  // namespace checkpoint_damage_test
