// Finds the tensors in the result of a forward pass, which may have any type. This is internal to the trainer.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace adaptdl::internal {

// Append the tensors in a forward pass's result to `out`. Return false if there may be more tensors, because a value
// has an unknown type without tensors_of().
bool collect_value(const c10::IValue& value, std::vector<at::Tensor>& out);
template <class T>
bool collect(const T& result, std::vector<at::Tensor>& out) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    out.push_back(result);
  } else if constexpr (std::is_same_v<T, c10::IValue>) {
    return collect_value(result, out);
  } else if constexpr (requires { tensors_of(result); }) {
    for (const at::Tensor& tensor : tensors_of(result)) out.push_back(tensor);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_convertible_v<T, std::string_view>) {
    // Such values contain no tensors.
  } else if constexpr (requires { result.begin(), result.end(); }) {
    bool complete = true;
    for (const auto& each : result) complete = collect(each, out) && complete;
    return complete;
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return std::apply([&](const auto&... each) { return (collect(each, out) & ... & true); }, result);
  } else if constexpr (requires { result.has_value(), *result; }) {
    return !result.has_value() || collect(*result, out);
  } else {
    return false;
  }
  return true;
}

}  // namespace adaptdl::internal
