#include "adaptdl/torch/script_module.h"

#include <memory>
#include <unordered_set>

namespace adaptdl {

namespace {

// Registers the tensors of `script` in `module`, and creates a module without forward() for each submodule. A tensor
// that several submodules share is registered only in the first of them.
void mirror(const torch::jit::Module& script, torch::nn::Module& module, std::unordered_set<const void*>& known) {
  const auto is_new = [&](const at::Tensor& tensor) { return known.insert(tensor.unsafeGetTensorImpl()).second; };
  for (const auto& parameter : script.named_parameters(/*recurse=*/false)) {
    if (is_new(parameter.value))
      module.register_parameter(parameter.name, parameter.value, parameter.value.requires_grad());
  }
  for (const auto& buffer : script.named_buffers(/*recurse=*/false)) {
    if (is_new(buffer.value)) module.register_buffer(buffer.name, buffer.value);
  }
  for (const auto& child : script.named_children())
    mirror(child.value, *module.register_module(child.name, std::make_shared<torch::nn::Module>(child.name)), known);
}

}  // namespace

ScriptModuleImpl::ScriptModuleImpl(torch::jit::Module script) : script_(std::move(script)) {
  std::unordered_set<const void*> known;
  mirror(script_, *this, known);
  train(script_.is_training());
}

void ScriptModuleImpl::train(bool on) {
  Module::train(on);
  script_.train(on);
}

void ScriptModuleImpl::pretty_print(std::ostream& stream) const {
  stream << "adaptdl::ScriptModule(" << script_.type()->name()->qualifiedName() << ')';
}

}  // namespace adaptdl
