// Reads TensorBoard event files, for tests of what was written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <protozero/pbf_reader.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "tensorboard/event_file.h"

namespace testing {

struct Histogram {
  double min = 0, max = 0, num = 0, sum = 0, sum_squares = 0;
  std::vector<double> limits, counts;
};

struct Image {
  std::int32_t height = 0, width = 0, colorspace = 0;
  std::string encoded;
};

struct Tensor {
  std::vector<std::int64_t> shape;
  std::vector<float> floats;
};

using Shapes = std::vector<std::vector<std::int64_t>>;

struct Node {
  std::string name, op;
  std::vector<std::string> inputs;
  std::map<std::string, std::string> attributes;
  Shapes output_shapes;
};

// An event with one of the optional parts.
struct Event {
  std::int64_t step = 0;
  std::string version, tag, text, plugin, plugin_content;
  bool starts_session = false;
  std::optional<float> scalar;
  std::optional<Histogram> histogram;
  std::optional<Image> image;
  Tensor tensor;
  std::vector<Node> graph;
};

inline Histogram parse_histogram(protozero::pbf_reader message) {
  Histogram histogram;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        histogram.min = message.get_double();
        break;
      case 2:
        histogram.max = message.get_double();
        break;
      case 3:
        histogram.num = message.get_double();
        break;
      case 4:
        histogram.sum = message.get_double();
        break;
      case 5:
        histogram.sum_squares = message.get_double();
        break;
      case 6:
        for (const auto limit : message.get_packed_double()) histogram.limits.push_back(limit);
        break;
      case 7:
        for (const auto count : message.get_packed_double()) histogram.counts.push_back(count);
        break;
      default:
        message.skip();
    }
  }
  return histogram;
}

inline Image parse_image(protozero::pbf_reader message) {
  Image image;
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        image.height = message.get_int32();
        break;
      case 2:
        image.width = message.get_int32();
        break;
      case 3:
        image.colorspace = message.get_int32();
        break;
      case 4:
        image.encoded = message.get_bytes();
        break;
      default:
        message.skip();
    }
  }
  return image;
}

inline std::vector<std::int64_t> parse_shape(protozero::pbf_reader shape) {
  std::vector<std::int64_t> sizes;
  while (shape.next(2)) {
    for (auto dim = shape.get_message(); dim.next();) sizes.push_back(dim.get_int64());
  }
  return sizes;
}

inline void parse_attribute(protozero::pbf_reader entry, Node& node) {
  std::string name;
  while (entry.next()) {
    if (entry.tag() == 1) {
      name = entry.get_string();
      continue;
    }
    for (auto value = entry.get_message(); value.next();) {
      if (value.tag() == 2) {
        node.attributes[name] = value.get_bytes();
      } else {
        for (auto list = value.get_message(); list.next(7);)
          node.output_shapes.push_back(parse_shape(list.get_message()));
      }
    }
  }
}

inline std::vector<Node> parse_graph(protozero::pbf_reader graph) {
  std::vector<Node> nodes;
  while (graph.next(1)) {
    auto& node = nodes.emplace_back();
    for (auto message = graph.get_message(); message.next();) {
      switch (message.tag()) {
        case 1:
          node.name = message.get_string();
          break;
        case 2:
          node.op = message.get_string();
          break;
        case 3:
          node.inputs.push_back(message.get_string());
          break;
        case 5:
          parse_attribute(message.get_message(), node);
          break;
        default:
          message.skip();
      }
    }
  }
  return nodes;
}

inline void parse_tensor(protozero::pbf_reader message, Event& event) {
  while (message.next()) {
    switch (message.tag()) {
      case 2:
        event.tensor.shape = parse_shape(message.get_message());
        break;
      case 5:
        for (const auto number : message.get_packed_float()) event.tensor.floats.push_back(number);
        break;
      case 8:
        event.text = message.get_string();
        break;
      default:
        message.skip();
    }
  }
}

inline void parse_metadata(protozero::pbf_reader message, Event& event) {
  while (message.next(1)) {
    for (auto data = message.get_message(); data.next();)
      (data.tag() == 1 ? event.plugin : event.plugin_content) = data.get_bytes();
  }
}

inline void parse_value(protozero::pbf_reader message, Event& event) {
  while (message.next()) {
    switch (message.tag()) {
      case 1:
        event.tag = message.get_string();
        break;
      case 2:
        event.scalar = message.get_float();
        break;
      case 4:
        event.image = parse_image(message.get_message());
        break;
      case 5:
        event.histogram = parse_histogram(message.get_message());
        break;
      case 8:
        parse_tensor(message.get_message(), event);
        break;
      case 9:
        parse_metadata(message.get_message(), event);
        break;
      default:
        message.skip();
    }
  }
}

inline Event parse(const std::string& data) {
  Event event;
  protozero::pbf_reader message(data);
  while (message.next()) {
    switch (message.tag()) {
      case 2:
        event.step = message.get_int64();
        break;
      case 3:
        event.version = message.get_string();
        break;
      case 4:
        event.graph = parse_graph(message.get_message());
        break;
      case 5:
        for (auto summary = message.get_message(); summary.next();) parse_value(summary.get_message(), event);
        break;
      case 7:
        for (auto log = message.get_message(); log.next();) event.starts_session = log.get_enum() == 1;
        break;
      default:
        message.skip();
    }
  }
  return event;
}

inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.push_back(entry.path());
  // A file name ends with the process ID and the number of the file in that process. Several files of a process may be
  // written at the same time.
  const auto number = [](const auto& file) { return std::stoi(file.extension().string().substr(1)); };
  std::map<std::string, std::filesystem::file_time_type> begun;  // start time of each process
  for (const auto& file : files) {
    const auto written = std::filesystem::last_write_time(file);
    const auto [process, is_new] = begun.emplace(file.stem().string(), written);
    process->second = std::min(process->second, written);
  }
  std::sort(files.begin(), files.end(), [&](const auto& a, const auto& b) {
    const auto key = [&](const auto& file) { return std::tuple(begun[file.stem().string()], number(file)); };
    return key(a) < key(b);
  });
  return files;
}

inline std::string content(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  return std::move(bytes).str();
}

// Returns the events of a file, whose records must all be complete and correctly framed.
inline std::vector<Event> events_of(const std::filesystem::path& file) {
  const auto bytes = content(file);
  std::vector<Event> events;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    if (at + 16 + length > bytes.size()) throw std::runtime_error("a record is cut off");
    const auto data = bytes.substr(at + 12, length);
    if (adaptdl::internal::tfrecord(data) != bytes.substr(at, 16 + length))
      throw std::runtime_error("a record has a wrong checksum");
    events.push_back(parse(data));
    at += 16 + length;
  }
  return events;
}

}  // namespace testing
