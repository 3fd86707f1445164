#include "simulation/cluster_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "base/counted.h"
#include "simulation/svg.h"
#include "terminal/format.h"
#include "terminal/terminal.h"

namespace adaptdl::cli {
namespace {

// These are lengths in pixels.
constexpr double kWidth = 1200, kRight = 24, kHeader = 84, kPanelGap = 18, kPanel = 96, kFooter = 44;
constexpr double kTallestSlot = 9, kMaxHeight = 1400, kMinHeight = 120;
constexpr double kCharacter = 6.3;  // width of a text character

constexpr std::array<double, 10> kHues = {212, 28, 145, 350, 268, 48, 186, 318, 95, 8};
constexpr std::array<double, 5> kShades = {0.47, 0.57, 0.41, 0.62, 0.52};

// In dark mode, the background and the text are inverted; the job colors are legible in both modes.
constexpr const char* kStyle = R"(<style>
text{font:11px system-ui,"DejaVu Sans",sans-serif;fill:#24292f}
.title{font-size:16px;font-weight:600}.dim{fill:#57606a}.job{font-size:8px;fill:#fff}
.page{fill:#fff}.free{fill:#d0d7de;fill-opacity:.45}.grid{stroke:#8c959f;stroke-opacity:.45;fill:none}
.axis{stroke:#57606a;fill:none}.waiting{fill:#cf222e;fill-opacity:.35;stroke:#cf222e}.running{stroke:#0969da;fill:none;stroke-width:1.3}
.edge{stroke:#fff;stroke-opacity:.6;stroke-width:.5}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#9198a1}.page{fill:#0d1117}.free{fill:#6e7681;fill-opacity:.3}.axis{stroke:#9198a1}.edge{stroke:#0d1117}}
</style>
)";

// A rectangle of slots that one job occupies for some time.
struct Block {
  int job = 0;
  double from = 0, to = 0;  // pixels from the left
  int slot = 0, slots = 1;
};

class Plot {
 public:
  Plot(const Timeline& timeline, const std::string& title);
  std::string svg() const;

 private:
  double x(double time) const { return left_ + (time - timeline_.begin) / span_ * (kWidth - kRight - left_); }
  // Rounds to whole pixels, so that blocks that are adjacent in time are adjacent in the picture.
  double column(double time) const { return std::round(x(time)); }
  double y(int slot) const { return kHeader + slot * slot_height_ + node_of_slot_[slot] * gap_; }
  double bottom() const {
    return kHeader + static_cast<double>(timeline_.slots.size()) * slot_height_ + nodes() * gap_;
  }
  double nodes() const { return static_cast<double>(timeline_.nodes.size()); }

  void find_colours();
  std::vector<Block> blocks(bool free) const;
  std::string header() const;
  std::string cluster() const;
  std::string labels(const std::vector<Block>& jobs) const;
  std::string node_names() const;
  std::string time_axis() const;
  std::string panel() const;
  std::string step_path(int Timeline::Count::*value, double max) const;

  const Timeline& timeline_;
  std::string title_;
  double span_, left_ = 0, slot_height_ = kTallestSlot, gap_ = 2;
  std::vector<int> node_of_slot_;
  std::map<std::string, double> hues_;  // by application
  std::vector<std::string> colour_of_job_;
};

Plot::Plot(const Timeline& timeline, const std::string& title)
    : timeline_(timeline), title_(title), span_(std::max(timeline.end - timeline.begin, 1e-9)) {
  if (title_.empty()) title_ = fmt::format("{} under {}", timeline.workload, timeline.policy);
  std::size_t longest = 4;
  for (std::size_t node = 0; node < timeline.nodes.size(); ++node) {
    longest = std::max(longest, display_width(timeline.nodes[node].name));
    node_of_slot_.resize(node_of_slot_.size() + static_cast<std::size_t>(timeline.nodes[node].gpus),
                         static_cast<int>(node));
  }
  left_ = 40 + std::min(160.0, static_cast<double>(longest) * kCharacter);
  const auto slots = std::max(static_cast<double>(timeline.slots.size()), 1.0);
  gap_ = nodes() > 100 ? 0.5 : 2;
  slot_height_ = std::clamp((kMaxHeight - nodes() * gap_) / slots, 0.3, std::max(kTallestSlot, kMinHeight / slots));
  find_colours();
}

void Plot::find_colours() {
  for (const Timeline::Job& job : timeline_.jobs) hues_.emplace(job.application, 0);
  std::size_t next = 0;
  for (auto& [application, hue] : hues_) {
    hue = kHues[next % kHues.size()] + 13 * static_cast<double>(next / kHues.size());
    ++next;
  }
  std::map<std::string, std::size_t> seen;
  for (const Timeline::Job& job : timeline_.jobs) {
    const double shade = kShades[seen[job.application]++ % kShades.size()];
    colour_of_job_.push_back(hsl_colour(hues_.at(job.application), 0.58, shade));
  }
}

// Merges equal adjacent slots on a node into blocks: the slots without a job if `free` is set, and otherwise the slots
// with a job.
std::vector<Block> Plot::blocks(bool free) const {
  std::vector<Block> all;
  std::map<std::tuple<int, double, double>, std::size_t> above;  // blocks that end with the previous slot
  for (int slot = 0; slot < static_cast<int>(timeline_.slots.size()); ++slot) {
    std::map<std::tuple<int, double, double>, std::size_t> here;
    const bool same_node = slot > 0 && node_of_slot_[slot] == node_of_slot_[slot - 1];
    for (const Timeline::Run& run : timeline_.slots[slot]) {
      const double from = column(run.from), to = column(run.to);
      if ((run.job == Timeline::kFree) != free || to <= from) continue;
      const auto key = std::tuple(run.job, from, to);
      const auto found = above.find(key);
      if (same_node && found != above.end()) {
        ++all[found->second].slots;
        here[key] = found->second;
      } else {
        here[key] = all.size();
        all.push_back({run.job, from, to, slot, 1});
      }
    }
    above = std::move(here);
  }
  return all;
}

std::string Plot::header() const {
  std::string out = svg_text(24, 30, title_, "title");
  const auto peak = std::ranges::max_element(timeline_.counts, {}, &Timeline::Count::waiting);
  out += svg_text(
      24, 48,
      fmt::format("{}, {}; {}; at most {} waiting at a time", counted(timeline_.nodes.size(), "node"),
                  counted(timeline_.slots.size(), "GPU"), counted(timeline_.jobs.size(), "job"), peak->waiting),
      "dim");
  double at = 24;
  const auto entry = [&](const std::string& swatch, const std::string& name) {
    out += swatch + svg_text(at + 35, 70, name, "");
    at += 52 + static_cast<double>(display_width(name)) * kCharacter;
  };
  for (const auto& [application, hue] : hues_) {
    std::string swatch;
    for (int i = 0; i < 3; ++i) {
      swatch += fmt::format("<path fill=\"{}\" d=\"{}\"/>", hsl_colour(hue, 0.58, kShades[i]),
                            svg_rectangle(at + 10 * i, 61, 10, 10));
    }
    if (at < kWidth - 200) entry(swatch, application);
  }
  entry(fmt::format("<path class=\"free\" d=\"{}\"/>", svg_rectangle(at + 10, 61, 20, 10)), "free");
  return out;
}

std::string Plot::cluster() const {
  std::string free;
  for (const Block& block : blocks(true))
    free += svg_rectangle(block.from, y(block.slot), block.to - block.from, block.slots * slot_height_);
  std::string out = fmt::format("<path class=\"free\" d=\"{}\"/>\n", free);

  constexpr double kWideEnough = 4;  // in pixels; narrower blocks are drawn without edges
  const std::vector<Block> jobs = blocks(false);
  std::vector<std::string> wide(timeline_.jobs.size()), narrow(timeline_.jobs.size());
  for (const Block& block : jobs) {
    auto& path = block.to - block.from >= kWideEnough ? wide : narrow;
    path[block.job] += svg_rectangle(block.from, y(block.slot), block.to - block.from, block.slots * slot_height_);
  }
  for (std::size_t job = 0; job < timeline_.jobs.size(); ++job) {
    if (wide[job].empty() && narrow[job].empty()) continue;
    out += fmt::format("<g fill=\"{}\"><title>{}</title>", colour_of_job_[job], xml_text(timeline_.jobs[job].name));
    if (!narrow[job].empty()) out += fmt::format("<path d=\"{}\"/>", narrow[job]);
    if (!wide[job].empty()) out += fmt::format("<path class=\"edge\" d=\"{}\"/>", wide[job]);
    out += "</g>\n";
  }
  return out + labels(jobs);
}

// Writes each job's name once, in the job's largest block, if it fits there.
std::string Plot::labels(const std::vector<Block>& jobs) const {
  constexpr double kText = 8;
  std::map<int, const Block*> largest;
  const auto area = [](const Block& block) { return (block.to - block.from) * block.slots; };
  for (const Block& block : jobs) {
    if (block.slots * slot_height_ < kText + 1) continue;
    const Block*& best = largest[block.job];
    if (best == nullptr || area(block) > area(*best)) best = &block;
  }
  std::string out;
  for (const auto& [job, block] : largest) {
    const std::string& name = timeline_.jobs[job].name;
    if (block->to - block->from < static_cast<double>(display_width(name)) * 0.62 * kText + 6) continue;
    out += svg_text((block->from + block->to) / 2, y(block->slot) + block->slots * slot_height_ / 2 + 3, name, "job",
                    "middle");
  }
  return out;
}

// Writes as many node names as fit.
std::string Plot::node_names() const {
  constexpr double kLine = 12;
  std::string out;
  double last = -kLine;
  std::string type;
  for (const Timeline::Node& node : timeline_.nodes) {
    if (node.gpus == 0) continue;
    const double top = y(node.first_slot), middle = top + node.gpus * slot_height_ / 2;
    if (node.gpu_type != type) {
      out +=
          fmt::format("<text transform=\"translate(16 {})rotate(-90)\" text-anchor=\"end\" class=\"dim\">{}</text>\n",
                      pixels(top), xml_text(node.gpu_type));
      if (!type.empty())
        out += fmt::format("<path class=\"axis\" d=\"M8 {0}H{1}\"/>\n", pixels(top - 1), pixels(left_));
      type = node.gpu_type;
    }
    if (middle - last < kLine) continue;
    out += svg_text(left_ - 6, middle + 4, node.name, "", "end");
    last = middle;
  }
  return out;
}

// Draws up to ten ticks, at multiples of a round time step.
std::string Plot::time_axis() const {
  static constexpr double kSteps[] = {1,    2,    5,    10,    15,    30,    60,    120,    300,    600,     900,
                                      1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2592000, 31536000};
  double step = kSteps[0];
  for (const double wider : kSteps) {
    if (span_ / step > 9) step = wider;
  }
  const double unit = step >= 3600 ? 3600 : step >= 60 ? 60 : 1;
  const char* name = unit == 3600 ? "hours" : unit == 60 ? "minutes" : "seconds";
  const double base = bottom() + kPanelGap + kPanel;
  std::string out;
  for (double at = std::ceil(timeline_.begin / step) * step; at <= timeline_.end; at += step) {
    out += fmt::format("<path class=\"grid\" d=\"M{0} {1}V{2}\"/>\n", pixels(x(at)), pixels(kHeader), pixels(base));
    out += svg_text(x(at), base + 15, fmt::format("{:g}", at / unit), "", "middle");
  }
  out += fmt::format("<path class=\"axis\" d=\"M{} {}H{}\"/>\n", pixels(left_), pixels(base), pixels(kWidth - kRight));
  return out + svg_text((left_ + kWidth - kRight) / 2, base + 32, fmt::format("time in {}", name), "dim", "middle");
}

// Draws the counts as a step function. If several cycles fall into one pixel, the largest count is shown, because peaks
// matter.
std::string Plot::step_path(int Timeline::Count::*value, double max) const {
  const double base = bottom() + kPanelGap + kPanel;
  std::map<int, int> by_column;
  for (const Timeline::Count& count : timeline_.counts) {
    const auto [at, fresh] = by_column.emplace(static_cast<int>(column(count.time)), count.*value);
    if (!fresh) at->second = std::max(at->second, count.*value);
  }
  std::string path;
  int last = -1;
  for (const auto& [at, count] : by_column) {
    if (count == last) continue;
    const double height = base - count / max * kPanel;
    path += last < 0 ? fmt::format("M{} {}", at, pixels(height)) : fmt::format("H{}V{}", at, pixels(height));
    last = count;
  }
  return path + fmt::format("H{}", pixels(column(timeline_.end)));
}

std::string Plot::panel() const {
  int largest = 1;
  for (const Timeline::Count& count : timeline_.counts) largest = std::max({largest, count.running, count.waiting});
  const double magnitude = std::pow(10, std::floor(std::log10(largest)));
  const double tick = std::max(1.0, largest / magnitude > 5   ? 2 * magnitude
                                    : largest / magnitude > 2 ? magnitude
                                                              : magnitude / 2);
  const double max = std::ceil(largest / tick) * tick;
  const double base = bottom() + kPanelGap + kPanel;
  std::string out;
  for (double at = 0; at <= max; at += tick) {
    const double height = base - at / max * kPanel;
    out +=
        fmt::format("<path class=\"grid\" d=\"M{} {}H{}\"/>\n", pixels(left_), pixels(height), pixels(kWidth - kRight));
    out += svg_text(left_ - 6, height + 4, fmt::format("{:g}", at), "", "end");
  }
  out +=
      fmt::format("<text transform=\"translate(16 {})rotate(-90)\" text-anchor=\"middle\" class=\"dim\">jobs</text>\n",
                  pixels(base - kPanel / 2));
  out += fmt::format("<path class=\"waiting\" d=\"{0}V{1}H{2}z\"/>\n", step_path(&Timeline::Count::waiting, max),
                     pixels(base), pixels(column(timeline_.begin)));
  out += fmt::format("<path class=\"running\" d=\"{}\"/>\n", step_path(&Timeline::Count::running, max));
  const double legend = kWidth - kRight - 170, line = bottom() + kPanelGap + 10;
  out += fmt::format("<path class=\"running\" d=\"M{} {}h18\"/>", pixels(legend), pixels(line - 4));
  out += svg_text(legend + 24, line, "running", "");
  out += fmt::format("<path class=\"waiting\" d=\"{}\"/>", svg_rectangle(legend + 88, line - 9, 18, 9));
  return out + svg_text(legend + 112, line, "waiting", "");
}

std::string Plot::svg() const {
  const double height = bottom() + kPanelGap + kPanel + kFooter;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" role=\"img\">\n"
      "<title>{2}</title>\n",
      pixels(kWidth), pixels(std::ceil(height)), xml_text(title_));
  out += kStyle;
  out += fmt::format("<path class=\"page\" d=\"{}\"/>\n", svg_rectangle(0, 0, kWidth, std::ceil(height)));
  return out + header() + time_axis() + cluster() + node_names() + panel() + "</svg>\n";
}

}  // namespace

std::string cluster_plot(const Timeline& timeline, const std::string& title) { return Plot(timeline, title).svg(); }

}  // namespace adaptdl::cli
