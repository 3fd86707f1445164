#include "kube/copy/resumed_output.h"

#include <algorithm>
#include <utility>

namespace adaptdl::kube {

bool ResumedOutput::read_some() {
  if (!process_) {
    if (resuming_ && bytes_ > 0 && before_resume_) before_resume_();
    err_.clear();
    Command command = command_(bytes_);
    process_ = shell_.start(command.words, !command.input.empty());
    feed_to(*process_, [&] { return std::exchange(command.input, {}); });
  }
  return process_->read([this](std::string_view more) { buffer_ += more; },
                        [this](std::string_view more) { err_ += more; });
}

std::string_view ResumedOutput::read() {
  buffer_.clear();
  while (buffer_.empty() && !ended_) {
    check(events_.stop);
    try {
      ended_ = !read_some();
    } catch (const Broken& broken) {
      process_.reset();
      resuming_ = true;
      if (buffer_.empty()) persistence_.wait(broken, bytes_);
    }
  }
  buffer_.resize(std::min<std::uint64_t>(buffer_.size(), limit_ - bytes_));
  sum_.update(buffer_);
  bytes_ += buffer_.size();
  return buffer_;
}

}  // namespace adaptdl::kube
