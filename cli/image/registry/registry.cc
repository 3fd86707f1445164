#include "image/registry/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "adaptdl/error.h"
#include "base/counted.h"
#include "base/printable.h"
#include "image/base/digest.h"
#include "image/registry/registry_impl.h"

namespace adaptdl::image {
namespace {

// Indexes of indexes are rare, and deeper nesting is a mistake.
constexpr int kMaxIndexDepth = 3;
constexpr std::uint64_t kRealProgress = 64 << 10;

Scopes pull_scopes(const Place& place) { return {repository_scope(place.repository, "pull")}; }

void check_content(const std::string& bytes, const std::string& digest, const std::string& what) {
  Digester digester = Digester::of(digest);
  digester.update(bytes);
  if (digester.digest() != digest)
    throw Error(
        fmt::format("{}: the received content does not match the digest {}; it was corrupted in the registry or in "
                    "transit",
                    what, digest));
}

// Tries the places in order. Returns the first successful result, or throws the last place's error. Mirror failures are
// ignored.
template <class Call>
auto first_of(const std::vector<Place>& places, Call call) {
  for (std::size_t i = 0; i + 1 < places.size(); ++i) try {
      return call(places[i]);
    } catch (const http::Stopped&) {
      throw;
    } catch (const Error&) {
    }
  return call(places.back());
}

}  // namespace

Registry::Registry(RegistryOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Registry::~Registry() = default;

Session& Registry::Impl::session(const std::string& host) {
  const std::scoped_lock lock(mutex);
  std::unique_ptr<Session>& found = sessions[host];
  if (!found) found = std::make_unique<Session>(host, options);
  return *found;
}

std::vector<Place> Registry::Impl::places(const Reference& image) {
  std::vector<Place> places;
  if (const auto mirrors = options.mirrors.find(image.registry); mirrors != options.mirrors.end())
    for (const std::string& mirror : mirrors->second) {
      const std::size_t scheme = mirror.find("://"), begin = scheme == std::string::npos ? 0 : scheme + 3;
      const std::size_t slash = mirror.find('/', begin);
      const std::string prefix = slash == std::string::npos ? "" : mirror.substr(slash + 1) + "/";
      std::string host = mirror.substr(0, slash);
      if (host.starts_with("https://")) host.erase(0, begin);
      places.push_back({&session(host), prefix + image.repository});
    }
  places.push_back(own_place(image));
  return places;
}

http::Response Registry::Impl::ask(const Place& place, http::Request request, const std::string& path,
                                   const Scopes& scopes, const std::string& what, const std::stop_token& stop,
                                   std::initializer_list<int> others) {
  return explained(what, place.session->host(), [&] {
    Retrier retrier(options.retry, stop);
    for (;;) try {
        request.url = place.session->base(stop) + path;
        http::Response response = place.session->send(request, scopes, stop);
        const bool wanted = std::find(others.begin(), others.end(), response.status) != others.end();
        if (response.status / 100 == 2 || wanted) return response;
        throw place.session->error(what, response, scopes, stop);
      } catch (...) {
        retrier.wait();
      }
  });
}

std::variant<Manifest, Index> Registry::Impl::fetch(const Place& place, const Reference& image, const std::string& what,
                                                    const std::stop_token& stop) {
  http::Request request;
  request.headers = {fmt::format("Accept: {}, {}, {}, {}", media::kManifest, media::kIndex, media::kDockerManifest,
                                 media::kDockerList)};
  request.max_body = kMaxManifestSize;
  http::Response response =
      ask(place, request, place.path("/manifests/" + image.version()), pull_scopes(place), what, stop);
  const std::string reported(response.header("docker-content-digest"));
  if (!image.digest.empty())
    check_content(response.body, image.digest, what);
  else if (is_digest(reported))
    check_content(response.body, reported, what);
  try {
    auto manifest = parse_manifest(std::move(response.body), response.header("content-type"));
    if (!image.digest.empty()) std::visit([&](auto& each) { each.digest = image.digest; }, manifest);
    return manifest;
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", what, error.what()));
  }
}

namespace {

// A blob's download. If one place fails, the download continues from the next place at the same offset.
struct BlobPull {
  const Descriptor& blob;
  const std::function<void(std::string_view)>& sink;
  const Progress& progress;
  const RegistryOptions& options;
  const std::stop_token& stop;
  std::string what;
  Digester digester = Digester::of(blob.digest);
  std::uint64_t offset = 0, skip = 0;

  void begin(const http::Response& head) {
    skip = head.status == 206 ? 0 : offset;
    const std::string range(head.header("content-range"));
    if (head.status == 206 && !range.starts_with(fmt::format("bytes {}-", offset)))
      throw Error(fmt::format("{}: requested bytes from offset {}, but the registry sent '{}'", what, offset,
                              one_line(range, 60)));
  }
  bool take(std::string_view data) {
    const std::size_t passed = std::min<std::uint64_t>(skip, data.size());
    skip -= passed;
    data.remove_prefix(passed);
    if (data.size() > blob.size - offset)
      throw Error(fmt::format("{}: the registry sent more than the expected {}", what, counted(blob.size, "byte")));
    digester.update(data);
    sink(data);
    offset += data.size();
    if (progress && !data.empty()) progress(static_cast<std::int64_t>(data.size()));
    return true;
  }
  void once(const Place& place) {
    http::Request request;
    request.url = place.session->base(stop) + place.path("/blobs/" + blob.digest);
    if (offset > 0) request.headers.push_back(fmt::format("Range: bytes={}-", offset));
    request.timeout = std::chrono::milliseconds(0);
    request.stall = options.stall;
    const Scopes scopes = pull_scopes(place);
    const http::Response response = place.session->stream(
        request, scopes, stop, [this](std::string_view data) { return take(data); },
        [this](const http::Response& head) { begin(head); });
    if (response.status / 100 != 2) throw place.session->error(what, response, scopes, stop);
    if (offset < blob.size) {
      const std::string reason = fmt::format("the response ended after {} of {}", offset, counted(blob.size, "byte"));
      throw http::ConnectionError(what + ": " + reason, reason, true);
    }
  }
  void run(const Place& place) {
    explained(what, place.session->host(), [&] {
      Retrier retrier(options.retry, stop);
      while (offset < blob.size) {
        const std::uint64_t began = offset;
        try {
          once(place);
        } catch (...) {
          if (offset - began >= kRealProgress) retrier.progressed();
          retrier.wait();
        }
      }
    });
  }
};

}  // namespace

std::variant<Manifest, Index> Registry::pull(const Reference& image, const std::stop_token& stop) {
  const std::string what = fmt::format("cannot pull image '{}'", image.full());
  return first_of(impl_->places(image), [&](const Place& place) { return impl_->fetch(place, image, what, stop); });
}

Manifest Registry::pull_manifest(const Reference& image, const Platform& machine, const std::stop_token& stop) {
  Reference next = image;
  for (int depth = 0; depth <= kMaxIndexDepth; ++depth) {
    auto found = pull(next, stop);
    if (auto* const manifest = std::get_if<Manifest>(&found)) return std::move(*manifest);
    try {
      next.digest = choose(std::get<Index>(found), machine).digest;
    } catch (const Error& error) {
      throw Error(fmt::format("cannot pull image '{}': {}", image.full(), error.what()));
    }
  }
  throw Error(fmt::format("cannot pull image '{}': its image indexes are nested more than {} deep", image.full(),
                          kMaxIndexDepth));
}

void Registry::pull_blob(const Reference& image, const Descriptor& blob,
                         const std::function<void(std::string_view)>& sink, const std::stop_token& stop,
                         const Progress& progress) {
  const std::string what = fmt::format("cannot pull {} from image '{}'", blob.digest, image.full());
  // An exception from the sink is not a failure of the place, so no other place is tried.
  std::exception_ptr thrown;
  const std::function<void(std::string_view)> guarded = [&](std::string_view data) {
    try {
      sink(data);
    } catch (...) {
      thrown = std::current_exception();
      throw;
    }
  };
  BlobPull pull{blob, guarded, progress, impl_->options, stop, what};
  first_of(impl_->places(image), [&](const Place& place) {
    if (thrown) std::rethrow_exception(thrown);
    pull.run(place);
  });
  if (pull.digester.digest() != blob.digest)
    throw Error(
        fmt::format("{}: the received content does not match its digest; it was corrupted in the registry or in "
                    "transit",
                    what));
}

bool Registry::has_blob(const Reference& image, const std::string& digest, const std::stop_token& stop) {
  const Place place = impl_->own_place(image);
  http::Request request;
  request.method = "HEAD";
  // A registry that answers with a redirect to the blob contains the blob. A registry that was killed while it was
  // storing the blob may have left an empty link to it, and then answers 500 until the blob is pushed again.
  const http::Response response = impl_->ask(place, request, place.path("/blobs/" + digest), pull_scopes(place),
                                             fmt::format("cannot check for {} in image '{}'", digest, image.full()),
                                             stop, {404, 500, 301, 302, 303, 307, 308});
  return response.status != 404 && response.status != 500;
}

}  // namespace adaptdl::image
