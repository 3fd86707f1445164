// Encodes images as PNG.
#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <png.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "tensorboard/summary_writer_impl.h"

namespace adaptdl {

namespace {

constexpr std::int64_t kGridColumns = 8;                        // same as in torch.utils.tensorboard
constexpr std::int64_t kMaxImageBytes = std::int64_t{1} << 30;  // libpng counts bytes of pixels in 32 bits

bool has_channels(const at::Tensor& tensor) {
  const auto channels = tensor.size(-3);
  return channels == 1 || channels == 3 || channels == 4;
}

// Throws UsageError unless `tensor` is a valid image. `has_shape`: whether the tensor, if it is defined, has the
// expected shape.
void check(const std::string& tag, const at::Tensor& tensor, bool has_shape, const char* expected) {
  const auto has_type = [&] { return tensor.scalar_type() == at::kByte || at::isFloatingType(tensor.scalar_type()); };
  if (!tensor.defined() || tensor.numel() == 0 || !has_shape || !has_type()) {
    throw UsageError(fmt::format(
        "invalid image '{}': expected uint8 or floating point {}, got {}", tag, expected,
        tensor.defined() ? fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "))
                         : "an undefined tensor"));
  }
  if (tensor.numel() > kMaxImageBytes) {
    throw UsageError(fmt::format("invalid image '{}': it must have at most {} bytes of pixels, got {}", tag,
                                 kMaxImageBytes, tensor.numel()));
  }
}

// Converts one or more images of uint8 or floating-point numbers to bytes.
at::Tensor bytes_of(const at::Tensor& pixels) {
  if (pixels.scalar_type() == at::kByte) return pixels;
  return pixels.to(at::kFloat).nan_to_num(0).clamp(0, 1).mul(255).round().to(at::kByte);
}

// Arranges NCHW images as one HWC image, row by row from the top left. Cells without an image are 0.
at::Tensor grid_of(const at::Tensor& images) {
  const auto number = images.size(0), channels = images.size(1), height = images.size(2), width = images.size(3);
  const auto columns = std::min(number, kGridColumns), rows = (number + columns - 1) / columns;
  const auto cells = at::zeros({rows * columns, channels, height, width}, images.options());
  cells.narrow(0, 0, number).copy_(images);
  return cells.view({rows, columns, channels, height, width})
      .permute({0, 3, 1, 4, 2})
      .reshape({rows * height, columns * width, channels});
}

// Encodes NCHW images of bytes as one PNG.
internal::Image encode(const std::string& tag, const at::Tensor& images) {
  const auto pixels = grid_of(images).cpu().contiguous();
  internal::Image image{.height = pixels.size(0), .width = pixels.size(1), .channels = pixels.size(2), .png = {}};
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.width);
  png.height = static_cast<png_uint_32>(image.height);
  png.format = image.channels == 1 ? PNG_FORMAT_GRAY : image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  image.png.resize(size);
  if (png_image_write_to_memory(&png, image.png.data(), &size, 0, pixels.data_ptr(), 0, nullptr) == 0)
    throw UsageError(fmt::format("cannot encode image '{}' of {} x {} pixels: {}; log a smaller one", tag, image.width,
                                 image.height, png.message));
  image.png.resize(size);
  return image;
}

}  // namespace

void SummaryWriter::add_image(std::string_view tag, const at::Tensor& image, std::int64_t step) {
  impl_->log(tag, step, [&](const std::string& name) {
    const auto dimensions = image.defined() ? image.dim() : 0;
    check(name, image, dimensions == 2 || (dimensions == 3 && has_channels(image)),
          "[height, width], or [1, 3 or 4, height, width]");
    const c10::NoGradGuard no_grad;
    const auto bytes = bytes_of(image.detach());
    const auto channels = dimensions == 2 ? bytes.unsqueeze(0) : bytes;
    return internal::image_event(name, encode(name, channels.unsqueeze(0)), step);
  });
}

void SummaryWriter::add_images(std::string_view tag, const at::Tensor& images, std::int64_t step) {
  impl_->log(tag, step, [&](const std::string& name) {
    check(name, images, images.defined() && images.dim() == 4 && has_channels(images),
          "[number, 1, 3 or 4, height, width]");
    const c10::NoGradGuard no_grad;
    return internal::image_event(name, encode(name, bytes_of(images.detach())), step);
  });
}

}  // namespace adaptdl
