// Moves the tensors of a batch to page-locked memory. Part of the data loaders; no public interface.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <type_traits>

namespace adaptdl::internal {

// `tensor` in page-locked memory if it is on the CPU and LibTorch sees a GPU, else as it is.
at::Tensor pinned(const at::Tensor& tensor);

// Looks for tensors in LibTorch's examples, containers, tuples and optionals, and calls pin_memory(Batch&) where that is
// defined in the namespace of the batch. Values of other types are left as they are.
template <class T>
void pin(T& value) {
  if constexpr (std::is_const_v<T>) {
    // The key of a map.
  } else if constexpr (std::is_same_v<T, at::Tensor>) {
    value = pinned(value);
  } else if constexpr (requires { pin_memory(value); }) {
    pin_memory(value);
  } else if constexpr (requires { value.data, value.target; }) {
    pin(value.data);
    pin(value.target);
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    std::apply([](auto&... each) { (pin(each), ...); }, value);
  } else if constexpr (requires { value.begin(), value.end(); }) {
    for (auto& each : value) pin(each);
  } else if constexpr (requires { value.has_value(), *value; }) {
    if (value.has_value()) pin(*value);
  }
}

}  // namespace adaptdl::internal
