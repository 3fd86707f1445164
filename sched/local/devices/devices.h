// Finds the GPUs of this machine, and assigns them to replicas.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace adaptdl::sched {

// Returns the GPUs that programs may use, with the same names as in CUDA_VISIBLE_DEVICES. If that variable is set
// (`visible`), returns the GPUs that it lists; an empty list or -1 means no GPUs. Otherwise, returns a GPU for each
// device node nvidia<N> in `device_directory` or, if there are none, the GPUs that nvidia-smi lists if it is installed.
std::vector<std::string> visible_devices(const std::optional<std::string>& visible,
                                         const std::filesystem::path& device_directory = "/dev");

// Returns the device for each of `replicas` replicas, or an empty list if there are no devices. If there are fewer
// devices than replicas, assigns the devices in turn if `share` is true, and throws UsageError otherwise.
std::vector<std::string> assign_devices(const std::vector<std::string>& devices, int replicas, bool share);

}  // namespace adaptdl::sched
