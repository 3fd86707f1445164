#include "cifar_dataset.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <utility>
#include <vector>

#include "adaptdl/error.h"
#include "adaptdl/torch/sample_generator.h"

namespace programs {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kSide = CifarDataset::kSide, kPixels = kSide * kSide, kBytes = 3 * kPixels;
constexpr std::int64_t kShift = 4;  // largest shift in pixels

std::vector<fs::path> files_of(const std::string& directory, const std::string& part) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const auto name = entry.path().filename().string();
    const bool wanted =
        part == "train" ? name.starts_with("data_batch_") && name.ends_with(".bin") : name == part + "_batch.bin";
    if (wanted) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    throw adaptdl::UsageError(
        fmt::format("no {} in '{}': --data must be a directory with CIFAR-10's files in the binary format",
                    part == "train" ? "data_batch_*.bin" : part + "_batch.bin", directory));
  }
  return files;
}

// Returns a file's records as bytes, [count, 3073].
torch::Tensor read_records(const fs::path& path) {
  const auto size = static_cast<std::int64_t>(fs::file_size(path));
  if (size == 0 || size % (kBytes + 1) != 0)
    throw adaptdl::Error(
        fmt::format("'{}' is damaged: its size must be a positive multiple of {} bytes, got {}", path.string(),
                    kBytes + 1, size));
  auto records = torch::empty({size / (kBytes + 1), kBytes + 1}, torch::kByte);
  std::ifstream file(path, std::ios::binary);
  file.read(static_cast<char*>(records.data_ptr()), size);
  if (!file) throw adaptdl::Error(fmt::format("cannot read all of '{}'", path.string()));
  if (records.select(1, 0).max().item<std::int64_t>() >= CifarDataset::kClasses)
    throw adaptdl::Error(fmt::format("'{}' is damaged: it has a label above 9", path.string()));
  return records;
}

// Copies an image, shifted and, if `mirrored`, mirrored. Pixels beyond the edges of the image are black. `table`
// normalizes each byte of a plane.
void transform(const std::uint8_t* image, std::int64_t down, std::int64_t right, bool mirrored,
               const std::array<std::array<float, 256>, 3>& table, float* out) {
  for (std::int64_t channel = 0; channel < 3; ++channel) {
    const auto& normalized = table[static_cast<std::size_t>(channel)];
    for (std::int64_t y = 0; y < kSide; ++y) {
      for (std::int64_t x = 0; x < kSide; ++x) {
        const auto from_y = y + down, from_x = (mirrored ? kSide - 1 - x : x) + right;
        const bool inside = from_y >= 0 && from_y < kSide && from_x >= 0 && from_x < kSide;
        *out++ = normalized[inside ? image[channel * kPixels + from_y * kSide + from_x] : 0];
      }
    }
  }
}

const std::array<std::array<float, 256>, 3>& normalization() {
  static const auto table = [] {
    constexpr std::array<float, 3> kMean = {0.4914f, 0.4822f, 0.4465f}, kDeviation = {0.247f, 0.2435f, 0.2616f};
    std::array<std::array<float, 256>, 3> values{};
    for (std::size_t channel = 0; channel < 3; ++channel) {
      for (std::size_t byte = 0; byte < 256; ++byte)
        values[channel][byte] = (static_cast<float>(byte) / 255 - kMean[channel]) / kDeviation[channel];
    }
    return values;
  }();
  return table;
}

// Returns whether the shape of class `label` covers (u, v), a point relative to the shape's center in units of the
// shape's size.
bool covers(std::int64_t label, double u, double v) {
  const auto stripe = [](double t) { return std::fmod(t + 100, 0.7) < 0.35; };
  const double radius = std::hypot(u, v);
  switch (label) {
    case 0:
      return radius < 1;  // disk
    case 1:
      return radius < 1 && radius > 0.6;  // ring
    case 2:
      return std::max(std::abs(u), std::abs(v)) < 0.85;  // square
    case 3:
      return std::max(std::abs(u), std::abs(v)) < 1 && std::min(std::abs(u), std::abs(v)) < 0.3;  // cross
    case 4:
      return v > -0.6 && v < 0.9 - 1.7 * std::abs(u);  // triangle
    case 5:
      return radius < 1.2 && stripe(u);  // striped disk
    case 6:
      return radius < 1.2 && stripe(u) != stripe(v);  // checkered disk
    case 7:
      return radius < 1.1 && stripe(radius);  // rings
    case 8:
      return std::abs(u) + std::abs(v) < 1.1 && std::abs(u) + std::abs(v) > 0.6;  // frame
    default:
      return radius < 0.45 + 0.5 * std::abs(std::cos(2.5 * std::atan2(v, u)));  // star
  }
}

// Draws numbers that are the same on every platform, unlike the standard library's distributions.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  double uniform(double low, double high) {
    return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
  }
  // Returns an approximately normal number with standard deviation 1. The sum of four bytes from one draw is good
  // enough for noise.
  double noise() {
    if (left_ == 0) bits_ = engine_(), left_ = 2;
    const auto bits = static_cast<std::uint32_t>(bits_ >> (32 * --left_));
    const auto sum = (bits & 0xff) + (bits >> 8 & 0xff) + (bits >> 16 & 0xff) + (bits >> 24);
    return (static_cast<double>(sum) - 510) / 147.8;
  }

 private:
  std::mt19937_64 engine_;
  std::uint64_t bits_ = 0;
  int left_ = 0;
};

void draw(std::int64_t label, Random& random, std::uint8_t* image) {
  constexpr double kNoise = 30, kTilt = 0.5;  // standard deviation in levels; largest angle in radians
  const double size = random.uniform(6, 12), angle = random.uniform(-kTilt, kTilt);
  const double x0 = random.uniform(10, 22), y0 = random.uniform(10, 22);
  std::array<double, 3> back{}, front{};
  double contrast = 0;
  while (contrast < 100) {  // in levels, summed over the three colors
    contrast = 0;
    for (std::size_t c = 0; c < 3; ++c) {
      back[c] = random.uniform(20, 235), front[c] = random.uniform(20, 235);
      contrast += std::abs(back[c] - front[c]);
    }
  }
  const double cosine = std::cos(angle) / size, sine = std::sin(angle) / size;
  for (std::int64_t pixel = 0; pixel < kPixels; ++pixel) {
    const double x = static_cast<double>(pixel % kSide) - x0, y = static_cast<double>(pixel / kSide) - y0;
    const auto& colour = covers(label, x * cosine - y * sine, x * sine + y * cosine) ? front : back;
    for (std::int64_t c = 0; c < 3; ++c) {
      const double level = colour[static_cast<std::size_t>(c)] + kNoise * random.noise();
      image[c * kPixels + pixel] = static_cast<std::uint8_t>(std::clamp(level, 0.0, 255.0));
    }
  }
}

}  // namespace

CifarDataset::CifarDataset(torch::Tensor images, torch::Tensor labels)
    : images_(std::move(images)), labels_(std::move(labels)) {}

CifarDataset CifarDataset::read(const std::string& directory, const std::string& part) {
  std::vector<torch::Tensor> files;
  for (const auto& path : files_of(directory, part)) files.push_back(read_records(path));
  const auto records = torch::cat(files);
  return {records.slice(1, 1).contiguous().view({-1, 3, kSide, kSide}), records.select(1, 0).to(torch::kLong)};
}

CifarDataset CifarDataset::generate(std::size_t samples, std::uint64_t seed) {
  const auto count = static_cast<std::int64_t>(samples);
  auto images = torch::empty({count, 3, kSide, kSide}, torch::kByte);
  Random random(seed);
  for (std::int64_t i = 0; i < count; ++i) draw(i % kClasses, random, images.data_ptr<std::uint8_t>() + i * kBytes);
  return {images, torch::arange(count).remainder(kClasses)};
}

torch::data::Example<> CifarDataset::get_batch(c10::ArrayRef<std::size_t> indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  auto data = torch::empty({count, 3, kSide, kSide}), target = torch::empty({count}, torch::kLong);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = indices[static_cast<std::size_t>(i)];
    std::int64_t down = 0, right = 0;
    bool mirrored = false;
    if (augment_) {
      const auto drawn = torch::randint(2 * (2 * kShift + 1), {2}, adaptdl::sample_generator(index), torch::kLong);
      down = drawn[0].item<std::int64_t>() / 2 - kShift;
      right = drawn[1].item<std::int64_t>() / 2 - kShift;
      mirrored = drawn[0].item<std::int64_t>() % 2 == 1;
    }
    const auto* const image = images_.data_ptr<std::uint8_t>() + static_cast<std::int64_t>(index) * kBytes;
    transform(image, down, right, mirrored, normalization(), data.data_ptr<float>() + i * kBytes);
    target.data_ptr<std::int64_t>()[i] = labels_.data_ptr<std::int64_t>()[index];
  }
  return {data, target};
}

}  // namespace programs
