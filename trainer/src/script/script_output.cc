// Collects the tensors in the result of a TorchScript module.
#include <ATen/core/ivalue.h>

#include <vector>

#include "adaptdl/torch/internal/model_output.h"

namespace adaptdl::internal {

bool collect_value(const c10::IValue& value, std::vector<at::Tensor>& out) {
  bool complete = true;
  if (value.isTensor()) {
    out.push_back(value.toTensor());
  } else if (value.isTuple()) {
    for (const auto& each : value.toTupleRef().elements()) complete = collect_value(each, out) && complete;
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) complete = collect_value(each, out) && complete;
  } else if (value.isGenericDict()) {
    for (const auto& each : value.toGenericDict()) complete = collect_value(each.value(), out) && complete;
  } else if (value.isObject()) {
    for (const auto& each : value.toObjectRef().slots()) complete = collect_value(each, out) && complete;
  } else {
    complete = value.isNone() || value.isScalar() || value.isBool() || value.isString();
  }
  return complete;
}

}  // namespace adaptdl::internal
