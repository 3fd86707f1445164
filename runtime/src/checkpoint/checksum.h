// The checksum that checkpoints use: XXH3-128, in the hexadecimal form that `xxhsum -H2` prints.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace adaptdl::checkpoint {

class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> data);
  // Returns the checksum of all data so far: 32 lower-case hexadecimal digits.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

std::string checksum_of(std::string_view text);

// Returns whether `text` has the format of hex().
bool is_checksum(std::string_view text);

}  // namespace adaptdl::checkpoint
