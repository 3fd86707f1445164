#include "http.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <memory>
#include <mutex>

namespace adaptdl::http {
namespace {

struct CloseHandle {
  void operator()(CURL* handle) const { ::curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { ::curl_slist_free_all(list); }
};
struct FreeUrl {
  void operator()(CURLU* url) const { ::curl_url_cleanup(url); }
};
struct FreeText {
  void operator()(char* text) const { ::curl_free(text); }
};
using Handle = std::unique_ptr<CURL, CloseHandle>;
using List = std::unique_ptr<curl_slist, FreeList>;

struct Sink {
  std::string body;
  std::size_t bound;
  bool over = false;
};

std::size_t receive(char* data, std::size_t, std::size_t size, void* context) {
  auto* sink = static_cast<Sink*>(context);
  sink->over = size > sink->bound - sink->body.size();
  if (sink->over) return 0;  // ends the transfer
  sink->body.append(data, size);
  return size;
}

Handle new_handle() {
  static std::once_flag once;
  std::call_once(once, [] { ::curl_global_init(CURL_GLOBAL_DEFAULT); });
  Handle handle(::curl_easy_init());
  if (!handle) throw Error("libcurl does not start; is the machine out of memory?");
  return handle;
}

bool is_this_machine(const std::string& url) {
  const std::unique_ptr<CURLU, FreeUrl> parsed(::curl_url());
  char* part = nullptr;
  if (!parsed || ::curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      ::curl_url_get(parsed.get(), CURLUPART_HOST, &part, 0) != CURLUE_OK)
    return false;
  const std::unique_ptr<char, FreeText> owner(part);
  const std::string host(part);
  return host == "localhost" || host.rfind("127.", 0) == 0 || host == "[::1]";
}

// Whether the same request may well succeed a little later.
bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_PARTIAL_FILE:
      return true;
    default:
      return false;
  }
}

void set_protocols(CURL* handle) {
#if LIBCURL_VERSION_NUM >= 0x075500
  ::curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  ::curl_easy_setopt(handle, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

void set_body(CURL* handle, const Request& request) {
  const bool sends =
      !request.body.empty() || request.method == "PUT" || request.method == "POST" || request.method == "PATCH";
  if (sends) {
    ::curl_easy_setopt(handle, CURLOPT_POSTFIELDS, request.body.data());
    ::curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  }
  if (request.method == "HEAD") ::curl_easy_setopt(handle, CURLOPT_NOBODY, 1L);
  ::curl_easy_setopt(handle, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

}  // namespace

Response send(const Request& request) {
  const Handle handle = new_handle();
  Sink sink{"", request.max_body};
  char detail[CURL_ERROR_SIZE] = "";
  List headers(::curl_slist_append(nullptr, "Expect:"));  // no pause before the body
  for (const std::string& header : request.headers)
    headers.reset(::curl_slist_append(headers.release(), header.c_str()));

  CURL* const curl = handle.get();
  ::curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
  ::curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  ::curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
  ::curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);  // signals belong to the program
  ::curl_easy_setopt(curl, CURLOPT_USERAGENT, "adaptdl/" ADAPTDL_VERSION);
  ::curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_timeout.count()));
  ::curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(request.timeout.count()));
  ::curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
  ::curl_easy_setopt(curl, CURLOPT_WRITEDATA, &sink);
  if (is_this_machine(request.url)) ::curl_easy_setopt(curl, CURLOPT_PROXY, "");
  set_protocols(curl);
  set_body(curl, request);

  const CURLcode code = ::curl_easy_perform(curl);
  const std::string what = fmt::format("{} {}", request.method, request.url);
  if (sink.over) throw Error(fmt::format("{}: the answer is over {} bytes", what, request.max_body));
  if (code != CURLE_OK) {
    const std::string why = fmt::format("{}: {}", what, *detail ? detail : ::curl_easy_strerror(code));
    if (may_pass(code)) throw ConnectionError(why);
    throw Error(why);
  }
  long status = 0;
  ::curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  return {static_cast<int>(status), std::move(sink.body)};
}

std::string escape(const std::string& text) {
  const Handle handle = new_handle();
  const std::unique_ptr<char, FreeText> escaped(
      ::curl_easy_escape(handle.get(), text.data(), static_cast<int>(text.size())));
  return escaped ? escaped.get() : "";
}

}  // namespace adaptdl::http
