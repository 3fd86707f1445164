#include "tensorboard/model_graph.h"

#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "adaptdl/torch/script_module.h"
#include "base/printable.h"
#include "support/forward_guard.h"

namespace adaptdl::internal {

namespace {

namespace jit = torch::jit;

constexpr std::size_t kMaxReason = 300;  // bytes; LibTorch's messages may contain tensors

// Restores the modes (training or evaluation) of a model's modules when destroyed.
class ModesGuard {
 public:
  explicit ModesGuard(const torch::nn::Module& model) {
    for (const auto& module : model.modules()) {
      modes_.emplace_back(module, module->is_training());
      if (auto* const script = dynamic_cast<ScriptModuleImpl*>(module.get())) {
        for (const auto& part : script->script().modules()) {
          if (part.hasattr("training")) script_modes_.emplace_back(part, part.is_training());
        }
      }
    }
  }
  ~ModesGuard() {
    try {
      // Parents come first, because each parent changes the mode of its children.
      for (const auto& [module, training] : modes_) module->train(training);
      for (auto& [module, training] : script_modes_) module.setattr("training", training);
    } catch (const std::exception& error) {
      log::warn(
          fmt::format("add_graph: cannot restore the model's training mode: {}", one_line(error.what(), kMaxReason)));
    }
  }
  ModesGuard(const ModesGuard&) = delete;
  ModesGuard& operator=(const ModesGuard&) = delete;

 private:
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
  std::vector<std::pair<jit::Module, bool>> script_modes_;
};

// A tensor that is known when a trace begins.
struct Known {
  at::Tensor tensor;
  std::string name;  // dotted
  const char* op;
};

std::vector<Known> known_tensors(const torch::nn::Module& model, const std::vector<at::Tensor>& inputs) {
  std::vector<Known> known;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    known.push_back({inputs[i].detach().clone(), inputs.size() == 1 ? "input" : fmt::format("input_{}", i), "Input"});
  std::unordered_set<const void*> seen;  // shared tensors have several names
  const auto add = [&](const auto& tensors, const char* op) {
    for (const auto& entry : tensors) {
      if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
        known.push_back({entry.value(), entry.key(), op});
    }
  };
  add(model.named_parameters(), "Parameter");
  add(model.named_buffers(), "Buffer");
  return known;
}

std::string before_last(const std::string& path, char separator) {
  const auto at = path.rfind(separator);
  return at == std::string::npos ? "" : path.substr(0, at);
}

// Returns the innermost module that contains both modules, as a dotted name. The model itself is "".
std::string common_module(const std::string& a, const std::string& b) {
  const auto inner = a + '.', other = b + '.';
  const auto [end, ignored] = std::mismatch(inner.begin(), inner.end(), other.begin(), other.end());
  return before_last({inner.begin(), end}, '.');
}

// Returns the text of a constant or of a list of constants.
std::optional<std::string> constant_text(const jit::Value& value) {
  if (value.node()->kind() == c10::prim::ListConstruct) {
    std::string text;
    for (const auto* const each : value.node()->inputs()) {
      const auto element = constant_text(*each);
      if (!element) return std::nullopt;
      text += (text.empty() ? "" : ", ") + *element;
    }
    return "[" + text + "]";
  }
  auto constant = jit::toIValue(&value);
  if (!constant || (constant->isTensor() && constant->toTensor().dim() > 0)) return std::nullopt;
  if (constant->isTensor() && constant->toTensor().defined()) constant = jit::IValue(constant->toTensor().item());
  if (constant->isDouble()) return fmt::format("{}", constant->toDouble());
  std::ostringstream text;
  text << *constant;
  return std::move(text).str();
}

std::optional<std::vector<std::int64_t>> shape_of(const jit::Value& value) {
  if (const auto type = value.type()->cast<c10::TensorType>()) {
    if (const auto sizes = type->sizes().concrete_sizes()) return *sizes;
  }
  return std::nullopt;
}

[[noreturn]] void refuse_graph(std::string_view reason) {
  throw UsageError(fmt::format("cannot trace the model for its graph: {}", one_line(reason, kMaxReason)));
}

// Converts a trace into nodes.
class GraphReader {
 public:
  explicit GraphReader(const std::vector<Known>& known) : known_(known) {}

  std::vector<GraphNode> read(const jit::Graph& graph) {
    for (std::size_t i = 0; i < known_.size(); ++i) add_known(known_[i], *graph.inputs()[i]);
    find_modules(graph);
    for (const auto* const node : graph.nodes()) add(*node);
    for (const auto* const output : graph.outputs()) {
      nodes_.push_back({.name = unique("output"),
                        .op = "Output",
                        .inputs = sources_[output],
                        .attributes = {},
                        .output_shapes = {}});
      nodes_.back().output_shapes.push_back(shape_of(*output));
    }
    return std::move(nodes_);
  }

 private:
  enum class Kind { kConstant, kConstruct, kUnpack, kOperator };

  static Kind kind_of(const jit::Node& node) {
    const auto kind = node.kind();
    if (kind == c10::prim::ListConstruct || kind == c10::prim::TupleConstruct) return Kind::kConstruct;
    if (kind == c10::prim::ListUnpack || kind == c10::prim::TupleUnpack) return Kind::kUnpack;
    const bool hidden = kind == c10::prim::Constant && !is_tensor_constant(node);
    return hidden ? Kind::kConstant : Kind::kOperator;
  }

  static bool is_tensor_constant(const jit::Node& node) {
    const auto constant = jit::toIValue(node.output());
    return constant && constant->isTensor() && constant->toTensor().defined() && constant->toTensor().dim() > 0;
  }

  void add_known(const Known& known, const jit::Value& value) {
    const bool is_input = std::string_view(known.op) == "Input";
    if (!is_input) module_of_value_[&value] = before_last(known.name, '.');
    if (!is_input && !value.hasUses()) return;
    auto path = known.name;
    std::replace(path.begin(), path.end(), '.', '/');
    nodes_.push_back({.name = unique(path), .op = known.op, .inputs = {}, .attributes = {}, .output_shapes = {}});
    nodes_.back().output_shapes.emplace_back(known.tensor.sizes().vec());
    sources_[&value] = {nodes_.back().name};
  }

  // Determines the module of each operator.
  void find_modules(const jit::Graph& graph) {
    std::vector<std::pair<const jit::Node*, std::optional<std::string>>> operators;
    for (const auto* const node : graph.nodes()) {
      const auto module = module_by_parameters(*node);
      if (kind_of(*node) == Kind::kOperator) operators.emplace_back(node, module);
    }
    std::optional<std::string> before;
    std::vector<std::string> enclosing(operators.size());
    for (std::size_t i = 0; i < operators.size(); ++i) {
      if (operators[i].second) before = operators[i].second;
      enclosing[i] = before.value_or("");
    }
    std::optional<std::string> after;
    for (auto i = operators.size(); i-- > 0;) {
      const auto& [node, module] = operators[i];
      if (module) after = module;
      module_of_node_[node] = module ? *module : common_module(enclosing[i], after.value_or(""));
    }
  }

  // Returns the innermost module that contains the parameters and buffers among a node's inputs. If the node's outputs
  // depend only on parameters and constants (for example, a transposed weight), also records the module for the
  // outputs.
  std::optional<std::string> module_by_parameters(const jit::Node& node) {
    std::optional<std::string> module;
    bool from_parameters = true;
    for (const auto* const input : node.inputs()) {
      const auto known = module_of_value_.find(input);
      if (known == module_of_value_.end()) {
        from_parameters = from_parameters && constant_text(*input).has_value();
      } else {
        module = module ? common_module(*module, known->second) : known->second;
      }
    }
    if (module && from_parameters) {
      for (const auto* const output : node.outputs()) module_of_value_[output] = *module;
    }
    return module;
  }

  void add(const jit::Node& node) {
    switch (kind_of(node)) {
      case Kind::kConstant:
        break;
      case Kind::kConstruct:
        sources_[node.output()] = sources_of_inputs(node);
        break;
      case Kind::kUnpack:
        unpack(node);
        break;
      case Kind::kOperator:
        add_operator(node);
    }
  }

  std::vector<std::string> sources_of_inputs(const jit::Node& node) {
    std::vector<std::string> sources;
    for (const auto* const input : node.inputs()) {
      const auto& each = sources_[input];
      sources.insert(sources.end(), each.begin(), each.end());
    }
    return sources;
  }

  // The elements come from a constructed list or are the outputs of one operator.
  void unpack(const jit::Node& node) {
    const auto packed = sources_[node.input()];
    const auto outputs = node.outputs();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (packed.size() == outputs.size()) {
        sources_[outputs[i]] = {packed[i]};
      } else if (packed.size() == 1) {
        sources_[outputs[i]] = {i == 0 ? packed[0] : fmt::format("{}:{}", packed[0], i)};
      } else {
        sources_[outputs[i]] = packed;
      }
    }
    const auto producer = node_of_.find(node.input()->node());
    if (producer == node_of_.end()) return;
    auto& shapes = nodes_[producer->second].output_shapes;
    shapes.clear();
    for (const auto* const output : outputs) shapes.push_back(shape_of(*output));
  }

  void add_operator(const jit::Node& node) {
    const std::string op = node.kind().toQualString();
    auto name = op.substr(op.rfind(':') + 1);
    name.erase(0, name.find_first_not_of('_'));
    auto path = module_of_node_.at(&node);
    std::replace(path.begin(), path.end(), '.', '/');
    nodes_.push_back({.name = unique(path.empty() ? name : path + '/' + name),
                      .op = op,
                      .inputs = sources_of_inputs(node),
                      .attributes = attributes_of(node),
                      .output_shapes = {}});
    node_of_[&node] = nodes_.size() - 1;
    const auto outputs = node.outputs();
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      nodes_.back().output_shapes.push_back(shape_of(*outputs[i]));
      sources_[outputs[i]] = {i == 0 ? nodes_.back().name : fmt::format("{}:{}", nodes_.back().name, i)};
    }
  }

  // Returns the constant arguments of an operator, such as its stride.
  static std::map<std::string, std::string> attributes_of(const jit::Node& node) {
    std::map<std::string, std::string> attributes;
    const auto* const schema = node.maybeSchema();
    if (schema == nullptr) return attributes;
    for (std::size_t i = 0; i < node.inputs().size() && i < schema->arguments().size(); ++i) {
      const auto text = constant_text(*node.inputs()[i]);
      if (text && *text != "None") attributes.emplace(schema->arguments()[i].name(), *text);
    }
    return attributes;
  }

  std::string unique(const std::string& name) {
    auto candidate = name;
    for (int& i = taken_[name]; !names_.insert(candidate).second;) candidate = fmt::format("{}_{}", name, ++i);
    return candidate;
  }

  const std::vector<Known>& known_;
  std::vector<GraphNode> nodes_;
  std::set<std::string> names_;
  std::unordered_map<std::string, int> taken_;                               // the last suffix given to a name
  std::unordered_map<const jit::Value*, std::vector<std::string>> sources_;  // in the form of GraphNode::inputs
  std::unordered_map<const jit::Value*, std::string> module_of_value_;
  std::unordered_map<const jit::Node*, std::string> module_of_node_;
  std::unordered_map<const jit::Node*, std::size_t> node_of_;  // indices into nodes_
};

}  // namespace

std::vector<GraphNode> trace_model(
    torch::nn::Module& model, const std::vector<at::Tensor>& inputs,
    const std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>& forward) {
  const c10::NoGradGuard no_grad;
  const ForwardGuard forward_guard(model);
  const ModesGuard modes(model);
  model.eval();
  const NoAutocastCache no_cache;
  const auto known = known_tensors(model, inputs);
  jit::Stack values;
  for (const auto& each : known) values.emplace_back(each.tensor);
  const auto traced = [&](const jit::Stack& stack) {
    const jit::tracer::NoWarn no_warn;
    std::vector<at::Tensor> arguments;
    for (std::size_t i = 0; i < inputs.size(); ++i) arguments.push_back(stack[i].toTensor());
    jit::Stack outputs;
    for (const auto& tensor : forward(arguments)) {
      // A tensor that does not depend on traced tensors has no value.
      if (tensor.defined() && jit::tracer::getTracingState()->hasValue(tensor)) outputs.emplace_back(tensor);
    }
    return outputs;
  };
  try {
    const auto trace = jit::tracer::trace(values, traced, [](const at::Tensor&) { return std::string(); });
    return GraphReader(known).read(*trace.first->graph);
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    refuse_graph(error.what_without_backtrace());
  } catch (const std::runtime_error& error) {
    refuse_graph(error.what());
  }
}

}  // namespace adaptdl::internal
