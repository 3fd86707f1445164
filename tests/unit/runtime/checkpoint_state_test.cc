// Tests the registry of states, and that what they save is loaded unchanged.
#include <algorithm>
#include <cmath>
#include <limits>

#include "adaptdl/error.h"
#include "checkpoint_support.h"
#include "golden.h"

namespace checkpoint_state_test {

using namespace checkpoint_test;

namespace {

void save_and_load(MapState& state) {
  REQUIRE(ckpt::save_all_states());
  ckpt::reset();
  REQUIRE(ckpt::load_state(state, true));
}

// Saves a state whose data is written by `write`. The save must fail; returns the reason.
std::string refusal(const std::function<void(ckpt::Writer&)>& write) {
  struct Writing : ckpt::State {
    explicit Writing(std::function<void(ckpt::Writer&)> w) : State("writing"), write(std::move(w)) {}
    void save(ckpt::Writer& writer) const override { write(writer); }
    void load(const ckpt::Reader&) override {}
    std::function<void(ckpt::Writer&)> write;
  };
  const Directory directory;
  const Writing state(write);
  const std::string text = error_of([] { ckpt::save_all_states(); });
  CHECK(directory.names().empty());
  CHECK(contains(text, "state 'writing'"));
  return text;
}

}  // namespace

TEST_CASE("a duplicate state name is rejected until the first state is destroyed") {
  {
    const Number first("a");
    CHECK(contains(error_of<adaptdl::UsageError>([] { Number second("a"); }), "'a'"));
    const Number other("b");
  }
  const Number again("a");
}

TEST_CASE("a state name must be valid UTF-8 of 1 to 100 bytes") {
  CHECK_THROWS_AS(Number(""), adaptdl::UsageError);
  CHECK_THROWS_AS(Number(std::string(101, 'x')), adaptdl::UsageError);
  CHECK_THROWS_AS(Number("\xff\xfe"), adaptdl::UsageError);
  CHECK_NOTHROW(Number(std::string(100, 'x')));
}

TEST_CASE("every valid state name maps to its own files") {
  const Directory directory;
  std::vector<std::string> names{
      "manifest", "a", "A", "a.rank0", "a/b",  "../up",          ".hidden",
      "%2E",      ".", " ", "a.json",  "模型", "tab\tnewline\n", std::string("nul\0byte", 8)};
  std::string wide;  // 99 bytes, each of which takes three in a file name
  for (int i = 0; i < 33; ++i) wide += "型";
  names.push_back(wide);
  names.push_back(wide.substr(0, 96) + "模");
  std::vector<std::unique_ptr<Number>> states;
  for (const std::string& name : names)
    states.push_back(std::make_unique<Number>(name, static_cast<int>(states.size())));
  REQUIRE(ckpt::save_all_states());
  for (auto& state : states) state->value = -1;
  ckpt::reset();
  for (std::size_t i = 0; i < states.size(); ++i) {
    CAPTURE(names[i]);
    REQUIRE(ckpt::load_state(*states[i], true));
    CHECK(states[i]->value == static_cast<int>(i));
  }
  CHECK(ckpt::verify(directory / "checkpoint-0").empty());
}

TEST_CASE("tensors of every dtype, including scalars and empty tensors, round-trip bit for bit") {
  const Directory directory;
  MapState state("model");
  const std::map<std::string, std::size_t> sizes{{"BOOL", 1}, {"U8", 1},   {"I8", 1},  {"I16", 2}, {"U16", 2},
                                                 {"F16", 2},  {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},
                                                 {"F64", 8},  {"I64", 8},  {"U64", 8}};
  int seed = 0;
  const auto data = [&seed](std::size_t size) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(++seed * 37 % 251);
    return text;
  };
  for (const auto& [dtype, size] : sizes) {
    state.tensors["scalar/" + dtype] = {dtype, {}, data(size)};
    state.tensors["matrix/" + dtype] = {dtype, {3, 5}, data(15 * size)};
    state.tensors["empty/" + dtype] = {dtype, {2, 0, 7}, ""};
  }
  const auto saved = state.tensors;
  save_and_load(state);
  CHECK(state.tensors == saved);
  CHECK(state.replicas == 1);
}

TEST_CASE("multi-chunk tensors round-trip from memory, from a function and to a sink" * doctest::test_suite("slow")) {
  struct Streamed : ckpt::State {
    Streamed() : State("streamed") {}
    static char at(std::size_t i) { return static_cast<char>(i * 2654435761U >> 13); }
    void save(ckpt::Writer& writer) const override {
      writer.tensor({"function", "U8", {static_cast<std::int64_t>(size)}},
                    [](std::size_t offset, std::span<std::byte> out) {
                      for (std::byte& byte : out) byte = static_cast<std::byte>(at(offset++));
                    });
      writer.bytes("memory", bytes_of(memory));
      writer.bytes("kept", std::vector<std::byte>(3, std::byte{7}));
    }
    void load(const ckpt::Reader& reader) override {
      std::size_t expected = 0;
      reader.tensor("function", [&](std::size_t offset, std::span<const std::byte> chunk) {
        in_order = in_order && offset == expected;
        expected += chunk.size();
        for (const std::byte byte : chunk) equal = equal && byte == static_cast<std::byte>(at(offset++));
      });
      complete = expected == size;
      const auto loaded = reader.bytes("memory");
      equal = equal && std::ranges::equal(loaded, bytes_of(memory));
      kept = reader.bytes("kept");
    }
    const std::size_t size = (std::size_t{20} << 20) + 12345;
    std::string memory = std::string((std::size_t{17} << 20) + 1, 'm');
    std::vector<std::byte> kept;
    bool in_order = true, equal = true, complete = false;
  };
  const Directory directory;
  Streamed state;
  REQUIRE(ckpt::save_all_states());
  REQUIRE(ckpt::load_state(state, true));
  CHECK(state.in_order);
  CHECK(state.equal);
  CHECK(state.complete);
  CHECK(state.kept == std::vector<std::byte>(3, std::byte{7}));
}

TEST_CASE("JSON values round-trip exactly, including numbers of all kinds") {
  const Directory directory;
  MapState state("values");
  const double tricky[] = {0.1, -0.0, 1.0, 5e-324, 1.7976931348623157e308, 1.0 / 3};
  state.values = {
      {"integers", {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::uint64_t>::max(), 0, -1}},
      {"floats", tricky},
      {"text", "line\nbreak \" and 型"},
      {"null", nullptr},
      {"nested", {{"a", {1, 2, {{"b", true}}}}, {"", json::object()}}},
      {"empty", json::array()}};
  for (const auto& [name, value] : state.values) state.names.push_back(name);
  const auto saved = state.values;
  save_and_load(state);
  CHECK(state.values == saved);
  CHECK(state.values["floats"][2].is_number_float());
  CHECK(std::signbit(state.values["floats"][1].get<double>()));
}

TEST_CASE("NaN and infinities in JSON values round-trip") {
  const Directory directory;
  MapState state("values");
  const double infinity = std::numeric_limits<double>::infinity();
  state.values["x"] = {{"list", {std::nan(""), infinity, -infinity, 1.5}}};
  state.names = {"x"};
  save_and_load(state);
  const json list = state.values["x"]["list"];
  CHECK(std::isnan(list[0].get<double>()));
  CHECK(list[1] == infinity);
  CHECK(list[2] == -infinity);
  CHECK(list[3] == 1.5);
}

TEST_CASE("a state without data can be saved and loaded") {
  struct Nothing : ckpt::State {
    Nothing() : State("nothing") {}
    void save(ckpt::Writer&) const override {}
    void load(const ckpt::Reader& reader) override { loaded = reader.tensors().empty() && !reader.has_json("x"); }
    bool loaded = false;
  };
  const Directory directory;
  Nothing state;
  REQUIRE(ckpt::save_all_states());
  CHECK(ckpt::load_state(state, true));
  CHECK(state.loaded);
}

TEST_CASE("values that cannot be restored exactly are rejected on save, and no files are left behind") {
  const std::string two = "ab";
  CHECK_GOLDEN(refusal([](ckpt::Writer& w) { w.json("x", 1), w.json("x", 2); }));
  CHECK_GOLDEN(refusal([&](ckpt::Writer& w) { w.bytes("x", bytes_of(two)), w.bytes("x", bytes_of(two)); }));
  CHECK_GOLDEN(refusal([](ckpt::Writer& w) { w.json("", 1); }));
  CHECK_GOLDEN(refusal([&](ckpt::Writer& w) { w.bytes("", bytes_of(two)); }));
  CHECK(contains(refusal([&](ckpt::Writer& w) { w.bytes("__metadata__", bytes_of(two)); }), "__metadata__"));
  CHECK_GOLDEN(refusal([](ckpt::Writer& w) { w.json("x", "\xff"); }));
  CHECK(contains(refusal([](ckpt::Writer& w) { w.json("x", json::binary({1, 2})); }), "binary"));
  CHECK(contains(refusal([](ckpt::Writer& w) { w.json("x", {{"$float", 1}}); }), "reserved"));
  CHECK_GOLDEN(refusal([&](ckpt::Writer& w) { w.tensor({"x", "F33", {1}}, bytes_of(two)); }));
  CHECK(contains(refusal([&](ckpt::Writer& w) { w.tensor({"x", "F32", {1}}, bytes_of(two)); }), "2 bytes"));
  CHECK(contains(refusal([&](ckpt::Writer& w) { w.tensor({"x", "U8", {-2}}, bytes_of(two)); }), "negative"));
  CHECK(contains(refusal([&](ckpt::Writer& w) {
                   w.tensor({"x", "U8", {1LL << 40, 1LL << 40}}, bytes_of(two));
                 }),
                 "too large"));
  json deep;
  for (int i = 0; i < 300; ++i) deep = json::array({deep});
  CHECK_GOLDEN(refusal([&](ckpt::Writer& w) { w.json("x", deep); }));
}

TEST_CASE("a load error names the state, the checkpoint and the reason") {
  struct Asking : ckpt::State {
    Asking() : State("asking") {}
    void save(ckpt::Writer& writer) const override { writer.bytes("four", std::vector<std::byte>(4)); }
    void load(const ckpt::Reader& reader) override { ask(reader); }
    std::function<void(const ckpt::Reader&)> ask;
  };
  const Directory directory;
  Asking state;
  REQUIRE(ckpt::save_all_states());
  const auto answer = [&](const std::function<void(const ckpt::Reader&)>& ask) {
    state.ask = ask;
    const std::string text = error_of([&] { ckpt::load_state(state); });
    CHECK(contains(text, "state 'asking' in '" + (directory / "checkpoint-0").string() + "'"));
    return text;
  };
  CHECK_GOLDEN(answer([](const ckpt::Reader& r) { (void)r.json("x"); }));
  CHECK_GOLDEN(answer([](const ckpt::Reader& r) { (void)r.bytes("x"); }));
  std::vector<std::byte> five(5);
  CHECK_GOLDEN(answer([&](const ckpt::Reader& r) { r.tensor("four", std::span(five)); }));
  CHECK_GOLDEN(answer([](const ckpt::Reader&) { throw std::runtime_error("wrong shape"); }));
}

TEST_CASE("without a checkpoint path nothing is saved or loaded") {
  ::unsetenv("ADAPTDL_CHECKPOINT_PATH");
  ckpt::reset();
  Number state("a", 1);
  CHECK_FALSE(ckpt::save_all_states());
  CHECK_FALSE(ckpt::load_state(state, true));
  CHECK_FALSE(ckpt::loaded_number());
}

TEST_CASE("the manifest merges the progress of all states, and invalid progress does not fail a save") {
  struct Progressing : Number {
    Progressing(const std::string& name, json p) : Number(name), reported(std::move(p)) {}
    json progress() const override { return reported; }
    json reported;
  };
  const Directory directory;
  const Progressing a("a", {{"epoch", 3}}), b("b", {{"loss", std::nan("")}, {"note", "\xff"}});
  const auto path = ckpt::save_all_states();
  REQUIRE(path);
  const auto entries = ckpt::list(directory.path());
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].manifest->progress["epoch"] == 3);
  CHECK(entries[0].manifest->progress["loss"].is_null());
}

TEST_CASE("save_state writes one state to the given directory") {
  const Directory directory;
  MapState state("model");
  state.values["x"] = 1;
  state.tensors["weight"] = {"F32", {2}, std::string(8, 'w')};
  const auto paths = ckpt::save_state(state, directory / "export");
  REQUIRE(paths.size() == 2);
  CHECK(json::parse(read_file(directory / "export/model.json")) == json{{"x", 1}});
  CHECK(read_file(directory / "export/model.safetensors").ends_with(std::string(8, 'w')));
  CHECK(ckpt::save_state(state, directory / "export").size() == 2);  // replaces the first files
}

}  // namespace checkpoint_state_test
