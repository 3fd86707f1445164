#include "adaptdl/torch/activation_checkpoint.h"

#include <torch/torch.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "adaptdl/torch/amp.h"
#include "support/forward_guard.h"
#include "support/torch_compat.h"

namespace adaptdl::internal {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A part of a model, with everything that its forward pass depends on besides the inputs.
struct Part : torch::CustomClassHolder {
  Part(std::shared_ptr<torch::nn::Module> part, TensorFunction function, at::DeviceType type)
      : module(std::move(part)),
        forward(std::move(function)),
        device(type),
        autocast(compat::autocast_enabled(type)),
        dtype(compat::autocast_dtype(type)) {}

  std::shared_ptr<torch::nn::Module> module;
  TensorFunction forward;
  at::DeviceType device;
  bool autocast;
  at::ScalarType dtype;
  RngStates generators;
};

// Maps the inputs, followed by the parameters, to the outputs. The parameters are arguments so that they receive their
// gradients in the same way as in any other pass, where AdaptiveDataParallel averages and measures the gradients.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static variable_list forward(AutogradContext* context, at::TensorList tensors, const c10::intrusive_ptr<Part>& part,
                               std::size_t inputs) {
    context->save_for_backward(tensors.vec());
    context->saved_data["part"] = at::IValue::make_capsule(part);
    context->saved_data["inputs"] = static_cast<std::int64_t>(inputs);
    const NoAutocastCache no_cache;
    return part->forward(tensors.slice(0, inputs).vec());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (torch::GradMode::is_enabled())
      throw UsageError(
          "checkpoint_activations does not support second derivatives; with create_graph, call the module directly");
    const auto tensors = context->get_saved_variables();
    const auto capsule = context->saved_data["part"].toCapsule();
    const auto& part = static_cast<const Part&>(*capsule);
    const auto inputs = static_cast<std::size_t>(context->saved_data["inputs"].toInt());
    variable_list used;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      used.push_back(i < inputs ? tensors[i].detach().set_requires_grad(tensors[i].requires_grad()) : tensors[i]);
    const ForwardGuard guard(*part.module);
    part.generators.restore();
    variable_list outputs;
    {
      const at::AutoGradMode enabled(true);
      const Autocast autocast(part.device, part.dtype, part.autocast);
      outputs = part.forward({used.begin(), used.begin() + static_cast<std::ptrdiff_t>(inputs)});
    }
    auto result = gradients_of(outputs, used, gradients);
    result.resize(tensors.size() + 2);  // the other arguments have no gradient
    return result;
  }

 private:
  // Returns the gradients of `tensors`; the gradient is undefined for a tensor that has none.
  static variable_list gradients_of(const variable_list& outputs, const variable_list& tensors,
                                    const variable_list& gradients) {
    variable_list differentiated, of_outputs, needing;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
      differentiated.push_back(outputs[i]);
      of_outputs.push_back(gradients[i]);
    }
    std::ranges::copy_if(tensors, std::back_inserter(needing), [](const auto& tensor) { return tensor.requires_grad(); });
    variable_list result(tensors.size());
    if (differentiated.empty() || needing.empty()) return result;
    const auto found = torch::autograd::grad(differentiated, needing, of_outputs, /*retain_graph=*/false,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t i = 0, next = 0; i < tensors.size(); ++i)
      if (tensors[i].requires_grad()) result[i] = found[next++];
    return result;
  }
};

}  // namespace

std::vector<at::Tensor> recompute_in_backward(std::shared_ptr<torch::nn::Module> module, const TensorFunction& forward,
                                              const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> tensors;
  std::vector<bool> defined;
  for (const auto& input : inputs) {
    defined.push_back(input.defined());
    if (input.defined()) tensors.push_back(input);
  }
  const auto count = tensors.size();
  for (const auto& param : module->parameters()) tensors.push_back(param);
  const bool plain = !torch::GradMode::is_enabled() ||
                     std::ranges::none_of(tensors, [](const auto& tensor) { return tensor.requires_grad(); });
  if (plain) return forward(inputs);
  // Autograd does not accept undefined inputs.
  const auto with_undefined = [forward, defined](const std::vector<at::Tensor>& given) {
    std::vector<at::Tensor> all;
    for (std::size_t i = 0, next = 0; i < defined.size(); ++i) all.push_back(defined[i] ? given[next++] : at::Tensor());
    return forward(all);
  };
  const auto on_gpu = std::ranges::find_if(tensors, [](const auto& tensor) { return tensor.is_cuda(); });
  const auto device = on_gpu == tensors.end() ? at::kCPU : at::kCUDA;
  const auto part = c10::make_intrusive<Part>(std::move(module), with_undefined, device);
  return Recomputed::apply(at::TensorList(tensors), part, count);
}

}  // namespace adaptdl::internal
