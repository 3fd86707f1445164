// The protocol buffers of TensorBoard events that SummaryWriter writes, encoded.
//
// Their definitions are those of TensorFlow: event.proto, summary.proto, histogram.proto, tensor.proto, graph.proto,
// node_def.proto, attr_value.proto, and TensorBoard's plugins/hparams/{api,plugin_data}.proto and
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

// A distribution: bucket i counts the values below limits[i] that are in none before.
struct Histogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

// An image that is encoded as PNG, of 1, 3 or 4 channels.
struct Image {
  std::int64_t height = 0, width = 0, channels = 0;
  std::string png;
};

// A node of a graph.
struct GraphNode {
  std::string name;                 // unique; what comes before a slash is the group that TensorBoard draws it in
  std::string op;                   // its type
  std::vector<std::string> inputs;  // NAME is the first output of a node, NAME:1 the second
  std::map<std::string, std::string> attributes;
  std::vector<std::optional<std::vector<std::int64_t>>> output_shapes;  // nullopt: unknown
};

// The text with U+FFFD in the place of what is not UTF-8. Readers refuse a message, and checkpoints a value, of other
// text.
std::string mended_utf8(std::string_view text);

// Each is an encoded Event, of now. Its text is mended.
std::string version_event();
// What earlier files have of `step` and later ones is void.
std::string session_start_event(std::int64_t step);
std::string scalar_event(std::string_view tag, double value, std::int64_t step);
std::string histogram_event(std::string_view tag, const Histogram& histogram, std::int64_t step);
std::string text_event(std::string_view tag, std::string_view text, std::int64_t step);
std::string image_event(std::string_view tag, const Image& image, std::int64_t step);
// `curve`: six rows, each with a number per threshold: true positives, false positives, true negatives, false
// negatives, precision, recall.
std::string pr_curve_event(std::string_view tag, std::span<const float> curve, std::int64_t step);
// The graph of a run.
std::string graph_event(const std::vector<GraphNode>& nodes);
// The experiment, with the names of hyperparameters and of the metrics to compare by.
std::string hparams_experiment_event(const HParams& hparams, const std::map<std::string, double>& metrics);
// One run of it, with the hyperparameters' values.
std::string hparams_start_event(const HParams& hparams);
std::string hparams_end_event();

}  // namespace adaptdl::internal
