// Reads any bytes as a TensorBoard event file and as an event: records that are cut off are recognized as partial, and
// the tags of scalars point into the event.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string_view>

#include "tune/study/event_record.h"

using namespace adaptdl::sched::tune;
using State = EventFrame::State;

namespace {

void check(bool good) {
  if (!good) std::abort();
}

bool is_part(std::string_view part, std::string_view whole) {
  const std::less_equal<const char*> before;
  return part.empty() ||
         (before(whole.data(), part.data()) && before(part.data() + part.size(), whole.data() + whole.size()));
}

void read_scalars(std::string_view event) {
  for (const EventScalar& scalar : read_event_scalars(event)) check(is_part(scalar.tag, event));
}

void check_cut_off(std::string_view record) {
  for (const std::uint64_t size : {std::uint64_t{0}, kEventHeader - 1, kEventHeader, record.size() - 1}) {
    const EventFrame frame = read_event_frame(record.substr(0, size));
    check(frame.state == State::kPartial);
    check(frame.size == (size < kEventHeader ? kEventHeader : record.size()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  for (std::string_view rest = all;;) {
    const EventFrame frame = read_event_frame(rest);
    if (frame.state == State::kPartial) check(frame.size > rest.size());
    if (frame.state == State::kPartial || frame.state == State::kUnreadable) break;
    check(frame.size > kEventHeader && frame.size <= rest.size());
    check(is_part(frame.data, rest));
    check_cut_off(rest.substr(0, frame.size));
    read_scalars(frame.data);
    rest.remove_prefix(frame.size);
  }
  // Without checksums, more inputs reach the parser of events.
  read_scalars(all);
  return 0;
}
