#include "support/rng_state.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/types.h>
#include <xxhash.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "support/mix.h"
#include "support/replicas.h"

namespace adaptdl::internal {

namespace {

using Bytes = std::vector<std::byte>;
using Generators = std::map<std::string, Bytes>;  // "cpu", "cuda0", ... -> state

std::map<std::string, at::Generator> default_generators() {
  std::map<std::string, at::Generator> generators{{"cpu", at::globalContext().defaultGenerator(at::kCPU)}};
  if (torch::cuda::is_available()) {
    const auto devices = static_cast<int>(torch::cuda::device_count());
    for (int i = 0; i < devices; ++i) {
      const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(i));
      generators.emplace(fmt::format("cuda{}", i), at::globalContext().defaultGenerator(device));
    }
  }
  return generators;
}

Generators snapshot() {
  Generators states;
  for (auto& [name, generator] : default_generators()) {
    const std::lock_guard lock(generator.mutex());
    const auto state = generator.get_state().contiguous();
    const auto* const data = static_cast<const std::byte*>(state.data_ptr());
    states.emplace(name, Bytes(data, data + state.nbytes()));
  }
  return states;
}

void restore(const Generators& states) {
  for (auto& [name, generator] : default_generators()) {
    const auto found = states.find(name);
    if (found == states.end()) continue;  // the device did not exist when the checkpoint was saved
    auto state = at::empty({static_cast<std::int64_t>(found->second.size())}, at::kByte);
    std::memcpy(state.data_ptr(), found->second.data(), found->second.size());
    const std::lock_guard lock(generator.mutex());
    try {
      generator.set_state(state);
    } catch (const c10::Error& error) {
      throw checkpoint::CheckpointError(
          fmt::format("the checkpoint's random number generator '{}' is not compatible with this LibTorch: {}", name,
                      error.what_without_backtrace()));
    }
  }
}

// Seeds the generators for `rank` from rank 0's generators, deterministically and differently for each rank.
void derive(const Generators& states, int rank) {
  for (auto& [name, generator] : default_generators()) {
    const auto found = states.find(name);
    if (found == states.end()) continue;
    const auto digest = XXH3_64bits(found->second.data(), found->second.size());
    const std::lock_guard lock(generator.mutex());
    generator.set_current_seed(mix({digest, static_cast<std::uint64_t>(rank)}));
  }
}

class RngState : public checkpoint::State {
 public:
  RngState() : State("adaptdl-rng") { checkpoint::load_state(*this); }

  void resume() {
    if (!own_.empty()) {
      restore(own_);
    } else if (const int rank = replica_rank(); rank != 0) {
      derive(rank0_.empty() ? snapshot() : rank0_, rank);
    } else if (!rank0_.empty()) {
      restore(rank0_);
    }
    own_.clear();
    rank0_.clear();
  }

  void save(checkpoint::Writer& writer) const override { write(writer, rank0_); }
  void load(const checkpoint::Reader& reader) override { rank0_ = read(reader); }

  bool has_parts() const override { return true; }
  void save_part(checkpoint::Writer& writer) const override { write(writer, own_); }
  void load_part(const checkpoint::Reader& reader) override { own_ = read(reader); }

 private:
  static void write(checkpoint::Writer& writer, const Generators& loaded) {
    for (auto& [name, state] : loaded.empty() ? snapshot() : loaded) writer.bytes(name, Bytes(state));
  }

  static Generators read(const checkpoint::Reader& reader) {
    Generators states;
    for (const auto& tensor : reader.tensors()) states.emplace(tensor.name, reader.bytes(tensor.name));
    return states;
  }

  Generators own_, rank0_;  // as loaded from the checkpoint; empty once the generators are restored
};

// Never destroyed, because a checkpoint may be saved until the process ends.
RngState& rng_state() {
  static auto* const state = new RngState;
  return *state;
}

}  // namespace

void resume_rng() { rng_state().resume(); }
void register_rng() { rng_state(); }

RngStates::RngStates() : states_(snapshot()) {}
void RngStates::restore() const { internal::restore(states_); }

}  // namespace adaptdl::internal
