// Finds the GPUs of this machine, and assigns them to replicas.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace adaptdl::sched {

// Returns the GPUs that programs may use, as CUDA_VISIBLE_DEVICES names them: the list in that variable (`visible`) if
// it is set, where an empty list or -1 means none; else one for each device node nvidia<N> in `device_directory`; else
// those that nvidia-smi lists, if it is installed.
std::vector<std::string> visible_devices(const std::optional<std::string>& visible,
                                         const std::filesystem::path& device_directory = "/dev");

// Returns the device of each of `replicas` replicas, or an empty list if there are no devices. Throws UsageError if
// there are fewer devices than replicas, unless replicas may `share` devices; they are then assigned in turn.
std::vector<std::string> assign_devices(const std::vector<std::string>& devices, int replicas, bool share);

}  // namespace adaptdl::sched
