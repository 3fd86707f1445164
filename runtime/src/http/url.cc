#include "http/url.h"

#include <fmt/core.h>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "http/curl.h"
#include "http/http.h"

namespace adaptdl::http {
namespace {

std::string part(CURLU* url, CURLUPart which, unsigned flags = 0) {
  char* text = nullptr;
  if (curl().url_get(url, which, &text, flags) != CURLUE_OK) return "";
  return Text(text).get();
}

bool set_part(CURLU* url, CURLUPart which, const std::string& text) {
  return curl().url_set(url, which, text.c_str(), 0) == CURLUE_OK;
}

}  // namespace

void Url::Deleter::operator()(Curl_URL* handle) const { curl().url_cleanup(handle); }

Url::Url(const std::string& text) : handle_(curl().url()) {
  if (!handle_ || !set_part(handle_.get(), CURLUPART_URL, text))
    throw Error(fmt::format("invalid URL '{}': expected http[s]://HOST[:PORT][/PATH]", one_line(without_user(text))));
}

std::string Url::text() const { return part(handle_.get(), CURLUPART_URL); }
std::string Url::scheme() const { return part(handle_.get(), CURLUPART_SCHEME); }
std::string Url::host() const { return part(handle_.get(), CURLUPART_HOST); }
std::string Url::port() const { return part(handle_.get(), CURLUPART_PORT); }
std::string Url::path() const { return part(handle_.get(), CURLUPART_PATH, CURLU_URLDECODE); }
std::string Url::effective_port() const { return part(handle_.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT); }

bool Url::redirect(const std::string& target) { return set_part(handle_.get(), CURLUPART_URL, target); }
bool Url::set_host(const std::string& host) { return set_part(handle_.get(), CURLUPART_HOST, host); }

}  // namespace adaptdl::http
