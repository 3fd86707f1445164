// Computes how much each parameter of a study matters for a good result, with PED-ANOVA (Watanabe, Bansal, Hutter,
// "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces", IJCAI 2023) and the rules of
// Optuna 5.
//
// A parameter matters to the extent that its values are distributed differently in the best tenth of the trials than in
// all trials: its importance is the Pearson divergence of the two densities. The densities are Parzen estimates over at
// most 50 equally spaced points in the parameter's range, with the bandwidth of Scott's rule. Only the order of the
// trials matters, not the size of their differences.
//
// The order is the one from which TPE learns (trial_split.h): trials that ended early rank behind completed ones, and
// among themselves by how far they got. They are included because, with asynchronous successive halving, so few trials
// complete that the best tenth of those would be a single trial. If all trials complete, the result is the same as
// Optuna's.
//
// Trials with different distributions of a parameter form separate regimes; trials without the parameter belong to no
// regime (Ito et al., "Conditional PED-ANOVA", KDD 2026). The importance of the parameter is the sum over its regimes,
// weighted by how often the best trials are in them. Regimes of a single trial are ignored.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tune/study/study.h"

namespace adaptdl::sched::tune {

inline constexpr std::size_t kMinImportanceTrials = 10;  // their best tenth is one trial

struct ParameterImportance {
  std::string parameter;
  double fraction = 0;  // fraction of the total importance; all fractions add up to 1
};

struct Importances {
  std::vector<ParameterImportance> parameters;  // the most important first
  std::size_t trials = 0;                       // number of trials compared
  std::size_t best = 0;                         // number of trials in the best tenth, including ties
};

// Returns the importance of each parameter of the compared trials, according to the first objective. The compared
// trials are those that completed with a finite value and the pruned ones that reported a value. Throws Error if there
// are fewer than kMinImportanceTrials of them, or if they do not differ.
Importances parameter_importances(const Study& study);

}  // namespace adaptdl::sched::tune
