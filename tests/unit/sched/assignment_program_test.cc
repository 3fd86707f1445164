#include "policy/base/assignment_program.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>

namespace assignment_program_test {

using namespace adaptdl::sched;

namespace {

double cost_of(const AssignmentProgram& program, const std::vector<int>& taken) {
  double cost = 0;
  for (std::size_t g = 0; g < taken.size(); ++g) cost += taken[g] < 0 ? 0 : program.groups[g][taken[g]].cost;
  return cost;
}

bool within_capacity(const AssignmentProgram& program, const std::vector<int>& taken) {
  std::vector<double> left = program.capacity;
  for (std::size_t g = 0; g < taken.size(); ++g) {
    if (taken[g] < 0) continue;
    for (const auto& [resource, amount] : program.groups[g][taken[g]].uses) left[resource] -= amount;
  }
  return std::ranges::all_of(left, [](double amount) { return amount >= -1e-9; });
}

// Finds the minimum cost by enumeration.
double least_cost(const AssignmentProgram& program, std::size_t group, std::vector<int>& taken) {
  if (group == program.groups.size()) return within_capacity(program, taken) ? cost_of(program, taken) : 0;
  double min_cost = 0;
  for (int option = -1; option < static_cast<int>(program.groups[group].size()); ++option) {
    taken[group] = option;
    min_cost = std::min(min_cost, least_cost(program, group + 1, taken));
  }
  taken[group] = -1;
  return min_cost;
}

AssignmentProgram random_program(std::mt19937& random, int groups, int resources, double capacity) {
  const auto one_of = [&random](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  AssignmentProgram program{{}, std::vector<double>(resources, capacity)};
  for (int g = 0; g < groups; ++g) {
    auto& options = program.groups.emplace_back();
    for (int resource = 0; resource < resources; ++resource) {
      for (int amount = 1 + one_of(2); amount <= capacity; amount += 1 + one_of(4)) {
        const double value = std::pow(amount, 0.3 + 0.06 * one_of(10)) * (1 + 0.1 * one_of(20));
        options.push_back({1 / value - 1.1, {{resource, amount}}});
      }
    }
  }
  return program;
}

}  // namespace

TEST_CASE("small integer programs are solved optimally") {
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    const AssignmentProgram program = random_program(random, 1 + i % 4, 1 + i % 3, 3 + i % 5);
    const std::vector<int> taken = solve_assignment(program);
    REQUIRE(taken.size() == program.groups.size());
    CHECK(within_capacity(program, taken));
    std::vector<int> scratch(program.groups.size(), -1);
    CHECK(cost_of(program, taken) == doctest::Approx(least_cost(program, 0, scratch)).epsilon(2e-6));
  }
}

TEST_CASE("options without a benefit or without room are not chosen, and an empty integer program is solved") {
  CHECK(solve_assignment({}).empty());
  CHECK(solve_assignment({{{}, {}}, {4}}) == std::vector{-1, -1});
  CHECK(solve_assignment({{{{0.5, {{0, 1}}}}, {{0, {{0, 1}}}}}, {4}}) == std::vector{-1, -1});
  CHECK(solve_assignment({{{{-1, {{0, 5}}}, {-0.5, {{0, 4}}}}}, {4}}) == std::vector{1});
  CHECK(solve_assignment({{{{-1, {{0, 1}}}}}, {0}}) == std::vector{-1});
}

TEST_CASE("the solution is the same on every run and thread") {
  std::mt19937 random(2);
  const AssignmentProgram program = random_program(random, 60, 3, 41);
  const std::vector<int> expected = solve_assignment(program);
  CHECK(within_capacity(program, expected));
  std::vector<std::vector<int>> answers(4);
  std::vector<std::jthread> threads;
  for (auto& answer : answers) threads.emplace_back([&] { answer = solve_assignment(program); });
  threads.clear();
  for (const auto& answer : answers) CHECK(answer == expected);
}

}  // namespace assignment_program_test
