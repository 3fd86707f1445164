// Wraps a TorchScript module, such as a model pretrained in Python, as a module that AdaptiveDataParallel can train.
//
//   adaptdl::ScriptModule net(torch::jit::load("resnet50.pt"));   // from <torch/script.h>
//   torch::optim::SGD optimizer(net->parameters(), 0.01);
//   adaptdl::AdaptiveDataParallel model(net, optimizer);
//   auto loss = loss_of(model(batch.data).toTensor(), batch.target);
//
// The module shares the script's parameters and buffers, under the same names (`layer1.0.conv1.weight`). To load the
// trained model in Python, save it on rank 0 with net->script().save(PATH). Parameters that do not require a gradient
// stay unchanged. The module starts in the mode in which it was exported. In a module created by torch.jit.script,
// train() and eval() change the mode of dropout and batch normalization; in one created by torch.jit.trace or
// torch.jit.freeze, they do not.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <ostream>
#include <utility>
#include <vector>

namespace adaptdl {

class ScriptModuleImpl : public torch::nn::Module {
 public:
  // Shares the parameters and buffers of `script`, and starts in the mode of `script`.
  explicit ScriptModuleImpl(torch::jit::Module script);

  // Runs the script's forward(). Throws c10::Error, with the location in the script, if it fails or rejects the
  // arguments.
  template <class... Inputs>
  c10::IValue forward(Inputs&&... inputs) {
    return script_.forward(std::vector<c10::IValue>{c10::IValue(std::forward<Inputs>(inputs))...});
  }

  // Returns the script, to save it or to call its other methods.
  torch::jit::Module& script() noexcept { return script_; }

  void train(bool on = true) override;
  void pretty_print(std::ostream& stream) const override;

 private:
  torch::jit::Module script_;
};
TORCH_MODULE(ScriptModule);  // a module holder, like those of LibTorch's own modules

}  // namespace adaptdl
