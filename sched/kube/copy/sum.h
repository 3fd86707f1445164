// The checksum with which files are compared. It is computed incrementally, and has the hexadecimal form that the
// corresponding tool prints.
//
// XXH3-128 is used if both ends can compute it, because it is much faster than SHA-256. Both detect damage and
// concurrent changes; TLS protects against forgery.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "checkpoint/checksum.h"
#include "kube/copy/sha256.h"

namespace adaptdl::kube {

enum class SumKind { kSha256, kXxh128 };

class Sum {
 public:
  explicit Sum(SumKind kind = SumKind::kSha256) {
    if (kind == SumKind::kXxh128) sum_.emplace<checkpoint::Checksum>();
  }
  void update(std::string_view bytes) {
    if (auto* xxh = std::get_if<checkpoint::Checksum>(&sum_)) return xxh->update(std::as_bytes(std::span(bytes)));
    std::get<Sha256>(sum_).update(bytes);
  }
  // Returns the checksum of all bytes so far.
  std::string hex() const {
    return std::visit([](const auto& sum) { return sum.hex(); }, sum_);
  }

 private:
  std::variant<Sha256, checkpoint::Checksum> sum_;
};

}  // namespace adaptdl::kube
