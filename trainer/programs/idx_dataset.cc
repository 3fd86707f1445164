#include "idx_dataset.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "adaptdl/error.h"

namespace programs {

namespace {

std::uint32_t read_big_endian(std::istream& file) {
  unsigned char b[4] = {};
  file.read(reinterpret_cast<char*>(b), sizeof b);
  return std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 | b[3];
}

// Reads a file of unsigned bytes with `dims` dimensions.
torch::Tensor read_idx(const std::string& path, std::size_t dims) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw adaptdl::Error(fmt::format("cannot read '{}': --data must be a directory with the four MNIST files", path));
  if (read_big_endian(file) != (0x800 | dims))
    throw adaptdl::Error(fmt::format("'{}' is not an IDX file of bytes in {} dimensions", path, dims));
  std::vector<std::int64_t> shape(dims);
  std::uintmax_t bytes = 1;
  const auto on_disk = std::filesystem::file_size(path);
  for (auto& size : shape) {
    size = read_big_endian(file);
    bytes *= static_cast<std::uintmax_t>(size);
    if (bytes > on_disk) break;
  }
  if (bytes == 0 || bytes != on_disk - 4 * (dims + 1))
    throw adaptdl::Error(fmt::format("'{}' is damaged: its header and its {} bytes do not match", path, on_disk));
  auto data = torch::empty(shape, torch::kByte);
  file.read(static_cast<char*>(data.data_ptr()), static_cast<std::streamsize>(bytes));
  if (!file) throw adaptdl::Error(fmt::format("cannot read all of '{}'", path));
  return data;
}

}  // namespace

IdxDataset::IdxDataset(const std::string& directory, const std::string& part)
    : images_(read_idx(directory + "/" + part + "-images-idx3-ubyte", 3).unsqueeze(1).to(torch::kFloat) / 255),
      labels_(read_idx(directory + "/" + part + "-labels-idx1-ubyte", 1).to(torch::kLong)) {
  if (images_.size(0) != labels_.size(0)) {
    throw adaptdl::Error(
        fmt::format("{}: {} images but {} labels in part '{}'", directory, images_.size(0), labels_.size(0), part));
  }
}

torch::data::Example<> IdxDataset::get(std::size_t index) {
  const auto i = static_cast<std::int64_t>(index);
  return {images_[i], labels_[i]};
}

}  // namespace programs
