// Prunes a trial whose best value so far is worse than the median of the completed trials at the same step (Golovin et
// al., Google Vizier, KDD 2017). It never pauses a trial.
#pragma once

#include "tune/pruner/pruner.h"

namespace adaptdl::sched::tune {

class Median : public Pruner {
 public:
  explicit Median(const PrunerOptions& options) : options_(options) {}

  Judgement judge(const Study& study, const Trial& trial) const override;
  std::optional<Promotion> promote(const Study&, bool, const std::function<bool(int)>&) const override { return {}; }

 private:
  const PrunerOptions options_;
};

}  // namespace adaptdl::sched::tune
