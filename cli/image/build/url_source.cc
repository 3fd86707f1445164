#include "image/build/url_source.h"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "adaptdl/error.h"
#include "base/printable.h"
#include "http/http.h"
#include "http/url.h"
#include "image/build/layer_provider.h"
#include "image/registry/retry.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

constexpr int kMaxUrlRedirects = 10;
constexpr auto kStall = std::chrono::seconds(60);
constexpr std::uint32_t kMode = 0600;

struct Fetched {
  std::string digest, etag;
  std::uint64_t size = 0;
  std::int64_t time = 0;
};

std::int64_t http_time(std::string_view text) {
  std::tm time{};
  return ::strptime(std::string(text).c_str(), "%a, %d %b %Y %H:%M:%S", &time) == nullptr
             ? 0
             : std::max<std::int64_t>(::timegm(&time), 0);
}

std::string file_name(const std::string& text) {
  std::string path = http::Url(text).path();
  while (path.ends_with('/')) path.pop_back();
  const std::string name = path.substr(path.rfind('/') + 1);
  return name.empty() || name == "." || name == ".." || name.find('\0') != std::string::npos ? "download" : name;
}

std::string_view algorithm_of(std::string_view digest) { return digest.substr(0, digest.find(':')); }

// `checksum` is the digest that the caller compares the content with; it may be empty.
Fetched download(const std::string& url, const std::string& checksum, const Fetched& known, const BuildCache& cache,
                 BuildReport& report, const std::stop_token& stop) {
  http::Connections connections;
  const std::string shown = http::without_user(url);
  TransferReport progress(report, "fetch " + shown, 0);
  http::Url at(url);
  for (int hop = 0; hop <= kMaxUrlRedirects; ++hop) {
    http::Request request;
    request.url = at.text();
    request.timeout = std::chrono::milliseconds(0);
    request.stall = kStall;
    if (!known.etag.empty()) request.headers.push_back("If-None-Match: " + known.etag);
    BlobStore::Draft draft(cache.blobs(), checksum.empty() ? "sha256" : algorithm_of(checksum));
    const http::Response response = connections.stream(request, stop, [&](std::string_view piece) {
      draft.write(piece);
      progress.add(static_cast<std::int64_t>(piece.size()));
      return true;
    });
    if (response.status == 0 || stop.stop_requested()) throw http::Stopped();
    if (response.status / 100 == 2) {
      progress.finish();
      const std::uint64_t size = draft.size();
      return {draft.commit(), std::string(response.header("etag")), size, http_time(response.header("last-modified"))};
    }
    if (response.status == 304 && !known.digest.empty()) return known;
    const std::string next(response.header("location"));
    if (response.status / 100 != 3 || next.empty())
      throw Error(fmt::format("{}: the server responded with HTTP status {}", shown, response.status));
    if (!at.redirect(next))
      throw Error(fmt::format("{}: the server redirects to the invalid URL '{}'", shown, one_line(next, 200)));
    if (checksum.empty() && at.scheme() != "https" && request.url.starts_with("https:"))
      throw Error(
          fmt::format("{}: redirected from https to '{}', where the file can be altered in transit; "
                      "pass its digest with --checksum",
                      shown, one_line(http::without_user(next), 200)));
  }
  throw Error(fmt::format("{}: more than {} redirects", shown, kMaxUrlRedirects));
}

Fetched with_retries(const std::string& url, const std::string& checksum, const Fetched& known, const BuildCache& cache,
                     BuildReport& report, const std::stop_token& stop) {
  Retrier retrier({}, stop);
  for (;;) try {
      return download(url, checksum, known, cache, report, stop);
    } catch (const http::ConnectionError&) {
      retrier.wait();
    }
}

}  // namespace

UrlFile fetch_url(const std::string& url, const std::string& checksum, const BuildCache& cache, BuildReport& report,
                  const std::stop_token& stop) {
  const std::string key = sha256(url);
  Fetched fetched;
  if (const json kept = cache.find("downloads", key); kept.is_object()) {
    fetched = {kept.value("digest", ""), kept.value("etag", ""), kept.value("size", std::uint64_t{0}),
               kept.value("time", std::int64_t{0})};
    const bool comparable = checksum.empty() || algorithm_of(checksum) == algorithm_of(fetched.digest);
    if (!comparable || !is_digest(fetched.digest) || !cache.blobs().find(fetched.digest, fetched.size)) fetched = {};
  }
  if (checksum.empty() || checksum != fetched.digest) {
    fetched = with_retries(url, checksum, fetched, cache, report, stop);
    cache.keep("downloads", key,
               {{"digest", fetched.digest}, {"etag", fetched.etag}, {"size", fetched.size}, {"time", fetched.time}});
  }
  if (!checksum.empty() && checksum != fetched.digest)
    throw Error(fmt::format("{}: the file's digest is {}, but --checksum expects {}", http::without_user(url),
                            fetched.digest, checksum));
  UrlFile file{.file = {}, .digest = fetched.digest};
  file.file.entry = {.path = file_name(url), .mode = kMode, .size = fetched.size, .mtime = fetched.time};
  file.file.file = cache.blobs().path_of(fetched.digest);
  return file;
}

}  // namespace adaptdl::image
