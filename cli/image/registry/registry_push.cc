#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "adaptdl/error.h"
#include "base/counted.h"
#include "base/fd.h"
#include "base/printable.h"
#include "image/base/digest.h"
#include "image/registry/registry_impl.h"

namespace adaptdl::image {
namespace {

Scopes push_scopes(const Place& place) { return {repository_scope(place.repository, "pull,push")}; }

// Throws an error that causes a retry: the registry no longer knows the upload, so the upload must be started again.
[[noreturn]] void lose(const std::string& what) {
  const std::string reason = "the registry no longer knows the upload";
  throw http::ConnectionError(what + ": " + reason, reason, true);
}

// Returns the number of bytes in a range such as "0-99". "0-0" may mean zero bytes or one byte, and is treated as zero
// bytes.
std::uint64_t received(std::string_view range) {
  if (range.starts_with("bytes=")) range.remove_prefix(6);
  std::uint64_t last = 0;
  if (!range.starts_with("0-")) return 0;
  const auto [end, error] = std::from_chars(range.data() + 2, range.data() + range.size(), last);
  return error == std::errc() && end == range.data() + range.size() && last > 0 ? last + 1 : 0;
}

// The upload of one blob. After a failure, it continues at the offset that the registry reports.
class Upload {
 public:
  Upload(const Place& place, const Blob& blob, const RegistryOptions& options, const std::stop_token& stop,
         const Progress& progress, std::string what)
      : place_(place), blob_(blob), options_(options), stop_(stop), progress_(progress), what_(std::move(what)) {}

  // Begins at the upload location in the registry's response.
  void begin_at(const http::Response& response) {
    locate(response);
    offset_ = 0;
    unsure_ = false;
  }
  bool begun() const { return !location_.empty(); }

  // Sends the remaining bytes. Before the upload starts again, calls `missing`, and returns false if the blob is no
  // longer missing.
  bool run(const std::function<bool()>& missing) {
    Retrier retrier(options_.retry, stop_);
    for (bool first = true;; first = false) {
      const std::uint64_t before = offset_;
      try {
        if (unsure_ && begun()) ask_where();
        if (!begun()) {
          if (!first && !missing()) return false;
          begin();
        }
        while (!send_next()) {
        }
        return true;
      } catch (...) {
        unsure_ = true;
        if (offset_ > before) retrier.progressed();
        retrier.wait();
      }
    }
  }

 private:
  http::Response exchange(http::Request request, const std::function<void()>& rewind = {}) {
    request.stall = options_.stall;
    request.timeout = std::chrono::milliseconds(0);
    return place_.session->send(std::move(request), push_scopes(place_), stop_, rewind);
  }
  [[noreturn]] void fail(const http::Response& response) {
    throw place_.session->error(what_, response, push_scopes(place_), stop_);
  }
  void locate(const http::Response& response) {
    const std::string next(response.header("location"));
    if (!next.empty()) location_ = place_.session->resolve(next, place_.session->base(stop_));
    if (location_.empty()) throw Error(fmt::format("{}: the registry sent no upload location", what_));
  }

  void begin() {
    http::Request request;
    request.method = "POST";
    request.url = place_.session->base(stop_) + place_.path("/blobs/uploads/");
    const http::Response response = exchange(request);
    if (response.status / 100 != 2) fail(response);
    begin_at(response);
  }
  // Requests the offset to continue at. If the registry no longer knows the upload, clears the upload's location.
  void ask_where() {
    http::Request request;
    request.url = location_;
    const http::Response response = exchange(request);
    if (response.status >= 500 || response.status == 429) fail(response);
    if (response.status / 100 != 2) {
      location_.clear();
      offset_ = 0;
      return;
    }
    locate(response);
    offset_ = std::min(received(response.header("range")), blob_.size);
    unsure_ = false;
  }

  // Sends the next part. Returns whether that was the last request.
  bool send_next() {
    const std::uint64_t left = blob_.size - offset_;
    const bool last = options_.chunk == 0 || left <= options_.chunk;
    const std::uint64_t size = last ? left : options_.chunk;
    http::Request request;
    request.method = last ? "PUT" : "PATCH";
    request.url = location_;
    if (last)
      request.url += fmt::format("{}digest={}", location_.find('?') == std::string::npos ? '?' : '&', blob_.digest);
    request.headers = {"Content-Type: application/octet-stream"};
    if (size > 0 && (!last || offset_ > 0))
      request.headers.push_back(fmt::format("Content-Range: {}-{}", offset_, offset_ + size - 1));
    std::uint64_t at = offset_;
    if (size > 0) {
      request.read_size = size;
      request.read_body = [&, end = offset_ + size](char* data, std::size_t room) {
        const std::size_t wanted = std::min<std::uint64_t>(room, end - at);
        const std::size_t count = wanted > 0 ? blob_.read(at, data, wanted) : 0;
        if (wanted > 0 && count == 0)
          throw Error(
              fmt::format("{}: the content is shorter than {}; did it change?", what_, counted(blob_.size, "byte")));
        at += count;
        report(at);
        return count;
      };
    }
    const http::Response response = exchange(request, [&] { report(at = offset_); });
    check(response, last);
    if (last) return true;
    locate(response);
    const std::uint64_t there = received(response.header("range"));
    offset_ = response.header("range").empty() || there == 0 ? offset_ + size : std::min(there, blob_.size);
    return false;
  }

  void check(const http::Response& response, bool last) {
    if (response.status / 100 == 2) {
      const std::string_view reported = response.header("docker-content-digest");
      if (last && !reported.empty() && reported != blob_.digest && is_digest(reported) &&
          reported.substr(0, reported.find(':')) == blob_.digest.substr(0, blob_.digest.find(':')))
        throw Error(fmt::format("{}: the registry stored the blob as {}", what_, reported));
      return;
    }
    const RegistryError error = place_.session->error(what_, response, push_scopes(place_), stop_);
    if (error.has_code("DIGEST_INVALID") && !again_) {
      again_ = true;  // retry once: bytes may have been corrupted in transit
      location_.clear();
      lose(what_);
    }
    if (error.has_code("DIGEST_INVALID"))
      throw Error(fmt::format("{}: {}; did the content change during the push?", what_, error.what()));
    if (response.status == 404 || response.status == 416 || error.has_code("BLOB_UPLOAD_INVALID") ||
        error.has_code("BLOB_UPLOAD_UNKNOWN")) {
      if (response.status != 416 && !error.has_code("NAME_UNKNOWN")) location_.clear();
      lose(what_);
    }
    throw error;
  }

  void report(std::uint64_t at) {
    if (progress_ && at != reported_) progress_(static_cast<std::int64_t>(at) - static_cast<std::int64_t>(reported_));
    reported_ = at;
  }

  const Place& place_;
  const Blob& blob_;
  const RegistryOptions& options_;
  const std::stop_token& stop_;
  const Progress& progress_;
  const std::string what_;
  std::string location_;
  std::uint64_t offset_ = 0, reported_ = 0;
  bool unsure_ = false, again_ = false;
};

}  // namespace

Blob file_blob(const std::filesystem::path& file, const std::string& digest) {
  const auto fd = std::make_shared<Fd>(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  const auto fail = [name = file.string()] {
    return Error(fmt::format("cannot read '{}': {}", name, std::strerror(errno)));
  };
  const off_t size = *fd ? ::lseek(fd->get(), 0, SEEK_END) : -1;
  if (size < 0) throw fail();
  const auto read = [fd, fail](std::uint64_t offset, char* data, std::size_t room) -> std::size_t {
    for (;;) {
      const ssize_t count = ::pread(fd->get(), data, room, static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw fail();
      return static_cast<std::size_t>(count);
    }
  };
  return {digest, static_cast<std::uint64_t>(size), read};
}

Blob memory_blob(std::string bytes) {
  const auto kept = std::make_shared<const std::string>(std::move(bytes));
  return {sha256(*kept), kept->size(),
          [kept](std::uint64_t offset, char* data, std::size_t room) { return kept->copy(data, room, offset); }};
}

Pushed Registry::push_blob(const Reference& image, const Blob& blob, const std::vector<std::string>& others,
                           const std::stop_token& stop, const Progress& progress) {
  if (!is_digest(blob.digest))
    throw Error(fmt::format("invalid digest '{}': expected sha256:HEX or sha512:HEX", one_line(blob.digest)));
  const Place place = impl_->own_place(image);
  const std::string what = fmt::format("cannot push {} to image '{}'", blob.digest, image.full());
  if (has_blob(image, blob.digest, stop)) return Pushed::kWasThere;
  Upload upload(place, blob, impl_->options, stop, progress, what);
  for (const std::string& other : others) {
    if (other == image.repository || upload.begun()) continue;
    http::Request request;
    request.method = "POST";
    Scopes scopes = push_scopes(place);
    scopes.push_back(repository_scope(other, "pull"));
    // Without permission to read the other repository, the blob is uploaded.
    const http::Response response =
        impl_->ask(place, request, place.path(fmt::format("/blobs/uploads/?mount={}&from={}", blob.digest, other)),
                   scopes, what, stop, {401, 403, 404});
    if (response.status == 201) return Pushed::kMounted;
    if (response.status == 202) upload.begin_at(response);
  }
  return explained(what, place.session->host(), [&] {
    return upload.run([&] { return !has_blob(image, blob.digest, stop); }) ? Pushed::kUploaded : Pushed::kWasThere;
  });
}

std::string Registry::push_manifest(const Reference& image, const std::string& media_type, const std::string& bytes,
                                    const std::stop_token& stop) {
  const Place place = impl_->own_place(image);
  const std::string what = fmt::format("cannot push image '{}'", image.full()), digest = sha256(bytes);
  if (!image.digest.empty() && image.digest != digest)
    throw Error(fmt::format("{}: the manifest's digest is {}, not the one in the image name", what, digest));
  http::Request request;
  request.method = "PUT";
  request.headers = {"Content-Type: " + media_type};
  request.body = bytes;
  const std::string version = image.tag.empty() ? image.version() : image.tag;
  const http::Response response =
      impl_->ask(place, request, place.path("/manifests/" + version), push_scopes(place), what, stop);
  const std::string_view reported = response.header("docker-content-digest");
  if (!reported.empty() && reported.starts_with("sha256:") && reported != digest)
    throw Error(fmt::format("{}: the registry stored the manifest as {}, but its digest is {}", what,
                            one_line(reported, 160), digest));
  return digest;
}

}  // namespace adaptdl::image
