#include "local/devices/devices.h"

#include <doctest/doctest.h>

#include <fstream>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "temporary_directory.h"

namespace devices_test {

using namespace adaptdl;
using Devices = std::vector<std::string>;

TEST_CASE("CUDA_VISIBLE_DEVICES determines the devices if it is set") {
  CHECK(sched::visible_devices("2,0") == Devices{"2", "0"});
  CHECK(sched::visible_devices(" GPU-8a5 , MIG-1/2/3") == Devices{"GPU-8a5", "MIG-1/2/3"});
  CHECK(sched::visible_devices("").empty());
  CHECK(sched::visible_devices("-1").empty());
  CHECK(sched::visible_devices("1,-1,2") == Devices{"1"});  // as CUDA interprets it
}

TEST_CASE("device nodes are counted and numbered from 0, independently of their names") {
  const testing::TemporaryDirectory directory;
  for (const char* name : {"nvidia3", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia", "tty0"})
    std::ofstream(directory.path() / name);
  CHECK(sched::visible_devices(std::nullopt, directory.path()) == Devices{"0", "1"});
}

TEST_CASE("each replica gets its own device") {
  CHECK(sched::assign_devices({"4", "5", "6"}, 2, false) == Devices{"4", "5"});
  CHECK(sched::assign_devices({}, 2, false).empty());
}

TEST_CASE("more replicas than devices are rejected unless sharing is allowed") {
  CHECK_GOLDEN(::testing::error_of<UsageError>([&] { sched::assign_devices({"0"}, 2, false); }));
  CHECK(sched::assign_devices({"a", "b"}, 5, true) == Devices{"a", "b", "a", "b", "a"});
}

}  // namespace devices_test
