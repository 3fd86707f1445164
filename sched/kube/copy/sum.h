// What files are compared by: a checksum of bytes as they come, in hexadecimal as the tool of its name prints it.
//
// XXH3-128 is the one where both ends can compute it: it takes far less time than SHA-256. Both find what was
// damaged or changed meanwhile; against forgery there is TLS.
//
// Threading: used by one thread at a time.
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
  // Of everything so far.
  std::string hex() const {
    return std::visit([](const auto& sum) { return sum.hex(); }, sum_);
  }

 private:
  std::variant<Sha256, checkpoint::Checksum> sum_;
};

}  // namespace adaptdl::kube
