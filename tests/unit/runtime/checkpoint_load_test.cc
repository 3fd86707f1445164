// Tests which checkpoint is loaded, and how damage is handled.
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "adaptdl/checkpoint.h"
#include "checkpoint_support.h"

namespace checkpoint_load_test {

using namespace checkpoint_test;

namespace {

// A directory with two checkpoints: checkpoint-0 contains the number 10 and a tensor filled with 'a', and checkpoint-1
// the number 11 and a tensor filled with 'b'.
struct TwoCheckpoints {
  TwoCheckpoints() {
    for (int i = 0; i < 2; ++i) {
      number.value = 10 + i;
      model.tensors["weight"] = {"U8", {1000}, std::string(1000, static_cast<char>('a' + i))};
      REQUIRE(ckpt::save_all_states());
    }
    number.value = -1;
    model.tensors.clear();
    ckpt::reset();
  }
  // Loads both states, which must come from the same checkpoint, and returns the number, 10 or 11.
  int load() {
    REQUIRE(ckpt::load_state(number, true));
    REQUIRE(ckpt::load_state(model, true));
    CHECK(model.tensors["weight"].data == std::string(1000, static_cast<char>('a' + number.value - 10)));
    return number.value;
  }
  // Checks that the older checkpoint is used after the newest was damaged, and that the log contains `reason`.
  void expect_older(const std::string& reason) {
    const Log log;
    CHECK(load() == 10);
    CHECK(ckpt::loaded_number() == 0);
    CHECK_MESSAGE(log.has(reason), log.text());
    CHECK(log.has("warning"));
    CHECK(log.has("checkpoint-0 instead"));
    CHECK_FALSE(ckpt::verify(directory / "checkpoint-1").empty());
  }

  Directory directory;
  Number number{"number"};
  MapState model{"model"};
};

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

TEST_CASE("without a checkpoint, training starts from scratch, which is logged once") {
  const Directory directory;
  Number a("a", 1), b("b", 2);
  for (const fs::path& path : {directory.path(), directory / "missing"}) {
    ::setenv("ADAPTDL_CHECKPOINT_PATH", path.c_str(), 1);
    ckpt::reset();
    const Log log;
    CHECK_FALSE(ckpt::load_state(a, true));
    CHECK_FALSE(ckpt::load_state(b));
    CHECK_FALSE(ckpt::loaded_number());
    CHECK(log.count("no checkpoint in " + path.string() + ": starting from the beginning") == 1);
  }
}

TEST_CASE("the newest checkpoint is loaded for all states until reset") {
  TwoCheckpoints two;
  CHECK(two.load() == 11);
  CHECK(ckpt::loaded_number() == 1);
  two.number.value = 12;
  REQUIRE(ckpt::save_all_states());
  CHECK(two.load() == 11);
  ckpt::reset();
  CHECK(ckpt::loaded_number() == 2);
}

TEST_CASE("a damaged checkpoint is skipped with a warning that states the reason") {
  TwoCheckpoints two;
  const fs::path newest = two.directory / "checkpoint-1";
  const std::string data = (newest / "model.safetensors").string();
  SUBCASE("a flipped bit in tensor data") {
    flip_bit(data, read_file(data).size() - 1);
    two.expect_older(data + " is damaged: its checksum does not match");
  }
  SUBCASE("a flipped bit in a JSON file") {
    flip_bit(newest / "number.json", 3);
    two.expect_older("number.json is damaged");
  }
  SUBCASE("a flipped bit in the manifest") {
    flip_bit(newest / "manifest.json", read_file(newest / "manifest.json").find("created"));
    two.expect_older("manifest.json is damaged");
  }
  SUBCASE("a flipped bit in the manifest's own checksum") {
    flip_bit(newest / "manifest.json", read_file(newest / "manifest.json").size() - 6);
    two.expect_older("manifest.json is damaged");
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
    two.expect_older("cannot open " + data + ": No such file");
  }
  SUBCASE("a missing manifest") {
    fs::remove(newest / "manifest.json");
    two.expect_older("manifest.json: No such file");
  }
  SUBCASE("an empty manifest") {
    write_file(newest / "manifest.json", "");
    two.expect_older("manifest.json is damaged");
  }
  SUBCASE("a file from another checkpoint") {
    fs::remove(data);
    fs::copy_file(two.directory / "checkpoint-0/model.safetensors", data);
    two.expect_older("its checksum does not match");
  }
  SUBCASE("an intact checkpoint under another number") {
    fs::remove_all(newest);
    fs::copy(two.directory / "checkpoint-0", newest);
    two.expect_older("contains the manifest of checkpoint-0");
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
  SUBCASE("an empty directory") {
    fs::remove_all(newest);
    fs::create_directory(newest);
    two.expect_older("manifest.json: No such file");
  }
  SUBCASE("a file in place of the directory") {
    fs::remove_all(newest);
    write_file(newest, "x");
    const Log log;
    CHECK(two.load() == 10);
    CHECK(log.has("checkpoint-1: Not a directory"));
  }
}

TEST_CASE("without an intact checkpoint, loading fails with the reasons and loads no state") {
  TwoCheckpoints two;
  flip_bit(two.directory / "checkpoint-1/model.safetensors", 200);
  fs::remove(two.directory / "checkpoint-0/manifest.json");
  // This state is intact in both checkpoints, but it must not be loaded, because neither checkpoint is intact.
  const std::string text = error_of([&] { ckpt::load_state(two.number); });
  CHECK(two.number.value == -1);
  CHECK(contains(text, "no intact checkpoint in " + two.directory.path().string()));
  CHECK(contains(text, "checkpoint-1/model.safetensors is damaged"));
  CHECK(contains(text, "checkpoint-0/manifest.json"));
  CHECK(contains(text, "move the checkpoint-* directories away"));
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("loading a checkpoint of a newer format fails instead of falling back to an older one") {
  TwoCheckpoints two;
  SUBCASE("with a valid checksum") {
    rewrite_manifest(two.directory / "checkpoint-1", [](json& manifest) { manifest["format"] = 2; });
  }
  SUBCASE("with an unknown layout and no checksum") {
    write_file(two.directory / "checkpoint-1/manifest.json", R"({"format": 2, "blobs": []})");
  }
  const std::string text = error_of([&] { ckpt::load_state(two.number); });
  CHECK(contains(text, "checkpoint-1/manifest.json has format 2"));
  CHECK(contains(text, "written by a newer adaptdl; upgrade"));
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
  refused("the checksum of model.safetensors is invalid",
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
  two.expect_older("number.json is nested more than");
}

TEST_CASE("checkpoint directories without a valid number are ignored with a warning, other entries silently") {
  TwoCheckpoints two;
  for (const char* name : {"checkpoint-abc", "checkpoint-00x", "checkpoint-", "checkpoint-01", "checkpoint--1",
                           "checkpoint-9999999999999999999", "lost+found", "checkpoints", ".saving-9-1-x"})
    fs::create_directory(two.directory / name);
  const Log log;
  CHECK(two.load() == 11);
  CHECK(log.count("ignoring ") == 6);
  CHECK(log.has("checkpoint-00x: 'checkpoint-' is not followed by a number"));
  CHECK(ckpt::list(two.directory.path()).size() == 2);
}

TEST_CASE("a new checkpoint is numbered after the highest existing one, even if that is damaged") {
  TwoCheckpoints two;
  fs::create_directory(two.directory / "checkpoint-41");
  const auto path = ckpt::save_all_states();
  REQUIRE(path);
  CHECK(path->filename() == "checkpoint-42");
}

TEST_CASE("loading a required state that is missing fails and lists the available states") {
  TwoCheckpoints two;
  Number other("other");
  CHECK_FALSE(ckpt::load_state(other));
  const std::string text = error_of([&] { ckpt::load_state(other, true); });
  CHECK(contains(text, "checkpoint-1 has no state 'other'; it has: 'model', 'number'"));
}

TEST_CASE("the first save after a load warns once about each state that was not loaded") {
  const Directory directory;
  {
    const Number kept("kept"), gone("gone"), idle("idle");
    REQUIRE(ckpt::save_all_states());
  }
  ckpt::reset();
  Number kept("kept"), idle("idle");
  REQUIRE(ckpt::load_state(kept));
  const Log log;
  REQUIRE(ckpt::save_all_states());
  REQUIRE(ckpt::save_all_states());
  CHECK(log.count("was not loaded by this program") == 2);
  CHECK(log.count("state 'gone' of checkpoint-0 was not loaded by this program and is not in the new checkpoint") == 1);
  CHECK(log.count("state 'idle' of checkpoint-0 was not loaded by this program and starts from its initial values in "
                  "the new checkpoint") == 1);
}

TEST_CASE("a state created later is loaded from the chosen checkpoint, even if that has since been deleted") {
  TwoCheckpoints two;
  REQUIRE(ckpt::load_state(two.number, true));
  for (int i = 0; i < 4; ++i) REQUIRE(ckpt::save_all_states());
  CHECK_FALSE(fs::exists(two.directory / "checkpoint-1"));
  REQUIRE(ckpt::load_state(two.model, true));
  CHECK(two.model.tensors["weight"].data == std::string(1000, 'b'));
}

TEST_CASE("loading a file that changed after its verification fails") {
  TwoCheckpoints two;
  REQUIRE(ckpt::load_state(two.number, true));
  flip_bit(two.directory / "checkpoint-1/model.safetensors", 500);
  CHECK(contains(error_of([&] { ckpt::load_state(two.model); }), "was changed while it was being loaded"));
}

TEST_CASE("loading while another process saves and prunes always finds an intact checkpoint") {
  TwoCheckpoints two;
  const pid_t saver = start_child([&] {
    ::setenv("ADAPTDL_CHECKPOINT_KEEP", "1", 1);
    for (int i = 2; i < 150; ++i) {
      two.number.value = 10 + i;
      two.model.tensors["weight"] = {"U8", {1000}, std::string(1000, static_cast<char>('a' + i))};
      if (!ckpt::save_all_states()) return 1;
    }
    return 0;
  });
  const Log log;
  int last = 0;
  while (last < 150 + 9) {
    ckpt::reset();
    const int number = two.load();
    CHECK(number >= last);
    last = number;
  }
  CHECK(wait_for(saver) == 0);
  CHECK_FALSE(log.has("warning"));
}

TEST_CASE("loading fails if file descriptors run out, instead of falling back to an older checkpoint") {
  TwoCheckpoints two;
  const int status = run_child([&] {
    rlimit limit{};
    const int free = ::dup(0);
    limit.rlim_cur = static_cast<rlim_t>(free) + 2;
    limit.rlim_max = limit.rlim_cur;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    ::close(free);
    try {
      ckpt::load_state(two.model);
    } catch (const ckpt::CheckpointError& error) {
      return contains(error.what(), "Too many open files") && !contains(error.what(), "no intact checkpoint") ? 0 : 1;
    }
    return 2;
  });
  CHECK(status == 0);
}

TEST_CASE("loading fails if the checkpoint path is not a directory or not readable") {
  const Directory directory;
  Number state("a");
  write_file(directory.root() / "file", "x");
  ::setenv("ADAPTDL_CHECKPOINT_PATH", (directory.root() / "file").c_str(), 1);
  ckpt::reset();
  CHECK(contains(error_of([&] { ckpt::load_state(state); }), "Not a directory"));
  if (::geteuid() != 0) {
    MESSAGE("skipped in part: only root can become a user without permissions");
    return;
  }
  fs::permissions(directory.path(), fs::perms::none);
  fs::permissions(directory.root(), fs::perms::all);
  const int status = run_child([&] {
    if (::setresuid(65534, 65534, 65534) != 0) return 3;
    ::setenv("ADAPTDL_CHECKPOINT_PATH", directory.path().c_str(), 1);
    try {
      ckpt::load_state(state);
    } catch (const ckpt::CheckpointError& error) {
      return contains(error.what(), "Permission denied") ? 0 : 1;
    }
    return 2;
  });
  CHECK(status == 0);
}

}  // namespace checkpoint_load_test
