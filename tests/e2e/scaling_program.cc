// Trains on given gradients, and writes the resulting noise scale and scaling factors: one replica of a job that
// python_scaling_test.py compares with the Python package.
//
//   scaling_program SPEC OUTPUT
//
// SPEC is a JSON list of cases, which python_scaling_test.py describes. Rank 0 writes a JSON line to OUTPUT for each
// step.
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../trainer/src/loop/batch_size_choice.h"
#include "adaptdl/env.h"
#include "adaptdl/torch/data_loader_helper.h"
#include "adaptdl/torch/epoch.h"
#include "adaptdl/torch/parallel.h"
#include "adaptdl/torch/process_group.h"

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;
using adaptdl::Adaptive;
using adaptdl::AdaptiveDataParallel;
using adaptdl::ScalingRuleBase;
using nlohmann::json;

// The local batch size and the number of accumulation steps, for each step.
using Schedule = std::vector<std::pair<std::size_t, int>>;

// Two parameters, whose gradients are the inputs of the model.
struct GivenImpl : nn::Module {
  GivenImpl(std::int64_t first, std::int64_t second)
      : a(register_parameter("a", at::zeros({first}))), b(register_parameter("b", at::zeros({second}))) {}
  at::Tensor forward(const at::Tensor& of_a, const at::Tensor& of_b) { return (a * of_a).sum() + (b * of_b).sum(); }
  at::Tensor a, b;
};
TORCH_MODULE(Given);

// Records the last argument and result of a scaling rule.
struct Watch {
  double scale = 0;
  std::vector<double> factors;
};
template <class Rule>
struct Watched : Rule, Watch {
  using Rule::Rule;
  std::vector<double> scale_lr(double of_scale) override {
    scale = of_scale;
    return factors = Rule::scale_lr(of_scale);
  }
};

std::shared_ptr<ScalingRuleBase> make_rule(const json& one) {
  const std::string rule = one.at("rule");
  if (rule == "AdaScale") return std::make_shared<Watched<adaptdl::AdaScale>>();
  if (rule == "AdamScale") return std::make_shared<Watched<adaptdl::AdamScale>>();
  if (rule == "LinearScale") return std::make_shared<Watched<adaptdl::LinearScale>>();
  if (rule == "SqrtScale") return std::make_shared<Watched<adaptdl::SqrtScale>>();
  if (rule == "LEGWScale")
    return std::make_shared<Watched<adaptdl::LEGWScale>>(one.at("warmup_epochs"), one.at("data_size"));
  throw std::runtime_error("no such rule: " + rule);
}

// Creates an optimizer with a parameter group for each of the model's two parameters.
template <class Optimizer, class Options>
std::unique_ptr<optim::Optimizer> make_optimizer(const json& one, const Given& net) {
  std::vector<optim::OptimizerParamGroup> groups;
  for (const auto& param : {std::pair(net->a, 0), std::pair(net->b, 1)}) {
    const auto options = Options(one.at("lr").at(static_cast<std::size_t>(param.second)).template get<double>());
    groups.emplace_back(std::vector<at::Tensor>{param.first}, std::make_unique<Options>(options));
  }
  return std::make_unique<Adaptive<Optimizer>>(std::move(groups), Options(1.0));
}

std::unique_ptr<optim::Optimizer> make_optimizer(const json& one, const Given& net) {
  const std::string name = one.at("optimizer");
  if (name == "SGD") return make_optimizer<optim::SGD, optim::SGDOptions>(one, net);
  if (name == "Adam") return make_optimizer<optim::Adam, optim::AdamOptions>(one, net);
  if (name == "AdamW") return make_optimizer<optim::AdamW, optim::AdamWOptions>(one, net);
  throw std::runtime_error("no such optimizer: " + name);
}

// The gradients of a case: float32, [batches, replicas, elements of both parameters].
class Gradients {
 public:
  explicit Gradients(const json& one) : sizes_(one.at("sizes").get<std::vector<std::int64_t>>()) {
    const std::string path = one.at("gradients");
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file) throw std::runtime_error("cannot read " + path);
    const std::int64_t bytes = file.tellg();
    all_ = at::empty({bytes / static_cast<std::int64_t>(sizeof(float))}, at::kFloat);
    file.seekg(0);
    file.read(static_cast<char*>(all_.data_ptr()), bytes);
    all_ = all_.view({-1, adaptdl::env::num_replicas(), sizes_.at(0) + sizes_.at(1)});
  }
  // Returns the gradients of this replica's next batch.
  std::vector<at::Tensor> next() { return all_[batch_++][adaptdl::env::replica_rank()].split_with_sizes(sizes_); }

 private:
  std::vector<std::int64_t> sizes_;
  at::Tensor all_;
  std::int64_t batch_ = 0;
};

json seen(const AdaptiveDataParallel<Given>& model, const Given& net, const Watch& rule) {
  return {{"sqr", model.gns().raw_sqr_avg()},
          {"var", model.gns().raw_var_avg()},
          {"factors", rule.factors},
          {"gain", model.gain()},
          {"progress", model.gns().progress()},
          {"scale", rule.scale},
          {"weights", {net->a[0].item<double>(), net->b[0].item<double>()}}};
}

void run(const json& one, std::ostream& output) {
  Given net(one.at("sizes").at(0).get<std::int64_t>(), one.at("sizes").at(1).get<std::int64_t>());
  const auto optimizer = make_optimizer(one, net);
  const auto rule = make_rule(one);
  AdaptiveDataParallel model(net, *optimizer, {.name = one.at("name"), .scaling_rule = rule});
  const auto schedule = one.at("schedule").get<Schedule>();
  const std::size_t batch_size = one.at("batch_size");
  adaptdl::AdaptiveDataLoaderHelper loader(batch_size);
  // The upper bound of the local batch size makes the first step accumulate as scheduled; the decider below chooses
  // those of later steps.
  loader.autoscale_batch_size(1000 * batch_size, {.max = schedule.front().first}, true);
  adaptdl::internal::set_batch_size_decider(
      [&](std::uint64_t step) { return schedule.at(std::min<std::size_t>(step + 1, schedule.size() - 1)); });
  Gradients gradients(one);
  const auto context = loader.context();
  loader.skipdone();
  loader.sync_local_bsz();
  for (const auto& [local_bsz, accumulation] : schedule) {
    for (int batch = 0; batch <= accumulation; ++batch) {
      const auto profile = loader.profile(false);
      if (loader.batch_size_changed()) loader.sync_local_bsz();
      if (loader.current_local_bsz() != local_bsz || loader.accumulation_steps() != accumulation)
        throw std::runtime_error("the batch size of a step differs from the schedule");
      const auto given = gradients.next();
      auto loss = model(given[0], given[1]);
      adaptdl::internal::clear_gradients(*optimizer);
      loss.backward();
      rule->step();
      loader.advance();
    }
    output << seen(model, net, dynamic_cast<Watch&>(*rule)) << '\n';
  }
}

}  // namespace

int main(int, char** argv) {
  try {
    const json cases = json::parse(std::ifstream(argv[1]));
    std::ofstream output(adaptdl::env::replica_rank() == 0 ? argv[2] : "/dev/null");
    output.precision(17);
    adaptdl::init_process_group("gloo");
    for (const int epoch : adaptdl::remaining_epochs_until(static_cast<int>(cases.size())))
      run(cases.at(static_cast<std::size_t>(epoch)), output);
    adaptdl::destroy_process_group();
    return output.flush() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << "scaling_program: " << error.what() << '\n';
    return 1;
  }
}
