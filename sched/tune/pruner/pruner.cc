#include "tune/pruner/pruner.h"

#include <fmt/format.h>

#include "adaptdl/error.h"
#include "tune/pruner/asha.h"
#include "tune/pruner/median.h"

namespace adaptdl::sched::tune {
namespace {

class NoPruner : public Pruner {
 public:
  Judgement judge(const Study&, const Trial&) const override { return {}; }
  std::optional<Promotion> promote(const Study&, bool, const std::function<bool(int)>&) const override { return {}; }
};

}  // namespace

std::unique_ptr<Pruner> make_pruner(std::string_view name, const PrunerOptions& options) {
  if (name == "asha") return std::make_unique<Asha>(options, 1);
  if (name == "hyperband") return std::make_unique<Asha>(options, options.brackets);
  if (name == "median") return std::make_unique<Median>(options);
  if (name == "none") return std::make_unique<NoPruner>();
  throw UsageError(fmt::format("invalid pruner '{}': expected asha, hyperband, median or none", name));
}

}  // namespace adaptdl::sched::tune
