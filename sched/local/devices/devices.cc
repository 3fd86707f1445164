#include "local/devices/devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string_view>

#include "adaptdl/error.h"

namespace adaptdl::sched {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> devices;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ',');) {
    std::erase_if(item, [](unsigned char c) { return std::isspace(c) != 0; });
    // CUDA ignores everything from the first invalid entry on. The usual invalid entry is -1.
    if (item.empty() || item.front() == '-') break;
    devices.push_back(item);
  }
  return devices;
}

int count_device_nodes(const fs::path& directory) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename();
    const std::string_view prefix = "nvidia";
    if (name.size() > prefix.size() && name.starts_with(prefix) &&
        std::all_of(name.begin() + prefix.size(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; })) {
      ++count;
    }
  }
  return count;
}

// If the driver has no device nodes of its own (WSL), nvidia-smi still lists the GPUs.
int count_by_nvidia_smi() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      ::popen("command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null", "re"), ::pclose);
  if (!pipe) return 0;
  int count = 0;
  char line[512];
  while (std::fgets(line, sizeof line, pipe.get()) != nullptr)
    count += std::string_view(line).starts_with("GPU ") ? 1 : 0;
  return count;
}

}  // namespace

std::vector<std::string> visible_devices(const std::optional<std::string>& visible, const fs::path& device_directory) {
  if (visible) return split_list(*visible);
  int count = count_device_nodes(device_directory);
  if (count == 0) count = count_by_nvidia_smi();
  // CUDA numbers the devices that a container may use from 0, regardless of the names of their device nodes.
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) devices.push_back(std::to_string(i));
  return devices;
}

std::vector<std::string> assign_devices(const std::vector<std::string>& devices, int replicas, bool share) {
  std::vector<std::string> assigned;
  if (devices.empty()) return assigned;
  const auto available = static_cast<int>(devices.size());
  if (replicas > available && !share) {
    throw UsageError(fmt::format(
        "{} replicas need {} GPUs, but only {} {} available; use fewer replicas, or --backend gloo to share GPUs",
        replicas, replicas, available, available == 1 ? "is" : "are"));
  }
  for (int i = 0; i < replicas; ++i) assigned.push_back(devices[static_cast<std::size_t>(i % available)]);
  return assigned;
}

}  // namespace adaptdl::sched
