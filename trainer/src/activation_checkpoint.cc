#include "adaptdl/torch/activation_checkpoint.h"

#include <torch/torch.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "adaptdl/torch/amp.h"
#include "torch_compat.h"

namespace adaptdl::internal {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The state of the default generators that a forward pass on `device` draws from.
class RandomState {
 public:
  explicit RandomState(at::Device device) {
    take(at::globalContext().defaultGenerator(at::kCPU));
    if (device.is_cuda()) take(at::globalContext().defaultGenerator(device));
  }
  void restore() const {
    for (auto [generator, state] : states_) {
      const std::lock_guard lock(generator.mutex());
      generator.set_state(state);
    }
  }

 private:
  void take(at::Generator generator) {
    const std::lock_guard lock(generator.mutex());
    states_.emplace_back(generator, generator.get_state());
  }
  std::vector<std::pair<at::Generator, at::Tensor>> states_;
};

// Weights that are cast without gradients must not be taken from the cache by a pass that needs them.
class NoAutocastCache {
 public:
  NoAutocastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  const bool before_ = at::autocast::is_autocast_cache_enabled();
};

// A part of a model, and what its forward pass depended on besides its inputs.
struct Part : torch::CustomClassHolder {
  Part(std::shared_ptr<torch::nn::Module> part, TensorFunction function, at::Device where)
      : module(std::move(part)),
        forward(std::move(function)),
        device(where),
        autocast(compat::autocast_enabled(where.type())),
        dtype(compat::autocast_dtype(where.type())),
        random(where) {}

  std::shared_ptr<torch::nn::Module> module;
  TensorFunction forward;
  at::Device device;
  bool autocast;
  at::ScalarType dtype;
  RandomState random;
};

// Inputs and then parameters -> outputs. The parameters are arguments so that they get their gradients as in any other
// pass, where AdaptiveDataParallel averages and measures them.
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
    const auto tensors = context->get_saved_variables();
    const auto capsule = context->saved_data["part"].toCapsule();
    const auto& part = static_cast<const Part&>(*capsule);
    const auto inputs = static_cast<std::size_t>(context->saved_data["inputs"].toInt());
    variable_list used;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      used.push_back(i < inputs ? tensors[i].detach().set_requires_grad(tensors[i].requires_grad()) : tensors[i]);
    const RandomState now(part.device);
    const auto buffers = part.module->buffers();
    std::vector<at::Tensor> before;
    for (const auto& buffer : buffers) before.push_back(buffer.clone());
    part.random.restore();
    variable_list outputs;
    {
      const at::AutoGradMode enabled(true);
      std::optional<Autocast> autocast;
      if (part.autocast) autocast.emplace(part.device.type(), part.dtype);
      outputs = part.forward({used.begin(), used.begin() + static_cast<std::ptrdiff_t>(inputs)});
    }
    now.restore();
    auto result = gradients_of(outputs, used, gradients);
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(before[i]);
    result.resize(tensors.size() + 2);  // none for the other arguments
    return result;
  }

 private:
  // Of `tensors`, undefined where there is none.
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

std::vector<at::Tensor> recompute_in_backward(std::shared_ptr<torch::nn::Module> module, TensorFunction forward,
                                              const std::vector<at::Tensor>& inputs) {
  auto tensors = inputs;
  for (const auto& param : module->parameters()) tensors.push_back(param);
  const bool plain = !torch::GradMode::is_enabled() ||
                     std::ranges::none_of(tensors, [](const auto& tensor) { return tensor.requires_grad(); });
  if (plain) return forward(inputs);
  const auto device = tensors[0].device();
  const auto part = c10::make_intrusive<Part>(std::move(module), std::move(forward), device);
  return Recomputed::apply(at::TensorList(tensors), part, inputs.size());
}

}  // namespace adaptdl::internal
