// The GPUs of this machine, and who gets which.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace adaptdl::sched {

// The GPUs that programs may use, as CUDA_VISIBLE_DEVICES names them. That variable's own list if it is set
// (`visible`), where an empty one or -1 means none; else one for each device node nvidia<N> in `device_directory`; else
// what nvidia-smi lists, where there is one.
std::vector<std::string> visible_devices(const std::optional<std::string>& visible,
                                         const std::filesystem::path& device_directory = "/dev");

// The device of each of `replicas` replicas; empty if there are no devices. Throws UsageError if there are fewer
// devices than replicas, unless they may `share`, in which case they take turns.
std::vector<std::string> assign_devices(const std::vector<std::string>& devices, int replicas, bool share);

}  // namespace adaptdl::sched
