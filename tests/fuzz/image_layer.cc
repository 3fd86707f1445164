// Reads any bytes as a layer: they are unpacked into a directory, or refused with a one-line error, and nothing outside
// the directory changes. If the first byte is odd, the tar checksums in the rest are corrected first.
#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "adaptdl/error.h"
#include "image/layer/unpack.h"

namespace fs = std::filesystem;
using namespace adaptdl::image;

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// A temporary directory, in memory if /dev/shm exists. The destructor removes it.
struct Place {
  Place() {
    std::string name = fs::is_directory("/dev/shm") ? "/dev/shm/fuzz-layer-XXXXXX" : "/tmp/fuzz-layer-XXXXXX";
    require(::mkdtemp(name.data()) != nullptr);
    path = name;
    fs::create_directory(path / "outside");
    std::ofstream(path / "outside/file") << "as it was";
  }
  ~Place() { remove_tree(path); }
  fs::path path;
};

// Corrects the checksums of the tar headers, which a fuzzer cannot guess.
void make_checksums_right(std::string& tar) {
  for (std::size_t at = 0; at + 512 <= tar.size(); at += 512) {
    if (tar.compare(at + 257, 5, "ustar") != 0) continue;
    std::fill_n(tar.begin() + static_cast<std::ptrdiff_t>(at) + 148, 8, ' ');
    unsigned sum = 0;
    for (std::size_t i = at; i < at + 512; ++i) sum += static_cast<unsigned char>(tar[i]);
    tar.replace(at + 148, 7, fmt::format("{:06o}", sum) + '\0');
  }
}

std::size_t entries_of(const fs::path& directory) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(directory), fs::directory_iterator()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Place place;
  if (size == 0) return 0;
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) make_checksums_right(bytes);
  std::ofstream(place.path / "layer", std::ios::binary) << bytes;
  UnpackOptions options;
  options.limits.expanded = std::uint64_t{1} << 20;
  options.limits.ratio = 1;
  options.limits.entries = 100;
  try {
    const Unpacked unpacked = unpack_layer(place.path / "layer", "", place.path / "root", options);
    require(unpacked.entries <= 100);
    require(fs::is_directory(fs::symlink_status(place.path / "root")));
    remove_tree(place.path / "root");
  } catch (const adaptdl::Error& error) {
    const std::string_view message = error.what();
    require(message.starts_with("layer layer: "));
    require(std::none_of(message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }));
  }
  require(entries_of(place.path) == 2 && entries_of(place.path / "outside") == 1);
  require(fs::file_size(place.path / "outside/file") == 9 && fs::hard_link_count(place.path / "outside/file") == 1);
  is_archive(place.path / "layer");
  return 0;
}
