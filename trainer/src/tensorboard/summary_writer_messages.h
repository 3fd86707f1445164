// Encodes the TensorBoard events that SummaryWriter writes, which are protocol buffers.
//
// The messages are defined by TensorFlow's event.proto, summary.proto, histogram.proto, tensor.proto, graph.proto,
// node_def.proto and attr_value.proto, and by TensorBoard's plugins/hparams/{api,plugin_data}.proto and
// plugins/pr_curve/plugin_data.proto.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adaptdl/torch/summary_writer.h"

namespace adaptdl::internal {

// A distribution. Bucket i counts the values below limits[i] that are not in an earlier bucket.
struct Histogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

// An image with 1, 3 or 4 channels, encoded as PNG.
struct Image {
  std::int64_t height = 0, width = 0, channels = 0;
  std::string png;
};

// A node of a graph.
struct GraphNode {
  std::string name;                 // unique; the part before the last slash is the node's group in TensorBoard
  std::string op;                   // operator type
  std::vector<std::string> inputs;  // NAME is the first output of a node, NAME:1 the second
  std::map<std::string, std::string> attributes;
  std::vector<std::optional<std::vector<std::int64_t>>> output_shapes;  // nullopt: unknown
};

// Returns the text with U+FFFD in place of invalid UTF-8, which readers of the messages and checkpoints reject.
std::string mended_utf8(std::string_view text);

// Each of the following functions returns an encoded Event with the current time. Invalid UTF-8 in text is replaced.
std::string version_event();
// Makes TensorBoard discard the events of `step` and later steps in earlier files.
std::string session_start_event(std::int64_t step);
std::string scalar_event(std::string_view tag, double value, std::int64_t step);
std::string histogram_event(std::string_view tag, const Histogram& histogram, std::int64_t step);
std::string text_event(std::string_view tag, std::string_view text, std::int64_t step);
std::string image_event(std::string_view tag, const Image& image, std::int64_t step);
// `curve`: six rows, each with one number per threshold: true positives, false positives, true negatives, false
// negatives, precision, recall.
std::string pr_curve_event(std::string_view tag, std::span<const float> curve, std::int64_t step);
// Encodes the graph of a run.
std::string graph_event(const std::vector<GraphNode>& nodes);
// Encodes the experiment, with the names of the hyperparameters and of the metrics by which to compare runs.
std::string hparams_experiment_event(const HParams& hparams, const std::map<std::string, double>& metrics);
// Encodes one run of the experiment, with the hyperparameters' values.
std::string hparams_start_event(const HParams& hparams);
std::string hparams_end_event();

}  // namespace adaptdl::internal
