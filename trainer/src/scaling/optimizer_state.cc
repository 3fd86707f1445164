#include "scaling/optimizer_state.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "adaptdl/torch/adadelta.h"
#include "adaptdl/torch/scaling_rules.h"
#include "base/counted.h"
#include "support/tensor_io.h"
#include "support/torch_compat.h"

namespace adaptdl {

namespace {

using checkpoint::CheckpointError;
using nlohmann::json;
namespace optim = torch::optim;

constexpr const char* kOptimizerSection = "optimizer";
constexpr const char* kArchive = "optimizer.pt";

// Visits the fields of a type, under the names that they have in Python's state_dict: `visit` receives each field's
// name and a reference to it.
template <class Visit>
void fields(optim::SGDOptions& o, Visit visit) {
  visit("lr", o.lr()), visit("momentum", o.momentum()), visit("dampening", o.dampening());
  visit("weight_decay", o.weight_decay()), visit("nesterov", o.nesterov());
}
template <class Visit>
void fields(optim::SGDParamState& s, Visit visit) {
  visit("momentum_buffer", s.momentum_buffer());
}
template <class Options, class Visit>
void adam_options(Options& o, Visit visit) {
  visit("lr", o.lr()), visit("beta1", std::get<0>(o.betas())), visit("beta2", std::get<1>(o.betas()));
  visit("eps", o.eps()), visit("weight_decay", o.weight_decay()), visit("amsgrad", o.amsgrad());
}
template <class State, class Visit>
void adam_state(State& s, Visit visit) {
  visit("step", s.step()), visit("exp_avg", s.exp_avg());
  visit("exp_avg_sq", s.exp_avg_sq()), visit("max_exp_avg_sq", s.max_exp_avg_sq());
}
template <class Visit>
void fields(optim::AdamOptions& o, Visit visit) {
  adam_options(o, visit);
}
template <class Visit>
void fields(optim::AdamWOptions& o, Visit visit) {
  adam_options(o, visit);
}
template <class Visit>
void fields(optim::AdamParamState& s, Visit visit) {
  adam_state(s, visit);
}
template <class Visit>
void fields(optim::AdamWParamState& s, Visit visit) {
  adam_state(s, visit);
}
template <class Visit>
void fields(optim::RMSpropOptions& o, Visit visit) {
  visit("lr", o.lr()), visit("alpha", o.alpha()), visit("eps", o.eps()), visit("weight_decay", o.weight_decay());
  visit("momentum", o.momentum()), visit("centered", o.centered());
}
template <class Visit>
void fields(optim::RMSpropParamState& s, Visit visit) {
  visit("step", s.step()), visit("square_avg", s.square_avg());
  visit("momentum_buffer", s.momentum_buffer()), visit("grad_avg", s.grad_avg());
}
template <class Visit>
void fields(optim::AdagradOptions& o, Visit visit) {
  visit("lr", o.lr()), visit("lr_decay", o.lr_decay()), visit("weight_decay", o.weight_decay());
  visit("initial_accumulator_value", o.initial_accumulator_value()), visit("eps", o.eps());
}
template <class Visit>
void fields(optim::AdagradParamState& s, Visit visit) {
  visit("step", s.step()), visit("sum", s.sum());
}
template <class Visit>
void fields(AdadeltaOptions& o, Visit visit) {
  visit("lr", o.lr()), visit("rho", o.rho()), visit("eps", o.eps()), visit("weight_decay", o.weight_decay());
}
template <class Visit>
void fields(AdadeltaParamState& s, Visit visit) {
  visit("step", s.step()), visit("square_avg", s.square_avg()), visit("acc_delta", s.acc_delta());
}

// Calls `use.operator()<Options, ParamState>(name)` for the first known type for which
// `matches.operator()<Optimizer>()` is true. Returns false if there is none.
template <class Matches, class Use>
bool with_first(Matches matches, Use use) {
  if (matches.template operator()<optim::SGD>())
    return use.template operator()<optim::SGDOptions, optim::SGDParamState>("SGD"), true;
  if (matches.template operator()<optim::AdamW>())
    return use.template operator()<optim::AdamWOptions, optim::AdamWParamState>("AdamW"), true;
  if (matches.template operator()<optim::Adam>())
    return use.template operator()<optim::AdamOptions, optim::AdamParamState>("Adam"), true;
  if (matches.template operator()<optim::RMSprop>())
    return use.template operator()<optim::RMSpropOptions, optim::RMSpropParamState>("RMSprop"), true;
  if (matches.template operator()<optim::Adagrad>())
    return use.template operator()<optim::AdagradOptions, optim::AdagradParamState>("Adagrad"), true;
  if (matches.template operator()<Adadelta>())
    return use.template operator()<AdadeltaOptions, AdadeltaParamState>("Adadelta"), true;
  return false;
}

const std::type_info& plain_type(const optim::Optimizer& optimizer) {
  const auto* const ruled = dynamic_cast<const internal::RuledOptimizer*>(&optimizer);
  return ruled != nullptr ? ruled->plain_type() : typeid(optimizer);
}

// Calls `use` and returns true if the optimizer's type is exactly one of these types. A derived class may have more
// state.
template <class Use>
bool with_type(const optim::Optimizer& optimizer, Use use) {
  const auto& type = plain_type(optimizer);
  return with_first([&]<class Optimizer>() { return type == typeid(Optimizer); }, use);
}

// Calls `use` if the optimizer's type is one of these types or is derived from one.
template <class Use>
void with_base(const optim::Optimizer& optimizer, Use use) {
  with_first([&]<class Optimizer>() { return dynamic_cast<const Optimizer*>(&optimizer) != nullptr; }, use);
}

std::string type_name(const optim::Optimizer& optimizer) {
  std::string name = "other";
  if (!with_type(optimizer, [&]<class Options, class State>(const char* known) { name = known; }))
    name = c10::demangle(plain_type(optimizer).name());
  return name;
}

std::vector<std::byte> archive_of(const optim::Optimizer& optimizer) {
  torch::serialize::OutputArchive archive;
  optimizer.save(archive);
  std::vector<std::byte> bytes;
  archive.save_to([&](const void* data, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
    return size;
  });
  return bytes;
}

torch::serialize::InputArchive open_archive(const std::vector<std::byte>& bytes, at::Device device) {
  torch::serialize::InputArchive archive;
  archive.load_from(reinterpret_cast<const char*>(bytes.data()), bytes.size(), device);
  return archive;
}

std::string tensor_name(std::size_t param, const char* field) { return fmt::format("optimizer/{}/{}", param, field); }

// Writes one parameter's state: numbers to `numbers`, tensors to `writer`.
struct SaveField {
  checkpoint::Writer& writer;
  json& numbers;
  std::size_t param;
  void operator()(const char* name, at::Tensor& tensor) {
    if (tensor.defined()) save_tensor(writer, tensor_name(param, name), tensor);
  }
  void operator()(const char* name, std::int64_t& number) { numbers[name] = number; }
};

// Reads one parameter's state.
struct LoadField {
  const checkpoint::Reader& reader;
  const json& numbers;
  std::size_t index;
  const at::Tensor& param;
  void operator()(const char* name, at::Tensor& tensor) {
    const auto full = tensor_name(index, name);
    tensor = reader.find(full) != nullptr ? load_new_tensor(reader, full, param) : at::Tensor();
  }
  void operator()(const char* name, std::int64_t& number) { number = numbers.at(name).get<std::int64_t>(); }
};

// For Adam and AdamW, calls `use` with the group's options and the parameter's state. Does nothing if the parameter has
// no state.
template <class Use>
void with_adam_state(optim::Optimizer& optimizer, std::size_t group, const at::Tensor& param, Use use) {
  with_base(optimizer, [&]<class Options, class State>(const char*) {
    if constexpr (requires(State & state) { state.exp_avg_sq(); }) {
      auto* const state = compat::find_state(optimizer, param);
      if (state == nullptr) return;
      use(static_cast<const Options&>(optimizer.param_groups()[group].options()), static_cast<State&>(*state));
    }
  });
}

}  // namespace

bool is_adam(const optim::Optimizer& optimizer) {
  bool adam = false;
  with_base(optimizer, [&]<class Options, class State>(const char*) {
    adam = requires(State & state) { state.exp_avg_sq(); };
  });
  return adam;
}

Preconditioner adam_preconditioner(optim::Optimizer& optimizer, std::size_t group, const at::Tensor& param) {
  constexpr int kFirstSteps = 5;
  Preconditioner result;
  with_adam_state(optimizer, group, param, [&](const auto& options, auto& state) {
    if (state.step() < kFirstSteps) return;
    const double beta2 = std::get<1>(options.betas());
    result = {state.exp_avg_sq(), std::sqrt(1 - std::pow(beta2, static_cast<double>(state.step()))), options.eps()};
  });
  return result;
}

void reset_adam_moments(optim::Optimizer& optimizer) {
  torch::NoGradGuard no_grad;
  for (std::size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    for (const auto& param : optimizer.param_groups()[group].params()) {
      with_adam_state(optimizer, group, param, [](const auto&, auto& state) {
        state.step(0);
        for (auto* moment : {&state.exp_avg(), &state.exp_avg_sq(), &state.max_exp_avg_sq()}) {
          if (moment->defined()) moment->zero_();
        }
      });
    }
  }
}

void check_supported(const optim::Optimizer& optimizer) {
  if (dynamic_cast<const optim::LBFGS*>(&optimizer) != nullptr)
    throw UsageError(
        "AdaptiveDataParallel does not support LBFGS, which evaluates the loss several times per step, on one batch "
        "of one replica; use another optimizer");
  if (with_type(optimizer, []<class Options, class State>(const char*) {})) return;
  if (!open_archive(archive_of(optimizer), at::kCPU).keys().empty()) return;
  throw UsageError(
      fmt::format("optimizer {} saves nothing, so it would lose its state at a restart; override save() and load() of "
                  "torch::optim::Optimizer, and also save the options",
                  type_name(optimizer)));
}

void save_optimizer(checkpoint::Writer& writer, optim::Optimizer& optimizer) {
  const bool known = with_type(optimizer, [&]<class Options, class State>(const char* type) {
    json groups = json::array();
    json memory = json::object();
    std::size_t index = 0;
    for (auto& group : optimizer.param_groups()) {
      json options = json::object();
      fields(static_cast<Options&>(group.options()), [&](const char* name, auto& value) { options[name] = value; });
      groups.push_back({{"options", options}, {"params", group.params().size()}});
      for (auto& param : group.params()) {
        if (auto* state = compat::find_state(optimizer, param)) {
          json numbers = json::object();
          fields(static_cast<State&>(*state), SaveField{writer, numbers, index});
          memory[std::to_string(index)] = numbers;
        }
        ++index;
      }
    }
    writer.json(kOptimizerSection, {{"type", type}, {"groups", groups}, {"memory", memory}});
  });
  if (known) return;
  json groups = json::array();
  for (const auto& group : optimizer.param_groups()) groups.push_back({{"params", group.params().size()}});
  writer.json(kOptimizerSection, {{"type", type_name(optimizer)}, {"groups", groups}});
  writer.bytes(kArchive, archive_of(optimizer));
}

void check_optimizer(const checkpoint::Reader& reader, optim::Optimizer& optimizer) {
  const json saved = reader.json(kOptimizerSection);
  const auto refuse = [&](const std::string& there, const std::string& here) {
    throw CheckpointError(
        fmt::format("{}: optimizer mismatch: {} in the checkpoint, {} in this program; undo the change, or start with "
                    "another checkpoint directory",
                    reader.describe(), there, here));
  };
  if (const auto type = type_name(optimizer); saved.at("type") != type)
    refuse(saved.at("type").get<std::string>(), type);
  const auto& groups = saved.at("groups");
  const auto describe = [](std::size_t count) { return counted(count, "parameter group"); };
  if (groups.size() != optimizer.param_groups().size())
    refuse(describe(groups.size()), describe(optimizer.param_groups().size()));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const auto count = optimizer.param_groups()[g].params().size();
    if (groups[g].at("params") == count) continue;
    refuse(fmt::format("{} in group {}", counted(groups[g].at("params").get<std::size_t>(), "parameter"), g),
           fmt::format("{}", count));
  }
  with_type(optimizer, [&]<class Options, class State>(const char*) {
    std::size_t index = 0;
    for (const auto& group : optimizer.param_groups()) {
      for (const auto& param : group.params()) {
        State fresh;
        fields(fresh, [&](const char* name, auto& field) {
          if constexpr (std::is_same_v<std::decay_t<decltype(field)>, at::Tensor>) {
            const auto full = tensor_name(index, name);
            if (reader.find(full) != nullptr) check_tensor(reader, full, param);
          }
        });
        ++index;
      }
    }
  });
}

void load_optimizer(const checkpoint::Reader& reader, optim::Optimizer& optimizer) {
  const json saved = reader.json(kOptimizerSection);
  const bool known = with_type(optimizer, [&]<class Options, class State>(const char*) {
    std::size_t index = 0;
    for (std::size_t g = 0; g < optimizer.param_groups().size(); ++g) {
      auto& group = optimizer.param_groups()[g];
      const auto& options = saved.at("groups").at(g).at("options");
      fields(static_cast<Options&>(group.options()),
             [&](const char* name, auto& value) { options.at(name).get_to(value); });
      for (auto& param : group.params()) {
        if (const auto numbers = saved.at("memory").find(std::to_string(index)); numbers != saved.at("memory").end()) {
          auto state = std::make_unique<State>();
          fields(*state, LoadField{reader, *numbers, index, param});
          compat::set_state(optimizer, param, std::move(state));
        }
        ++index;
      }
    }
  });
  if (known) return;
  at::Device device = at::kCPU;
  for (const auto& group : optimizer.param_groups()) {
    if (!group.params().empty()) device = group.params()[0].device();
  }
  auto archive = open_archive(reader.bytes(kArchive), device);
  try {
    optimizer.load(archive);
  } catch (const c10::Error& error) {
    throw CheckpointError(fmt::format("{}: load() of optimizer {} failed: {}", reader.describe(), type_name(optimizer),
                                      error.what_without_backtrace()));
  }
}

}  // namespace adaptdl
