#include "command/run/run_plan.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "adaptdl/error.h"
#include "temporary_directory.h"

namespace run_plan_test {

using namespace adaptdl;
using namespace adaptdl::cli;
using namespace std::chrono_literals;

namespace {

const Machine kBare{.search_path = "/usr/bin:/bin"};
const Machine kTwoGpus{.search_path = "/usr/bin:/bin", .devices = {"0", "1"}};

RunOptions options() {
  RunOptions result;
  result.program = {"sh", "-c", "true"};
  return result;
}

void refused(const RunOptions& wrong, const std::string& why, const Machine& machine = kBare) {
  CHECK_THROWS_WITH_AS(make_plan(wrong, machine), why.c_str(), UsageError);
}

}  // namespace

TEST_CASE("by default, a run has one replica per GPU, or one replica without GPUs") {
  const auto bare = make_plan(options(), kBare);
  CHECK(bare.replicas == 1);
  CHECK(bare.devices.empty());
  CHECK(bare.nodes == 1);
  CHECK(bare.master_port == 0);
  CHECK(bare.grace == 30s);
  CHECK(bare.max_restarts == 0);
  CHECK(bare.job_id == "local/sh");
  CHECK(bare.arguments == std::vector<std::string>{"sh", "-c", "true"});
  CHECK_FALSE(bare.checkpoints.has_value());
  const auto gpus = make_plan(options(), kTwoGpus);
  CHECK(gpus.replicas == 2);
  CHECK(gpus.devices == std::vector<std::string>{"0", "1"});
}

TEST_CASE("the options of run are applied to its plan") {
  const testing::TemporaryDirectory directory;
  RunOptions all = options();
  all.replicas = "2";
  all.checkpoint = (directory.path() / "c/").string();
  all.checkpoint_every = "90s";
  all.checkpoint_keep = "5";
  all.share = (directory.path() / "s").string();
  all.logs = (directory.path() / "l").string();
  all.backend = "gloo";
  all.name = "my-job_1.0";
  all.nodes = "3";
  all.node_rank = "2";
  all.master = "[::1]:4700";
  all.max_restarts = "4";
  all.grace = "1.5m";
  all.environment = {"A=1", "B=x=y"};
  const auto plan = make_plan(all, kBare);
  CHECK(plan.replicas == 2);
  CHECK(plan.checkpoints == directory.path() / "c");
  CHECK(plan.share == directory.path() / "s");
  CHECK(plan.logs == directory.path() / "l");
  CHECK(std::filesystem::is_directory(directory.path() / "c"));
  CHECK(plan.job_id == "local/my-job_1.0");
  CHECK(plan.nodes == 3);
  CHECK(plan.node_rank == 2);
  CHECK(plan.master_host == "::1");
  CHECK(plan.master_port == 4700);
  CHECK(plan.max_restarts == 4);
  CHECK(plan.grace == 90s);
  CHECK(plan.settings == std::vector<std::pair<std::string, std::string>>{{"ADAPTDL_BACKEND", "gloo"},
                                                                          {"A", "1"},
                                                                          {"B", "x=y"},
                                                                          {"ADAPTDL_CHECKPOINT_EVERY", "90s"},
                                                                          {"ADAPTDL_CHECKPOINT_KEEP", "5"}});
}

TEST_CASE("an invalid number of replicas is rejected") {
  for (const char* wrong :
       {"0", "-1", "two", "1.5", "2x", "", " 2", "99999999999", "0:2", "3:2", ":2", "1:", "1:2:3"}) {
    RunOptions with = options();
    with.replicas = wrong;
    refused(with, std::string("run: --replicas must be auto, an integer from 1 to 1024, or a minimum and maximum as "
                              "MIN:MAX, not '") +
                      wrong + "'");
  }
}

TEST_CASE("the number of GPUs limits the replicas, except with gloo") {
  RunOptions three = options();
  three.replicas = "3";
  refused(three,
          "3 replicas need 3 GPUs, but only 2 are available; use fewer replicas, or --backend gloo to share GPUs",
          kTwoGpus);
  three.backend = "gloo";
  const auto shared = make_plan(three, kTwoGpus);
  CHECK(shared.share_devices);
  CHECK(shared.devices == std::vector<std::string>{"0", "1"});
  Machine prefers_gloo = kTwoGpus;
  prefers_gloo.backend = "gloo";
  three.backend.clear();
  CHECK(make_plan(three, prefers_gloo).replicas == 3);
  three.backend = "nccl";
  refused(three, "run: --backend nccl requires GPUs, but no GPU is available; use --backend gloo");
  three.backend = "mpi";
  refused(three, "run: --backend must be gloo or nccl, not 'mpi'");
}

TEST_CASE("an elastic run uses the available devices and restarts after failures by default") {
  RunOptions elastic = options();
  elastic.replicas = "1:4";
  const auto gpus = make_plan(elastic, kTwoGpus);
  CHECK(gpus.elastic);
  CHECK(gpus.min_replicas == 1);
  CHECK(gpus.replicas == 2);
  CHECK(gpus.max_restarts == 3);
  CHECK(gpus.shares_machine);
  CHECK(gpus.device_kind == sched::DeviceKind::kGpu);
  Machine cores = kBare;
  cores.cores = 3;
  const auto cpu = make_plan(elastic, cores);
  CHECK(cpu.device_kind == sched::DeviceKind::kCpu);
  CHECK(cpu.devices == std::vector<std::string>{"0", "1", "2"});
  CHECK(cpu.replicas == 3);
  elastic.max_restarts = "0";
  CHECK(make_plan(elastic, cores).max_restarts == 0);
  CHECK_FALSE(cpu.start_replicas.has_value());
  elastic.start_replicas = "2";
  CHECK(make_plan(elastic, cores).start_replicas == 2);
  elastic.start_replicas = "5";
  refused(elastic, "run: --start-replicas must be an integer from 1 to 4, not '5'", cores);
  elastic.replicas = "4";
  refused(elastic, "run: --start-replicas requires an elastic run (--replicas MIN:MAX)", cores);
  elastic.start_replicas.clear();
  elastic.replicas = "4:8";
  refused(elastic, "run: 4 replicas need 4 devices, but only 3 are available; use fewer replicas, or --devices 4",
          cores);
  elastic.nodes = "2";
  elastic.node_rank = "0";
  elastic.master = "host:1";
  elastic.no_checkpoint = true;
  elastic.replicas = "1:2";
  refused(elastic,
          "run: --replicas MIN:MAX works only on one machine; with --nodes, use --replicas N, the number of replicas "
          "per machine");
}

TEST_CASE("--devices is a list of devices or, without GPUs, their number") {
  RunOptions with = options();
  with.replicas = "2";
  with.devices = "4";
  const auto four = make_plan(with, kBare);
  CHECK(four.devices == std::vector<std::string>{"0", "1", "2", "3"});
  CHECK(four.shares_machine);
  CHECK_FALSE(four.elastic);
  with.devices = "5,7,a";
  CHECK(make_plan(with, kBare).devices == std::vector<std::string>{"5", "7", "a"});
  with.devices = "1,0";
  CHECK(make_plan(with, kTwoGpus).devices == std::vector<std::string>{"1", "0"});
  with.devices = "0,2";
  refused(with, "run: GPU '2' not found; available GPUs: 0, 1", kTwoGpus);
  with.device_kind = "cpu";
  CHECK(make_plan(with, kTwoGpus).device_kind == sched::DeviceKind::kCpu);
  for (const char* wrong : {"0,0", "0,,1", "a b"}) {
    with.devices = wrong;
    refused(with,
            std::string("run: --devices must be a comma-separated list of different devices, such as 0,2,3, not '") +
                wrong + "'");
  }
  with.devices = "0";
  refused(with, "run: the number in --devices must be an integer from 1 to 1024, not '0'");
  with = options();
  with.device_kind = "tpu";
  refused(with, "run: --device-kind must be gpu or cpu, not 'tpu'");
  with.device_kind = "gpu";
  refused(with, "run: --device-kind gpu requires GPUs, but no GPU is available; use --device-kind cpu");
  with.device_kind = "cpu";
  with.backend = "nccl";
  refused(with, "run: --backend nccl requires GPUs and cannot be used with --device-kind cpu", kTwoGpus);
}

TEST_CASE("--hang-timeout must be a positive duration") {
  RunOptions with = options();
  CHECK_FALSE(make_plan(with, kBare).hang_timeout.has_value());
  with.hang_timeout = "90s";
  CHECK(make_plan(with, kBare).hang_timeout == 90s);
  with.hang_timeout = "0";
  refused(with, "run: --hang-timeout must be greater than 0, such as 10m");
}

TEST_CASE("--nodes requires --node-rank, --master, and --checkpoint or --no-checkpoint") {
  RunOptions with = options();
  with.nodes = "2";
  refused(with,
          "run: --nodes requires --node-rank, different on each machine, and --master HOST:PORT, the same on all");
  with.node_rank = "1";
  with.master = "host:1";
  refused(with, "run: --nodes requires --checkpoint DIR, a directory shared by all machines, or --no-checkpoint");
  with.no_checkpoint = true;
  CHECK(make_plan(with, kBare).node_rank == 1);
  with.node_rank = "2";
  refused(with, "run: --node-rank must be an integer from 0 to 1, not '2'");
  with.node_rank = "0";
  for (const char* wrong : {"host", ":1", "::1:5", "[]:1"}) {
    with.master = wrong;
    refused(with, std::string("run: --master must be HOST:PORT or [IPV6]:PORT, not '") + wrong + "'");
  }
  with.master = "host:0";
  refused(with, "run: the port in --master must be an integer from 1 to 65535, not '0'");
}

TEST_CASE("--token-file must hold one word and be readable only by the user") {
  const testing::TemporaryDirectory directory;
  const std::string file = (directory.path() / "token").string();
  RunOptions with = options();
  with.token_file = file;
  refused(with,
          "run: --token-file works only with several machines (--nodes); on one machine, the run creates its own "
          "token");
  with.nodes = "2";
  with.node_rank = "1";
  with.master = "host:1";
  with.no_checkpoint = true;
  const std::string about = "run: --token-file '" + file + "': ";
  refused(with, about + "No such file or directory");
  const std::string token = "0123456789abcdef";
  const std::string no_word =
      "expected one word of 16 to 1024 printable characters; create one with `openssl rand -hex 16`";
  for (const std::string& text : {std::string(), token.substr(1), token + " " + token, token + "\x7f",
                                  token + "\xc3\xa4", std::string(1025, 'a')}) {
    std::ofstream(file) << text << '\n';
    ::chmod(file.c_str(), 0600);
    refused(with, about + no_word);
  }
  std::ofstream(file) << token << '\n';
  CHECK(make_plan(with, kBare).token == token);
  ::chmod(file.c_str(), 0644);
  refused(with, about + "other users can read the file; run `chmod 600 " + file + "`");
  with.token_file = "/dev/zero";
  refused(with, "run: --token-file '/dev/zero': " + no_word);
  CHECK(make_plan(options(), kBare).token.empty());
}

TEST_CASE("--env NAME passes on the caller's value") {
  RunOptions with = options();
  with.environment = {"SECRET", "EMPTY", "A=1"};
  const Machine machine{.search_path = "/usr/bin:/bin", .environment = {{"SECRET", "x=y"}, {"EMPTY", ""}, {"B", "2"}}};
  const std::vector<std::pair<std::string, std::string>> expected = {{"SECRET", "x=y"}, {"EMPTY", ""}, {"A", "1"}};
  CHECK(make_plan(with, machine).settings == expected);
}

TEST_CASE("conflicting or invalid options of run are rejected") {
  RunOptions with = options();
  with.checkpoint = "/c";
  with.no_checkpoint = true;
  refused(with, "run: --checkpoint and --no-checkpoint cannot be used together");
  with = options();
  with.program.clear();
  refused(with, "run: no program given (see `adaptdl help run`)");
  with = options();
  with.environment = {"ADAPTDL_REPLICA_RANK=1"};
  refused(with, "run: --env cannot set ADAPTDL_REPLICA_RANK, which `adaptdl run` sets itself");
  with.environment = {"=1"};
  refused(with, "run: --env expects NAME=VALUE or NAME, not '=1'");
  with.environment = {"A=1", "SECRET"};
  refused(with, "run: --env SECRET: the variable is not set; export it, or use --env SECRET=VALUE");
  with = options();
  with.name = "a/b";
  refused(with, "run: invalid --name 'a/b': expected up to 63 letters, digits, '.', '_' and '-'");
  with = options();
  with.max_restarts = "-1";
  refused(with, "run: --max-restarts must be an integer from 0 to 1000000, not '-1'");
  with = options();
  with.grace = "soon";
  CHECK_THROWS_AS(make_plan(with, kBare), UsageError);
  with = options();
  with.checkpoint_every = "-5m";
  CHECK_THROWS_AS(make_plan(with, kBare), UsageError);
}

TEST_CASE("an unusable directory is rejected, and a rejected command creates none") {
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "file";
  std::ofstream(file) << "x";
  RunOptions with = options();
  with.checkpoint = file.string();
  refused(with, "run: cannot use --checkpoint '" + file.string() + "': Not a directory");
  with.checkpoint = (directory.path() / "new").string();
  with.program = {"no-such-program-anywhere"};
  CHECK_THROWS_AS(make_plan(with, kBare), UsageError);
  CHECK_FALSE(std::filesystem::exists(directory.path() / "new"));
}

TEST_CASE("a job is named after its program, without special characters") {
  CHECK(plain_name("/a/b/digits") == "digits");
  CHECK(plain_name("./my prog/x y.py") == "x-y.py");
  CHECK(plain_name("") == "program");
  CHECK(plain_name(std::string(100, 'x')).size() == 63);
}

}  // namespace run_plan_test
