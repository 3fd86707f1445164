#include "support/tensor_io.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>
#include <memory>
#include <utility>

namespace adaptdl {

namespace {

using checkpoint::CheckpointError;

constexpr std::array<std::pair<at::ScalarType, const char*>, 10> kTypes{{{at::kBool, "BOOL"},
                                                                         {at::kByte, "U8"},
                                                                         {at::kChar, "I8"},
                                                                         {at::kShort, "I16"},
                                                                         {at::kHalf, "F16"},
                                                                         {at::kBFloat16, "BF16"},
                                                                         {at::kInt, "I32"},
                                                                         {at::kFloat, "F32"},
                                                                         {at::kDouble, "F64"},
                                                                         {at::kLong, "I64"}}};

at::ScalarType scalar_type(const checkpoint::Reader& reader, const checkpoint::TensorInfo& info) {
  for (const auto& [type, name] : kTypes) {
    if (info.dtype == name) return type;
  }
  throw CheckpointError(fmt::format("{}: tensor '{}' has type {}, which LibTorch does not support", reader.describe(),
                                    info.name, info.dtype));
}

const checkpoint::TensorInfo& find(const checkpoint::Reader& reader, const std::string& name) {
  if (const auto* info = reader.find(name)) return *info;
  throw CheckpointError(
      fmt::format("{} has no tensor '{}': the model or its optimizer has changed; undo the change, or start with "
                  "another checkpoint directory",
                  reader.describe(), name));
}

}  // namespace

std::string dtype_name(const at::Tensor& tensor) {
  for (const auto& [type, name] : kTypes) {
    if (tensor.scalar_type() == type) return name;
  }
  throw CheckpointError(fmt::format("a tensor of type {} cannot be saved", at::toString(tensor.scalar_type())));
}

void save_tensor(checkpoint::Writer& writer, const std::string& name, const at::Tensor& tensor) {
  checkpoint::TensorInfo info{name, dtype_name(tensor), tensor.sizes().vec()};
  if (tensor.is_cpu() && !tensor.is_sparse() && tensor.is_contiguous()) {
    writer.tensor(std::move(info), std::span(static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()));
    return;
  }
  // The copy exists from the first chunk to the last, so that there is never more than one copy at a time.
  auto staged = std::make_shared<at::Tensor>();
  writer.tensor(std::move(info), [tensor, staged](std::size_t offset, std::span<std::byte> out) {
    if (offset == 0) *staged = (tensor.is_sparse() ? tensor.to_dense() : tensor.detach()).contiguous().cpu();
    std::memcpy(out.data(), static_cast<const std::byte*>(staged->data_ptr()) + offset, out.size());
    if (offset + out.size() == staged->nbytes()) staged->reset();
  });
}

void check_tensor(const checkpoint::Reader& reader, const std::string& name, const at::Tensor& tensor) {
  const auto& info = find(reader, name);
  if (info.shape != tensor.sizes().vec() || info.dtype != dtype_name(tensor)) {
    throw CheckpointError(fmt::format(
        "{}: '{}' is {} [{}] in the checkpoint and {} [{}] in this program: the model has changed; undo the "
        "change, or start with another checkpoint directory",
        reader.describe(), name, info.dtype, fmt::join(info.shape, ", "), dtype_name(tensor),
        fmt::join(tensor.sizes(), ", ")));
  }
}

void load_tensor(const checkpoint::Reader& reader, const std::string& name, at::Tensor tensor) {
  at::NoGradGuard no_grad;
  const bool direct = tensor.is_cpu() && tensor.is_contiguous();
  const at::Tensor host = direct ? tensor : at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()));
  reader.tensor(name, std::span(static_cast<std::byte*>(host.data_ptr()), host.nbytes()));
  if (!direct) tensor.copy_(host);
}

at::Tensor load_new_tensor(const checkpoint::Reader& reader, const std::string& name, const at::Tensor& like) {
  const auto& info = find(reader, name);
  auto tensor = at::empty(info.shape, like.options().dtype(scalar_type(reader, info)).requires_grad(false));
  load_tensor(reader, name, tensor);
  return tensor;
}

}  // namespace adaptdl
