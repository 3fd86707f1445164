#include "http/http.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <exception>
#include <mutex>

#include "adaptdl/sigpipe.h"
#include "base/text_parts.h"
#include "http/curl.h"
#include "http/transfer.h"

namespace adaptdl::http {
namespace {

// A handle and the connections that it keeps open.
struct Line {
  Multi multi = new_multi();
  Easy easy = new_easy();
};

// The callbacks that receive a response whose body is not collected.
struct Sink {
  const std::function<bool(std::string_view)>& take;
  const std::function<void(const Response&)>& begin;
};

// The source of a request's body and the destination of the response.
struct Receiver {
  CURL* handle;
  const Request& request;
  const Sink* sink;  // if null, the body is collected in `response`
  Response response;
  bool over = false, ended = false, begun = false;
  std::exception_ptr thrown;

  // Returns whether the body is passed to the sink. The first call that returns true also passes the headers to it.
  // REQUIRES that the status has arrived.
  bool is_streamed() {
    long status = 0;
    curl().easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    if (!sink || status / 100 != 2) return false;
    response.status = static_cast<int>(status);
    if (!std::exchange(begun, true) && sink->begin) sink->begin(response);
    return true;
  }
  bool take(std::string_view data) {
    if (is_streamed()) {
      ended = !sink->take(data);
      return !ended;
    }
    over = data.size() > request.max_body - response.body.size();
    if (!over) response.body.append(data);
    return !over;
  }
};

std::size_t receive(char* data, std::size_t, std::size_t size, void* context) noexcept {
  auto* const receiver = static_cast<Receiver*>(context);
  try {
    return receiver->take({data, size}) ? size : 0;  // 0 aborts the transfer
  } catch (...) {
    receiver->thrown = std::current_exception();
    return 0;
  }
}

std::size_t give_body(char* data, std::size_t, std::size_t size, void* context) noexcept {
  auto* const receiver = static_cast<Receiver*>(context);
  try {
    return receiver->request.read_body(data, size);
  } catch (...) {
    receiver->thrown = std::current_exception();
    return CURL_READFUNC_ABORT;
  }
}

std::size_t receive_header(char* data, std::size_t, std::size_t size, void* context) {
  auto* const receiver = static_cast<Receiver*>(context);
  std::string_view line(data, size);
  if (line.rfind("HTTP/", 0) == 0) receiver->response.headers.clear();  // from a proxy or an informational response
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return size;
  receiver->response.headers.emplace_back(lower(line.substr(0, colon)), trimmed(line.substr(colon + 1)));
  return size;
}

// Detects a connection that transfers nothing for some time, that is, whose socket is not ready for the operation that
// libcurl is waiting for. libcurl's own limit uses an average over several seconds, which includes bytes that it has
// only read ahead; how long the average takes to fall depends on libcurl's version.
class StallWatch {
 public:
  StallWatch(CURL* handle, std::chrono::milliseconds limit) : handle_(handle), limit_(limit) {}

  // Returns how much longer the connection may remain idle before it is considered stalled; 0 if it has stalled.
  // `ready` states whether the last poll found the connection's socket ready.
  std::chrono::milliseconds left(bool ready) {
    const auto now = std::chrono::steady_clock::now();
    curl_off_t connected = 0;
    curl().easy_getinfo(handle_, CURLINFO_PRETRANSFER_TIME_T, &connected);
    if (ready || connected == 0) since_ = now;  // connecting has its own time limit
    return std::max(limit_ - std::chrono::floor<std::chrono::milliseconds>(now - since_), std::chrono::milliseconds(0));
  }

 private:
  CURL* const handle_;
  const std::chrono::milliseconds limit_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

// Runs the transfer to completion; returns nullopt if a stop was requested first. `stall`: see Request.
std::optional<CURLcode> perform(const Line& line, std::chrono::seconds stall, const std::stop_token& stop) {
  const auto& api = curl();
  CURLM* const multi = line.multi.get();
  const SigpipeGuard guard;
  if (api.multi_add_handle(multi, line.easy.get()) != CURLM_OK) throw Error("libcurl did not accept the request");
  struct Remove {
    const Line& line;
    ~Remove() { curl().multi_remove_handle(line.multi.get(), line.easy.get()); }
  } const remove{line};
  const std::stop_callback wake(stop, [&] { api.multi_wakeup(multi); });
  StallWatch watch(line.easy.get(), stall);
  for (int running = 1, ready = 1; true;) {
    const CURLMcode code = api.multi_perform(multi, &running);
    if (code != CURLM_OK)
      throw Error(fmt::format("libcurl failed (code {} of its multi interface)", static_cast<int>(code)));
    if (running == 0) break;
    if (stop.stop_requested()) return std::nullopt;
    std::chrono::milliseconds wait(1000);
    if (stall.count() > 0) {
      wait = std::min(wait, watch.left(ready > 0));
      if (wait.count() == 0) return CURLE_OPERATION_TIMEDOUT;
    }
    api.multi_poll(multi, nullptr, 0, static_cast<int>(wait.count()), &ready);
  }
  int left = 0;
  const CURLMsg* const message = api.multi_info_read(multi, &left);
  return message ? message->data.result : CURLE_GOT_NOTHING;
}

Response transfer(const Line& line, const Request& request, const std::stop_token& stop, const Sink* sink) {
  CURL* const handle = line.easy.get();
  Transfer lists;
  Receiver receiver{handle, request, sink, {}};
  struct Reset {
    CURL* handle;
    ~Reset() { curl().easy_reset(handle); }  // removes all references to this call
  } const reset{handle};
  set_request(handle, request, lists);
  curl().easy_setopt(handle, CURLOPT_WRITEFUNCTION, receive);
  curl().easy_setopt(handle, CURLOPT_WRITEDATA, &receiver);
  curl().easy_setopt(handle, CURLOPT_HEADERFUNCTION, receive_header);
  curl().easy_setopt(handle, CURLOPT_HEADERDATA, &receiver);
  if (request.read_body) {
    curl().easy_setopt(handle, CURLOPT_READFUNCTION, give_body);
    curl().easy_setopt(handle, CURLOPT_READDATA, &receiver);
  }
  const std::optional<CURLcode> code = perform(line, request.stall, stop);
  if (receiver.thrown) std::rethrow_exception(receiver.thrown);
  if (receiver.over)
    throw Error(fmt::format("{} {}: the response is larger than {} bytes", request.method, without_user(request.url),
                            request.max_body));
  if (code && *code != CURLE_OK && !receiver.ended) fail(handle, *code, request, lists);
  if (!code && !sink) return {};
  if (code && !receiver.ended) receiver.is_streamed();  // `begin` is also called for an empty body
  long status = 0;
  curl_off_t wait = 0;
  curl().easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  curl().easy_getinfo(handle, CURLINFO_RETRY_AFTER, &wait);
  receiver.response.status = static_cast<int>(status);
  if (!receiver.response.header("retry-after").empty()) receiver.response.retry_after = std::chrono::seconds(wait);
  return std::move(receiver.response);
}

}  // namespace

std::string_view Response::header(std::string_view name) const {
  const auto found = std::find_if(headers.begin(), headers.end(), [&](const auto& each) { return each.first == name; });
  return found == headers.end() ? std::string_view() : found->second;
}

// `idle` contains the lines that no call is using. The most recently used line is at the back, because its connection
// is the most likely to still be open.
struct Connections::Impl {
  std::mutex mutex;
  std::vector<Line> idle;

  Response transfer(const Request& request, const std::stop_token& stop, const Sink* sink) {
    std::optional<Line> line;
    {
      const std::scoped_lock lock(mutex);
      if (!idle.empty()) {
        line = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (!line) line.emplace();
    Response response = http::transfer(*line, request, stop, sink);
    const std::scoped_lock lock(mutex);
    idle.push_back(std::move(*line));
    return response;
  }
};

Connections::Connections() : impl_(std::make_unique<Impl>()) {}
Connections::~Connections() = default;

Response Connections::send(const Request& request, std::stop_token stop) {
  return impl_->transfer(request, stop, nullptr);
}

Response Connections::stream(const Request& request, std::stop_token stop,
                             const std::function<bool(std::string_view)>& sink,
                             const std::function<void(const Response&)>& begin) {
  const Sink both{sink, begin};
  return impl_->transfer(request, stop, &both);
}

bool available() noexcept {
  try {
    curl();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

Response send(const Request& request) { return transfer(Line(), request, {}, nullptr); }

std::string without_user(std::string url) {
  const std::size_t colon = url.find("://");
  const std::size_t begin = colon == std::string::npos ? 0 : colon + 3;
  const std::size_t at = url.substr(0, url.find_first_of("/?#", begin)).rfind('@');
  return at == std::string::npos || at < begin ? url : url.erase(begin, at + 1 - begin);
}

std::string escape(const std::string& text) {
  std::string escaped;
  for (const unsigned char c : text) {
    const bool plain = c < 0x80 && (std::isalnum(c) || std::string_view("-._~").find(c) != std::string_view::npos);
    escaped += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return escaped;
}

}  // namespace adaptdl::http
