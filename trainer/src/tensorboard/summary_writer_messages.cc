#include "tensorboard/summary_writer_messages.h"

#include <chrono>
#include <initializer_list>
#include <protozero/pbf_builder.hpp>
#include <type_traits>

namespace adaptdl::internal {

namespace {

using protozero::pbf_builder;

// Field numbers, with one enum per message.
enum class Event : protozero::pbf_tag_type {
  wall_time = 1,
  step = 2,
  file_version = 3,
  graph_def = 4,
  summary = 5,
  session_log = 7
};
enum class SessionLog : protozero::pbf_tag_type { status = 1 };
enum class Summary : protozero::pbf_tag_type { value = 1 };
enum class Value : protozero::pbf_tag_type {
  tag = 1,
  simple_value = 2,
  image = 4,
  histo = 5,
  tensor = 8,
  metadata = 9
};
enum class ImageData : protozero::pbf_tag_type { height = 1, width = 2, colorspace = 3, encoded_image_string = 4 };
enum class Metadata : protozero::pbf_tag_type { plugin_data = 1 };
enum class PluginData : protozero::pbf_tag_type { plugin_name = 1, content = 2 };
enum class Histo : protozero::pbf_tag_type { min = 1, max, num, sum, sum_squares, bucket_limit, bucket };
enum class Tensor : protozero::pbf_tag_type { dtype = 1, shape = 2, float_val = 5, string_val = 8 };
enum class Shape : protozero::pbf_tag_type { dim = 2, unknown_rank = 3 };
enum class Dim : protozero::pbf_tag_type { size = 1 };
enum class PrCurveData : protozero::pbf_tag_type { num_thresholds = 2 };
enum class HParamsData : protozero::pbf_tag_type { experiment = 2, session_start_info = 3, session_end_info = 4 };
enum class Experiment : protozero::pbf_tag_type { hparam_infos = 4, metric_infos = 5 };
enum class HParamInfo : protozero::pbf_tag_type { name = 1, type = 4 };
enum class MetricInfo : protozero::pbf_tag_type { name = 1 };
enum class MetricName : protozero::pbf_tag_type { tag = 2 };
enum class SessionStart : protozero::pbf_tag_type { hparams = 1, start_time_secs = 5 };
enum class SessionEnd : protozero::pbf_tag_type { status = 1, end_time_secs = 2 };
enum class Graph : protozero::pbf_tag_type { node = 1, versions = 4 };
enum class Versions : protozero::pbf_tag_type { producer = 1 };
enum class Node : protozero::pbf_tag_type { name = 1, op = 2, input = 3, attr = 5 };
enum class AttrValue : protozero::pbf_tag_type { list = 1, s = 2 };
enum class AttrList : protozero::pbf_tag_type { shape = 7 };
enum class Entry : protozero::pbf_tag_type { key = 1, value = 2 };
enum class JsonValue : protozero::pbf_tag_type { number = 2, string = 3, boolean = 4 };

constexpr std::int32_t kSessionStart = 1;                   // SessionLog.SessionStatus.START
constexpr std::int32_t kFloat = 1, kString = 7;             // DataType
constexpr std::int32_t kText = 1, kBool = 2, kFloat64 = 3;  // hparams.DataType
constexpr std::int32_t kSuccess = 1;                        // hparams.Status
constexpr std::int32_t kGraphProducer = 22;                 // a version that TensorBoard's readers know

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// Returns the length of the UTF-8 character at the beginning of `text`, or 0 if it is invalid.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xc2 && first < 0xe0   ? 2
                             : first >= 0xe0 && first < 0xf0 ? 3
                             : first >= 0xf0 && first < 0xf5 ? 4
                                                             : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and values beyond the last code point are invalid.
  const bool bad = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
                   (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90);
  return bad ? 0 : length;
}

template <class Fill>
std::string event(std::int64_t step, Fill fill) {
  std::string data;
  pbf_builder<Event> message(data);
  message.add_double(Event::wall_time, now());
  message.add_int64(Event::step, step);
  fill(message);
  return data;
}

// Returns an event with one summary value.
template <class Fill>
std::string value_event(std::string_view tag, std::int64_t step, Fill fill) {
  return event(step, [&](auto& message) {
    pbf_builder<Summary> summary(message, Event::summary);
    pbf_builder<Value> value(summary, Summary::value);
    value.add_string(Value::tag, mended_utf8(tag));
    fill(value);
  });
}

void add_metadata(pbf_builder<Value>& value, const std::string& plugin, const std::string& content) {
  pbf_builder<Metadata> metadata(value, Value::metadata);
  pbf_builder<PluginData> data(metadata, Metadata::plugin_data);
  data.add_string(PluginData::plugin_name, plugin);
  data.add_bytes(PluginData::content, content);
}

void add_sizes(pbf_builder<Shape>& shape, std::span<const std::int64_t> sizes) {
  for (const auto size : sizes) {
    pbf_builder<Dim> dim(shape, Shape::dim);
    dim.add_int64(Dim::size, size);
  }
}

void add_shape(pbf_builder<Tensor>& tensor, std::initializer_list<std::int64_t> sizes) {
  pbf_builder<Shape> shape(tensor, Tensor::shape);
  add_sizes(shape, {sizes.begin(), sizes.size()});
}

// Adds an entry to a node's map of attributes.
template <class Fill>
void add_attribute(pbf_builder<Node>& node, std::string_view name, Fill fill) {
  pbf_builder<Entry> entry(node, Node::attr);
  entry.add_string(Entry::key, mended_utf8(name));
  pbf_builder<AttrValue> value(entry, Entry::value);
  fill(value);
}

void add_node(pbf_builder<Graph>& graph, const GraphNode& content) {
  pbf_builder<Node> node(graph, Graph::node);
  node.add_string(Node::name, mended_utf8(content.name));
  node.add_string(Node::op, mended_utf8(content.op));
  for (const auto& input : content.inputs) node.add_string(Node::input, mended_utf8(input));
  for (const auto& [name, text] : content.attributes)
    add_attribute(node, name, [&](auto& value) { value.add_bytes(AttrValue::s, mended_utf8(text)); });
  add_attribute(node, "_output_shapes", [&](auto& value) {
    pbf_builder<AttrList> list(value, AttrValue::list);
    for (const auto& sizes : content.output_shapes) {
      std::string message;
      pbf_builder<Shape> shape(message);
      if (sizes) {
        add_sizes(shape, *sizes);
      } else {
        shape.add_bool(Shape::unknown_rank, true);
      }
      list.add_message(AttrList::shape, message);  // a nested builder would omit a scalar's shape, which is empty
    }
  });
}

// The hparams plugin reads its data from the metadata of a tensor without elements.
template <class Fill>
std::string hparams_event(std::string_view tag, Fill fill) {
  std::string content;
  pbf_builder<HParamsData> data(content);
  fill(data);
  return value_event(tag, 0, [&](auto& value) {
    add_metadata(value, "hparams", content);
    pbf_builder<Tensor> tensor(value, Value::tensor);
    tensor.add_enum(Tensor::dtype, kFloat);
    add_shape(tensor, {0});
  });
}

using HParam = HParams::mapped_type;

std::int32_t hparam_type(const HParam& value) {
  return std::holds_alternative<bool>(value) ? kBool : std::holds_alternative<std::string>(value) ? kText : kFloat64;
}

void add_value(pbf_builder<Entry>& entry, const HParam& value) {
  pbf_builder<JsonValue> message(entry, Entry::value);
  std::visit(
      [&](const auto& content) {
        using Content = std::decay_t<decltype(content)>;
        if constexpr (std::is_same_v<Content, bool>) {
          message.add_bool(JsonValue::boolean, content);
        } else if constexpr (std::is_same_v<Content, std::string>) {
          message.add_string(JsonValue::string, mended_utf8(content));
        } else {
          message.add_double(JsonValue::number, static_cast<double>(content));
        }
      },
      value);
}

}  // namespace

std::string mended_utf8(std::string_view text) {
  std::string mended;
  mended.reserve(text.size());
  while (!text.empty()) {
    const auto length = utf8_length(text);
    mended += length > 0 ? text.substr(0, length) : "\xef\xbf\xbd";  // U+FFFD
    text.remove_prefix(length > 0 ? length : 1);
  }
  return mended;
}

std::string version_event() {
  return event(0, [](auto& message) { message.add_string(Event::file_version, "brain.Event:2"); });
}

std::string session_start_event(std::int64_t step) {
  return event(step, [](auto& message) {
    pbf_builder<SessionLog> log(message, Event::session_log);
    log.add_enum(SessionLog::status, kSessionStart);
  });
}

std::string scalar_event(std::string_view tag, double value, std::int64_t step) {
  return value_event(tag, step,
                     [&](auto& message) { message.add_float(Value::simple_value, static_cast<float>(value)); });
}

std::string histogram_event(std::string_view tag, const Histogram& histogram, std::int64_t step) {
  return value_event(tag, step, [&](auto& value) {
    pbf_builder<Histo> histo(value, Value::histo);
    histo.add_double(Histo::min, histogram.min);
    histo.add_double(Histo::max, histogram.max);
    histo.add_double(Histo::num, histogram.num);
    histo.add_double(Histo::sum, histogram.sum);
    histo.add_double(Histo::sum_squares, histogram.sum_squares);
    histo.add_packed_double(Histo::bucket_limit, histogram.limits.begin(), histogram.limits.end());
    histo.add_packed_double(Histo::bucket, histogram.counts.begin(), histogram.counts.end());
  });
}

std::string text_event(std::string_view tag, std::string_view text, std::int64_t step) {
  return value_event(tag, step, [&](auto& value) {
    add_metadata(value, "text", "");
    pbf_builder<Tensor> tensor(value, Value::tensor);
    tensor.add_enum(Tensor::dtype, kString);
    tensor.add_message(Tensor::shape, std::string());  // a scalar
    tensor.add_bytes(Tensor::string_val, mended_utf8(text));
  });
}

std::string image_event(std::string_view tag, const Image& image, std::int64_t step) {
  return value_event(tag, step, [&](auto& value) {
    pbf_builder<ImageData> data(value, Value::image);
    data.add_int32(ImageData::height, static_cast<std::int32_t>(image.height));
    data.add_int32(ImageData::width, static_cast<std::int32_t>(image.width));
    data.add_int32(ImageData::colorspace, static_cast<std::int32_t>(image.channels));
    data.add_bytes(ImageData::encoded_image_string, image.png);
  });
}

std::string pr_curve_event(std::string_view tag, std::span<const float> curve, std::int64_t step) {
  constexpr std::size_t kRows = 6;
  const auto thresholds = curve.size() / kRows;
  std::string content;
  pbf_builder<PrCurveData>(content).add_uint32(PrCurveData::num_thresholds, static_cast<std::uint32_t>(thresholds));
  return value_event(tag, step, [&](auto& value) {
    add_metadata(value, "pr_curves", content);
    pbf_builder<Tensor> tensor(value, Value::tensor);
    tensor.add_enum(Tensor::dtype, kFloat);
    add_shape(tensor, {kRows, static_cast<std::int64_t>(thresholds)});
    tensor.add_packed_float(Tensor::float_val, curve.begin(), curve.end());
  });
}

std::string graph_event(const std::vector<GraphNode>& nodes) {
  std::string content;
  pbf_builder<Graph> graph(content);
  for (const auto& node : nodes) add_node(graph, node);
  pbf_builder<Versions>(graph, Graph::versions).add_int32(Versions::producer, kGraphProducer);
  return event(0, [&](auto& message) { message.add_bytes(Event::graph_def, content); });
}

std::string hparams_experiment_event(const HParams& hparams, const std::map<std::string, double>& metrics) {
  return hparams_event("_hparams_/experiment", [&](auto& data) {
    pbf_builder<Experiment> experiment(data, HParamsData::experiment);
    for (const auto& [name, value] : hparams) {
      pbf_builder<HParamInfo> info(experiment, Experiment::hparam_infos);
      info.add_string(HParamInfo::name, mended_utf8(name));
      info.add_enum(HParamInfo::type, hparam_type(value));
    }
    for (const auto& [tag, value] : metrics) {
      pbf_builder<MetricInfo> info(experiment, Experiment::metric_infos);
      pbf_builder<MetricName> name(info, MetricInfo::name);
      name.add_string(MetricName::tag, mended_utf8(tag));
    }
  });
}

std::string hparams_start_event(const HParams& hparams) {
  return hparams_event("_hparams_/session_start_info", [&](auto& data) {
    pbf_builder<SessionStart> start(data, HParamsData::session_start_info);
    for (const auto& [name, value] : hparams) {
      pbf_builder<Entry> entry(start, SessionStart::hparams);
      entry.add_string(Entry::key, mended_utf8(name));
      add_value(entry, value);
    }
    start.add_double(SessionStart::start_time_secs, now());
  });
}

std::string hparams_end_event() {
  return hparams_event("_hparams_/session_end_info", [&](auto& data) {
    pbf_builder<SessionEnd> end(data, HParamsData::session_end_info);
    end.add_enum(SessionEnd::status, kSuccess);
    end.add_double(SessionEnd::end_time_secs, now());
  });
}

}  // namespace adaptdl::internal
