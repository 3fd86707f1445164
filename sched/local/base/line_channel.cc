#include "local/base/line_channel.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/foreign_json.h"

namespace adaptdl::sched {

LineChannel::LineChannel(Fd in, Fd out) : in_(std::move(in)), out_(std::move(out)) {
  set_nonblocking(in_);
  set_nonblocking(out_);
  // With larger pipes, a long message needs fewer switches between the processes. This fails for sockets, and if the
  // user's pipes already occupy too much memory.
  for (const Fd* fd : {&in_, &out_}) ::fcntl(fd->get(), F_SETPIPE_SZ, kPipeSize);
}

void LineChannel::add_to(std::vector<pollfd>& polled) const {
  polled.push_back({in_.get(), POLLIN, 0});  // poll() ignores -1
  if (written_ < outgoing_.size()) polled.push_back({out_.get(), POLLOUT, 0});
}

void LineChannel::send(const nlohmann::json& message) {
  outgoing_ += message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  write();
}

void LineChannel::write() {
  while (written_ < outgoing_.size()) {
    const ssize_t size = ::write(out_.get(), outgoing_.data() + written_, outgoing_.size() - written_);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    // If the other process is gone, receive() reports it.
    written_ = size < 0 ? outgoing_.size() : written_ + static_cast<std::size_t>(size);
  }
  // While data is added all the time, the channel is never empty.
  if (written_ > outgoing_.size() / 2) {
    outgoing_.erase(0, written_);
    written_ = 0;
  }
}

bool LineChannel::receive(const std::function<void(const nlohmann::json&)>& sink) {
  std::array<char, std::size_t{64} << 10> buffer;
  while (valid_ && in_) {
    const ssize_t size = ::read(in_.get(), buffer.data(), buffer.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size <= 0) {
      in_.reset();
      break;
    }
    lines_.feed({buffer.data(), static_cast<std::size_t>(size)}, [&](std::string_view line, bool ends) {
      const auto message = ends && valid_ ? parse_foreign_json(line) : nlohmann::json();
      valid_ = valid_ && message.is_object();
      if (valid_) sink(message);
    });
  }
  return valid_ && in_;
}

void LineChannel::wait(std::chrono::milliseconds limit) const {
  std::vector<pollfd> polled;
  add_to(polled);
  ::poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
}

}  // namespace adaptdl::sched
