#include "simulator/workload.h"

#include <doctest/doctest.h>

#include "golden.h"
#include "simulator_files.h"

namespace adaptdl::sched::workload_test {
namespace {

const Applications& applications() {
  static const Applications loaded = load_traces(osdi21() / "traces");
  return loaded;
}

std::string wrong(std::string_view rows, std::string_view header = "name,time,application,num_replicas,batch_size") {
  const TemporaryDirectory directory;
  const auto file = directory.write("w.csv", std::string(header).append("\n").append(rows).append("\n"));
  const std::string error = error_of(directory, [&] { load_workload(file, applications()); });
  CHECK(error.find('\n') == std::string::npos);
  return error;
}

TEST_CASE("the paper's workloads have 160 jobs at load 1.0, and a proportional number at other loads") {
  for (const auto& [load, jobs] :
       {std::pair("0.5", 80U), std::pair("1.0", 160U), std::pair("1.5", 240U), std::pair("2.0", 320U)}) {
    for (const char* number : {"1", "3", "5", "6"}) {
      const auto file =
          osdi21() / "workloads" / (std::string("load-") + load) / (std::string("workload-") + number + ".csv");
      CAPTURE(file.string());
      CHECK(load_workload(file, applications()).jobs.size() == jobs);
    }
  }
}

TEST_CASE("a workload is named after its file and keeps the order of its jobs") {
  const TemporaryDirectory directory;
  const Workload workload = load_workload(
      directory.write("mine.v2.csv",
                      "application,name,time,batch_size,num_replicas\nbert,b,20.5,96,4\nncf,a,10,256,1\n"),
      applications());
  CHECK(workload.name == "mine.v2");
  REQUIRE(workload.jobs.size() == 2);
  CHECK(workload.jobs[0].name == "b");
  CHECK(workload.jobs[0].submission_time == 20.5);
  CHECK(workload.jobs[0].application->name() == "bert");
  CHECK(workload.jobs[0].num_replicas == 4);
  CHECK(workload.jobs[0].batch_size == 96);
}

TEST_CASE("the number of replicas and the batch size are optional") {
  const TemporaryDirectory directory;
  const Workload workload =
      load_workload(directory.write("w.csv", "name,time,application\na,0,cifar10\n"), applications());
  CHECK(workload.jobs[0].num_replicas == 1);
  CHECK(workload.jobs[0].batch_size == 128);
  const Workload wide =
      load_workload(directory.write("wide.csv", "name,time,application,num_replicas\na,0,cifar10,8\n"), applications());
  CHECK(wide.jobs[0].batch_size == 256);  // the minimum for 8 replicas
}

TEST_CASE("an invalid workload is rejected with the location of the error") {
  CHECK(wrong("a,0,cifar10,2,256") == "");
  CHECK_GOLDEN(wrong("a,0,cifar,2,256"));
  CHECK_GOLDEN(wrong("a,0,cifar10,2,256\na,1,bert,2,24"));
  CHECK_GOLDEN(wrong(",0,cifar10,2,256"));
  CHECK_GOLDEN(wrong("a,-1,cifar10,2,256"));
  CHECK_GOLDEN(wrong("a,nan,cifar10,2,256"));
  CHECK_GOLDEN(wrong("a,0,cifar10,0,256"));
  CHECK_GOLDEN(wrong("a,0,cifar10,2,64"));
  CHECK_GOLDEN(wrong("a,0,cifar10,2,8192"));
  CHECK_GOLDEN(wrong("a,0,cifar10,16,256"));
  CHECK_GOLDEN(wrong("a,0,cifar10,500", "name,time,application,num_replicas"));
  CHECK_GOLDEN(wrong("a,0", "name,time"));
}

}  // namespace
}  // namespace adaptdl::sched::workload_test
