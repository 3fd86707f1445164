// Saves checkpoints of known content: COUNT of them (default: 1) in ADAPTDL_CHECKPOINT_PATH, each with the states
// "model" (tensors and JSON), "optimizer" (a tensor) and "generator" (a part for each rank).
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"

namespace {

using namespace adaptdl::checkpoint;

template <typename T>
void write(Writer& writer, const std::string& name, const char* dtype, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
  writer.tensor({name, dtype, std::move(shape)}, [values](std::size_t offset, std::span<std::byte> out) {
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(values.data()) + offset, out.size());
  });
}

struct Model : State {
  Model() : State("model") {}
  void save(Writer& writer) const override {
    write<std::uint8_t>(writer, "flags", "BOOL", {3}, {1, 0, 1});
    write<double>(writer, "layers.0.weight", "F64", {2, 3}, {0.5, 1.5, 2.5, 3.5, 4.5, static_cast<double>(step)});
    write<std::int64_t>(writer, "steps", "I64", {}, {step});
    write<float>(writer, "nothing", "F32", {0, 4}, {});
    writer.json("settings", {{"lr", 0.1}, {"names", {"a", "b"}}});
  }
  void load(const Reader&) override {}
  nlohmann::json progress() const override { return {{"epoch", step}, {"loss", 0.125}}; }
  int step = 0;
};

struct Optimizer : State {
  Optimizer() : State("optimizer") {}
  void save(Writer& writer) const override { write<std::int16_t>(writer, "momentum", "I16", {2}, {-1, 7}); }
  void load(const Reader&) override {}
};

struct Generator : State {
  Generator() : State("generator") {}
  void save(Writer&) const override {}
  void load(const Reader&) override {}
  bool has_parts() const override { return true; }
  void save_part(Writer& writer) const override { writer.bytes("state", std::vector<std::byte>(16, std::byte{9})); }
};

}  // namespace

int main(int argc, char** argv) {
  try {
    Model model;
    const Optimizer optimizer;
    const Generator generator;
    for (model.step = 0; model.step < (argc > 1 ? std::atoi(argv[1]) : 1); ++model.step) save_all_states();
    return 0;
  } catch (const adaptdl::Error& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
