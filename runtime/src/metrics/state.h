// Everything that metrics.h measures, as one checkpoint state.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "adaptdl/checkpoint.h"
#include "adaptdl/metrics.h"
#include "metrics/profile.h"

namespace adaptdl::metrics {

struct Measured {
  Profile profile;
  std::optional<goodput::PerfParams> perf;
  std::map<std::string, goodput::GradParams> grad;  // by model
  std::map<std::string, double> progress;           // by model
  std::optional<double> target_progress;
  std::optional<BatchSizes> batch_sizes;
};

class MetricsState : public checkpoint::State {
 public:
  MetricsState() : State("adaptdl-metrics") {}
  void save(checkpoint::Writer& writer) const override;
  void load(const checkpoint::Reader& reader) override;

  Measured measured;
};

}  // namespace adaptdl::metrics
