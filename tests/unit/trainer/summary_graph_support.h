// Shared by the tests of graphs of models: the graphs that a writer has written, and searches in their nodes.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/torch/summary_writer.h"
#include "event_records.h"
#include "temporary_directory.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace summary_graph_support {

namespace fs = std::filesystem;
using adaptdl::SummaryWriter;
using testing::Node;
using testing::TemporaryDirectory;

using Nodes = std::vector<Node>;

// Returns the graphs in the directory's only file.
inline std::vector<Nodes> graphs_in(const fs::path& directory) {
  const auto files = testing::files_in(directory);
  REQUIRE(files.size() == 1);
  std::vector<Nodes> graphs;
  for (const auto& event : testing::events_of(files[0])) {
    if (!event.graph.empty()) graphs.push_back(event.graph);
  }
  return graphs;
}

template <class Model, class... Inputs>
Nodes graph_of(Model& model, const Inputs&... inputs) {
  const TemporaryDirectory directory;
  {
    SummaryWriter writer(directory.path());
    writer.add_graph(model, inputs...);
  }
  const auto graphs = graphs_in(directory.path());
  REQUIRE(graphs.size() == 1);
  return graphs[0];
}

inline std::vector<std::string> names_of(const Nodes& nodes) {
  std::vector<std::string> names;
  for (const auto& node : nodes) names.push_back(node.name);
  return names;
}

inline const Node& find(const Nodes& nodes, std::string_view name) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return node.name == name; });
  if (found == nodes.end())
    throw std::runtime_error(fmt::format("{} is not in {}", name, fmt::join(names_of(nodes), " ")));
  return *found;
}

inline bool uses(const Node& node, std::string_view input) {
  return std::find(node.inputs.begin(), node.inputs.end(), input) != node.inputs.end();
}

// Returns the only operator that uses the output of a node.
inline const Node& user_of(const Nodes& nodes, std::string_view name) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return uses(node, name); });
  if (found == nodes.end()) throw std::runtime_error(fmt::format("{} is not used", name));
  return *found;
}

inline std::string module_of(const Node& node) { return node.name.substr(0, node.name.rfind('/')); }

}  // namespace summary_graph_support
