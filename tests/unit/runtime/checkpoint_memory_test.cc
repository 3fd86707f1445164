// Tests that tensors are streamed: saving and loading need memory for only a few chunks, however large a tensor is.
#include "checkpoint_support.h"
#include "sanitizer.h"

namespace checkpoint_memory_test {

using namespace checkpoint_test;

namespace {

constexpr std::size_t kTensor = std::size_t{256} << 20;
constexpr long kAllowed = 64L << 10;  // KiB

// Returns the value of a line of /proc/self/status, in KiB.
long status_kib(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::stol(line.substr(key.size() + 1));
  return -1;
}

// Returns by how many KiB `call` raises the peak resident memory.
long peak_of(const std::function<void()>& call) {
  std::ofstream("/proc/self/clear_refs") << "5";
  const long before = status_kib("VmRSS");
  call();
  return status_kib("VmHWM") - before;
}

struct Large : ckpt::State {
  Large() : State("large") {}
  void save(ckpt::Writer& writer) const override {
    if (!memory.empty())
      writer.bytes("tensor", memory);
    else
      writer.tensor({"tensor", "U8", {kTensor}},
                    [](std::size_t, std::span<std::byte> out) { std::memset(out.data(), 7, out.size()); });
  }
  void load(const ckpt::Reader& reader) override {
    if (!memory.empty()) return reader.tensor("tensor", std::span(memory));
    reader.tensor("tensor", [](std::size_t, std::span<const std::byte>) {});
  }
  std::vector<std::byte> memory;
};

}  // namespace

TEST_CASE("saving and loading a tensor of 256 MiB needs less than 64 MiB of additional memory") {
  if (sanitizer::kAddress || sanitizer::kThread) return;  // instrumented programs need more memory
  const Directory directory;
  Large state;
  SUBCASE("a tensor streamed in chunks") {}
  SUBCASE("a tensor in memory") { state.memory.assign(kTensor, std::byte{7}); }
  const long measured = peak_of([] {
    const std::vector<std::byte> touched(std::size_t{100} << 20, std::byte{1});
    volatile const std::byte* last = &touched.back();
    REQUIRE(*last == std::byte{1});
  });
  REQUIRE(measured > 90L << 10);  // checks the measurement itself
  const long saving = peak_of([] { REQUIRE(ckpt::save_all_states()); });
  const long loading = peak_of([&] { REQUIRE(ckpt::load_state(state, true)); });
  MESSAGE("additional peak memory in KiB: saving ", saving, ", loading ", loading);
  CHECK(saving < kAllowed);
  CHECK(loading < kAllowed);
}

}  // namespace checkpoint_memory_test
