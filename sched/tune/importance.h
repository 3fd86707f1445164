// Which parameters of a study matter for a good result: PED-ANOVA (Watanabe, Bansal, Hutter, "PED-ANOVA: Efficiently
// Quantifying Hyperparameter Importance in Arbitrary Subspaces", IJCAI 2023), with the rules of Optuna 5.
//
// A parameter matters as far as its values in the best tenth of the trials are distributed differently from those in
// all trials: its importance is the Pearson divergence of the two densities. These are Parzen estimates over at most 50
// places of its range, by Scott's rule. Only the order of the trials counts, not by how much one is better.
//
// The order is that from which TPE learns (trial_split.h): trials that ended early count, behind those that completed,
// and the further the better. With asynchronous successive halving, few trials complete, and their best tenth would be
// a single one. Where all trials complete, the result is that of Optuna.
//
// Trials without a parameter, and those with another distribution of it, are regimes of their own (Ito et al.,
// "Conditional PED-ANOVA", KDD 2026): the importance of a parameter is the sum over its regimes, weighted by how often
// the best trials are in them. Regimes of a single trial are ignored.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tune/study.h"

namespace adaptdl::sched::tune {

inline constexpr std::size_t kMinImportanceTrials = 10;  // of which the best tenth is one trial

struct ParameterImportance {
  std::string parameter;
  double fraction = 0;  // of the sum over all parameters, which is 1
};

struct Importances {
  std::vector<ParameterImportance> parameters;  // the most important first
  std::size_t trials = 0;                       // that were compared
  std::size_t best = 0;                         // of them, in the best tenth; more with ties
};

// The importances by the first objective, of all parameters that the compared trials have. These are the trials that
// completed with a finite value, and the pruned ones that reported one. Throws Error if they are fewer than
// kMinImportanceTrials, or do not differ.
Importances parameter_importances(const Study& study);

}  // namespace adaptdl::sched::tune
