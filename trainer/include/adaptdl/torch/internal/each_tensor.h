// Visits the tensors in a value of any type. This is internal to the data loaders and SummaryWriter.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace adaptdl::internal {

// Whether each_tensor's `other` accepts values of this type.
template <class Other, class T>
concept Takes = requires(const Other& other, T& value) {
  other(value);
};

// Accepts no values.
struct NoOther {};

// Calls `use` with each tensor in `value`, to read or replace the tensor. Tensors are found in LibTorch's examples,
// containers, tuples, optionals and IValues. Values of types that `other` accepts are passed to `other` instead.
// Everything else is left unchanged.
template <class T, class Use, class Other = NoOther>
void each_tensor(T&& value, const Use& use, const Other& other = {}) {
  using Value = std::remove_cvref_t<T>;
  if constexpr (std::is_const_v<std::remove_reference_t<T>>) {
    // Constant values, such as the keys of a map, cannot be changed.
  } else if constexpr (std::is_same_v<Value, at::Tensor>) {
    use(value);
  } else if constexpr (Takes<Other, Value>) {
    other(value);
  } else if constexpr (std::is_same_v<Value, c10::IValue>) {
    const auto all = [&](auto elements) {
      for (auto& each : elements) internal::each_tensor(each, use, other);
      return elements;
    };
    if (value.isTensor()) {
      auto tensor = value.toTensor();
      use(tensor);
      value = tensor;
    } else if (value.isTensorList()) {
      value = all(value.toTensorVector());
    } else if (value.isTuple()) {
      value = c10::ivalue::Tuple::create(all(std::vector<c10::IValue>(value.toTupleRef().elements())));
    }
  } else if constexpr (requires { value.data.defined(); }) {
    internal::each_tensor(value.data, use, other);
    if constexpr (requires { value.target; }) internal::each_tensor(value.target, use, other);
  } else if constexpr (requires { value.data, value.target; }) {
    internal::each_tensor(value.data, use, other);
    internal::each_tensor(value.target, use, other);
  } else if constexpr (requires { std::tuple_size<Value>::value; }) {
    std::apply([&](auto&... each) { (internal::each_tensor(each, use, other), ...); }, value);
  } else if constexpr (requires { value.begin(), value.end(); }) {
    // A container of elements of its own type, such as JSON, is skipped.
    if constexpr (!std::is_same_v<std::remove_cvref_t<decltype(*value.begin())>, Value>) {
      for (auto&& each : value) internal::each_tensor(each, use, other);
    }
  } else if constexpr (requires { value.has_value(), *value; }) {
    if (value.has_value()) internal::each_tensor(*value, use, other);
  }
}

}  // namespace adaptdl::internal
