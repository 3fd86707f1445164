#include "loop/boundary_message.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace adaptdl::internal {

static_assert(sizeof(BoundaryMessage) == 24 && std::is_trivially_copyable_v<BoundaryMessage>);

collective::Bytes encode(const BoundaryMessage& message) {
  collective::Bytes bytes(sizeof message, '\0');
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

BoundaryMessage decode_boundary_message(const collective::Bytes& bytes) {
  BoundaryMessage message;
  if (bytes.size() != sizeof message)
    throw collective::CollectiveError(
        "the replicas are not at the same step boundary; check that they run the same program");
  std::memcpy(&message, bytes.data(), sizeof message);
  return message;
}

collective::Bytes join_boundary_messages(const collective::Bytes& a, const collective::Bytes& b) {
  auto x = decode_boundary_message(a);
  const auto y = decode_boundary_message(b);
  x.signal = std::max(x.signal, y.signal);
  x.save = std::max(x.save, y.save);
  x.periodic_save = std::max(x.periodic_save, y.periodic_save);
  x.data_end = std::max(x.data_end, y.data_end);
  x.generation = std::max(x.generation, y.generation);
  return encode(x);
}

}  // namespace adaptdl::internal
