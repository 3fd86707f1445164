// States on their way to another process: what arrives is what was sent, or nothing.
#include "checkpoint/stream.h"

#include "adaptdl/error.h"
#include "checkpoint_support.h"

using namespace checkpoint_test;

namespace {

struct Collected : ckpt::Sink {
  using Sink::write;
  void write(std::span<const std::byte> data) override {
    text.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  std::string text;
};

std::string sent(const std::set<std::string>* names = nullptr) {
  Collected sink;
  ckpt::write_states(sink, 3, names);
  return sink.text;
}

// What a receiver makes of the bytes, at whose end the connection is lost.
ckpt::Snapshot received(const std::string& bytes) {
  std::size_t at = 0;
  return ckpt::read_states([&](std::span<std::byte> out) {
    if (out.size() > bytes.size() - at) throw adaptdl::Error("the connection is lost");
    std::memcpy(out.data(), bytes.data() + at, out.size());
    at += out.size();
  });
}

struct Sender {
  Sender() {
    model.values = {{"epoch", 7}, {"rates", {0.1, 0.01}}};
    model.tensors = {{"weight", {"F32", {2, 3}, "abcdefghijklmnopqrstuvwx"}}, {"none", {"U8", {0}, ""}}};
    other.values = {{"x", nullptr}};
  }
  const Directory directory;
  MapState model{"model"}, other{"other"};
};

}  // namespace

TEST_CASE("states arrive as they were sent, also empty tensors and null") {
  const Sender sender;
  ckpt::Snapshot snapshot = received(sent());
  CHECK(snapshot.manifest().replicas == 3);
  const auto reader = snapshot.reader("model");
  REQUIRE(reader);
  CHECK(reader->json("epoch") == 7);
  CHECK(reader->json("rates") == json{0.1, 0.01});
  std::string weight(24, '\0');
  reader->tensor("weight", std::as_writable_bytes(std::span(weight)));
  CHECK(weight == sender.model.tensors.at("weight").data);
  reader->tensor("none", std::span<std::byte>());
  REQUIRE(snapshot.reader("other"));
  CHECK(snapshot.reader("other")->json("x").is_null());
}

TEST_CASE("only the states that were asked for are sent") {
  const Sender sender;
  const std::set<std::string> names = {"other"};
  ckpt::Snapshot snapshot = received(sent(&names));
  CHECK_FALSE(snapshot.reader("model"));
  CHECK(snapshot.reader("other"));
}

TEST_CASE("a tensor of many chunks arrives whole") {
  Sender sender;
  std::string& data = sender.model.tensors.at("weight").data;
  data.assign(std::size_t{9} << 20, 'x');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761u >> 13);
  sender.model.tensors.at("weight") = {"U8", {static_cast<std::int64_t>(data.size())}, data};
  ckpt::Snapshot snapshot = received(sent());
  std::string weight(data.size(), '\0');
  snapshot.reader("model")->tensor("weight", std::as_writable_bytes(std::span(weight)));
  CHECK((weight == sender.model.tensors.at("weight").data));
}

TEST_CASE("a stream that ends early, wherever, gives an error and no states") {
  const Sender sender;
  const std::string whole = sent();
  for (std::size_t size = 0; size < whole.size(); ++size)
    CHECK_THROWS_AS(received(whole.substr(0, size)), adaptdl::Error);
}

TEST_CASE("bytes that are no states give an error, or states, but never anything else") {
  const Sender sender;
  const std::string whole = sent();
  std::size_t refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string wrong = whole;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x55);
    try {
      ckpt::Snapshot snapshot = received(wrong);
      if (const auto reader = snapshot.reader("other")) (void)reader->json("x");
    } catch (const adaptdl::Error& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
      ++refused;
    }
  }
  CHECK(refused > whole.size() / 4);
  CHECK_THROWS_WITH(received(std::string(16, '\xff')), "what a member sent are no states");
}
