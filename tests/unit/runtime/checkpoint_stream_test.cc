// Tests the transfer of states to another process: the receiver gets what was sent, or nothing.
#include "checkpoint/stream.h"

#include "adaptdl/error.h"
#include "checkpoint_support.h"
#include "error_of.h"
#include "golden.h"

namespace checkpoint_stream_test {

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

// Returns the receiving end of a connection that delivers the bytes and is then lost.
std::shared_ptr<ckpt::StateStream> receiver(const std::string& bytes) {
  return std::make_shared<ckpt::StateStream>([bytes, at = std::size_t{0}](std::span<std::byte> out) mutable {
    if (out.size() > bytes.size() - at) throw adaptdl::Error("the connection is lost");
    std::memcpy(out.data(), bytes.data() + at, out.size());
    at += out.size();
  });
}

ckpt::Snapshot received(const std::string& bytes) { return ckpt::read_states(receiver(bytes)); }

std::string tensor_of(const ckpt::Reader& reader, const std::string& name) {
  std::string data(reader.find(name)->bytes(), '\0');
  reader.tensor(name, std::as_writable_bytes(std::span(data)));
  return data;
}

// Returns bytes that differ from those a short distance away, so that shifted data is detected.
std::string noise(std::size_t size) {
  std::string data(size, '\0');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761u >> 13);
  return data;
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

TEST_CASE("received states equal the sent ones, including empty tensors and null") {
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

TEST_CASE("only the requested states are sent") {
  const Sender sender;
  const std::set<std::string> names = {"other"};
  ckpt::Snapshot snapshot = received(sent(&names));
  CHECK_FALSE(snapshot.reader("model"));
  CHECK(snapshot.reader("other"));
}

TEST_CASE("large tensors arrive complete in any read order, even if everything is fetched first" *
          doctest::test_suite("slow")) {
  Sender sender;
  const std::string first = noise(std::size_t{9} << 20), second = noise((std::size_t{5} << 20) + 13);
  sender.model.tensors = {{"first", {"U8", {static_cast<std::int64_t>(first.size())}, first}},
                          {"second", {"U8", {static_cast<std::int64_t>(second.size())}, second}}};
  for (const bool fetched : {false, true}) {
    for (const bool backwards : {false, true}) {
      const auto stream = receiver(sent());
      ckpt::Snapshot snapshot = ckpt::read_states(stream);
      if (fetched) stream->fetch();
      if (!backwards) CHECK(snapshot.reader("other")->json("x").is_null());
      const auto model = snapshot.reader("model");
      if (backwards) CHECK((tensor_of(*model, "second") == second));
      CHECK((tensor_of(*model, "first") == first));
      if (!backwards) CHECK((tensor_of(*model, "second") == second));
      if (backwards) CHECK(snapshot.reader("other")->json("x").is_null());
    }
  }
}

TEST_CASE("reading a tensor a second time fails") {
  const Sender sender;
  ckpt::Snapshot snapshot = received(sent());
  const auto reader = snapshot.reader("model");
  CHECK(tensor_of(*reader, "weight") == sender.model.tensors.at("weight").data);
  CHECK_GOLDEN(::testing::error_of<std::exception>([&] { tensor_of(*reader, "weight"); }));
}

TEST_CASE("fetch() receives all data before any of it is read") {
  const Sender sender;
  const std::string bytes = sent();
  std::size_t taken = 0;
  const auto stream = std::make_shared<ckpt::StateStream>([&](std::span<std::byte> out) {
    REQUIRE(out.size() <= bytes.size() - taken);
    std::memcpy(out.data(), bytes.data() + taken, out.size());
    taken += out.size();
  });
  ckpt::Snapshot snapshot = ckpt::read_states(stream);
  CHECK(taken < bytes.size());
  stream->fetch();
  CHECK(taken == bytes.size());
  CHECK(tensor_of(*snapshot.reader("model"), "weight") == sender.model.tensors.at("weight").data);
}

TEST_CASE("reading a stream truncated at any byte fails") {
  const Sender sender;
  const std::string whole = sent();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto read_all = [&] {
      ckpt::Snapshot snapshot = received(whole.substr(0, size));
      for (const auto& state : snapshot.manifest().states) {
        const auto reader = snapshot.reader(state.name);
        for (const auto& tensor : reader->tensors()) (void)tensor_of(*reader, tensor.name);
      }
    };
    CHECK_THROWS_WITH(read_all(), "the connection is lost");
    const auto fetch = [&] {
      const auto stream = receiver(whole.substr(0, size));
      (void)ckpt::read_states(stream);
      stream->fetch();
    };
    CHECK_THROWS_WITH(fetch(), "the connection is lost");
  }
}

TEST_CASE("a corrupted stream is either parsed or fails with a one-line error") {
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
  CHECK_GOLDEN(::testing::error_of<std::exception>([&] { received(std::string(16, '\xff')); }));
}

}  // namespace checkpoint_stream_test
