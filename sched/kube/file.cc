#include "kube/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "adaptdl/error.h"
#include "local/fd.h"

namespace adaptdl::kube {
namespace {

constexpr std::size_t kLargestFile = std::size_t{8} << 20;
constexpr int kPipePatience = 5000;  // ms

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view what, std::string_view why) {
  throw Error(fmt::format("cannot read {}, {}: {}", file.string(), what, why));
}

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

std::optional<std::string> read_if_there(const std::filesystem::path& file, std::string_view what) {
  // A pipe may do, but one that nobody writes to must not hold anything up.
  const sched::Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    fail(file, what, std::strerror(errno));
  }
  std::string text;
  char buffer[64 << 10];
  for (;;) {
    const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    pollfd readable{fd.get(), POLLIN, 0};
    if (count < 0 && errno == EAGAIN && ::poll(&readable, 1, kPipePatience) > 0) continue;
    if (count < 0) fail(file, what, std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kLargestFile) fail(file, what, fmt::format("it is over {} MiB", kLargestFile >> 20));
  }
}

std::string read_file(const std::filesystem::path& file, std::string_view what) {
  std::optional<std::string> text = read_if_there(file, what);
  if (!text) fail(file, what, std::strerror(ENOENT));
  return *std::move(text);
}

std::optional<std::string> decode_base64(std::string_view text) {
  std::string packed;
  std::copy_if(text.begin(), text.end(), std::back_inserter(packed), [](char c) { return !is_space(c); });
  if (packed.size() % 4 != 0) return {};
  const std::size_t end = packed.find_last_not_of('=') + 1;
  const std::size_t padding = packed.size() - end;
  const bool plain = std::all_of(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(end), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
  });
  if (padding > 2 || !plain) return {};
  std::string bytes(packed.size() / 4 * 3, '\0');
  const int count =
      ::EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                        reinterpret_cast<const unsigned char*>(packed.data()), static_cast<int>(packed.size()));
  if (count < 0) return {};
  bytes.resize(static_cast<std::size_t>(count) - padding);
  return bytes;
}

std::string encode_base64(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // and a final zero
  const int count =
      ::EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
  text.resize(static_cast<std::size_t>(count));
  return text;
}

}  // namespace adaptdl::kube
