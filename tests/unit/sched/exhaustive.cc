#include "exhaustive.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace adaptdl::sched {
namespace {

class Search {
 public:
  using Value = std::function<double(const JobInfo&, const Row&)>;

  Search(const Problem& problem, const std::function<int(const JobInfo&)>& max_replicas, const Value& value)
      : problem_(problem), nodes_(problem.nodes), pinned_(problem.jobs.size()), distributed_(nodes_.size()) {
    for (std::size_t j = 0; j < problem.jobs.size(); ++j) {
      const JobInfo& job = problem.jobs[j];
      const auto previous = problem.previous.find(job.name);
      pinned_[j] = !job.preemptible && previous != problem.previous.end() && !previous->second.empty();
      if (pinned_[j]) {
        rows_.push_back({row_of(problem, previous->second)});
      } else {
        rows_.emplace_back();
        list(job, max_replicas(job), Row(nodes_.size()), 0);
      }
      values_.emplace_back();
      for (const Row& row : rows_[j]) values_[j].push_back(value(job, row));
    }
    // bounds_[j] is an upper bound on the total value of jobs j and later.
    bounds_.assign(rows_.size() + 1, 0);
    for (std::size_t j = rows_.size(); j-- > 0;)
      bounds_[j] = bounds_[j + 1] + *std::max_element(values_[j].begin(), values_[j].end());
  }

  double run() {
    choose(0, 0);
    return best_;
  }

 private:
  void list(const JobInfo& job, int max_replicas, Row row, std::size_t node) {
    const int replicas = std::accumulate(row.begin(), row.end(), 0);
    if (node == row.size()) {
      if (replicas == 0 || replicas >= job.min_replicas) rows_.back().push_back(row);
      return;
    }
    for (; std::accumulate(row.begin(), row.end(), 0) <= max_replicas && takes(job, row[node], problem_.nodes[node]);
         ++row[node])
      list(job, max_replicas, row, node + 1);
  }

  static bool takes(const JobInfo& job, int replicas, const NodeInfo& node) {
    const bool asks = std::ranges::any_of(job.resources, [](const auto& each) { return each.second > 0; });
    return replicas == 0 || (asks && std::ranges::all_of(job.resources, [&](const auto& each) {
                               const auto there = node.resources.find(each.first);
                               return each.second * replicas <= (there == node.resources.end() ? 0 : there->second) ||
                                      each.second <= 0;
                             }));
  }

  void put(const JobInfo& job, const Row& row, int sign) {
    for (std::size_t n = 0; n < row.size(); ++n)
      for (const auto& [type, amount] : job.resources) nodes_[n].resources[type] -= sign * amount * row[n];
  }

  void choose(std::size_t j, double sum) {
    if (sum + bounds_[j] <= best_) return;
    if (j == rows_.size()) {
      best_ = sum;
      return;
    }
    const JobInfo& job = problem_.jobs[j];
    for (std::size_t i = 0; i < rows_[j].size(); ++i) {
      const Row& row = rows_[j][i];
      const bool separate = !pinned_[j] && std::ranges::count_if(row, [](int count) { return count > 0; }) > 1;
      bool possible = true;
      for (std::size_t n = 0; n < row.size(); ++n)
        possible = possible && takes(job, row[n], nodes_[n]) && !(separate && row[n] > 0 && distributed_[n]);
      if (!possible) continue;
      put(job, row, 1);
      for (std::size_t n = 0; n < row.size(); ++n) distributed_[n] += separate && row[n] > 0;
      choose(j + 1, sum + values_[j][i]);
      for (std::size_t n = 0; n < row.size(); ++n) distributed_[n] -= separate && row[n] > 0;
      put(job, row, -1);
    }
  }

  const Problem& problem_;
  std::vector<NodeInfo> nodes_;  // the free resources
  std::vector<bool> pinned_;
  std::vector<int> distributed_;  // number of distributed jobs on each node
  std::vector<std::vector<Row>> rows_;
  std::vector<std::vector<double>> values_;
  std::vector<double> bounds_;
  double best_ = -std::numeric_limits<double>::infinity();
};

}  // namespace

Row row_of(const Problem& problem, const Allocation& allocation) {
  Row row;
  for (const NodeInfo& node : problem.nodes)
    row.push_back(static_cast<int>(std::count(allocation.begin(), allocation.end(), node.name)));
  return row;
}

double best_by_trying_all(const Problem& problem, const std::function<int(const JobInfo&)>& max_replicas,
                          const std::function<double(const JobInfo&, const Row&)>& value) {
  return Search(problem, max_replicas, value).run();
}

}  // namespace adaptdl::sched
