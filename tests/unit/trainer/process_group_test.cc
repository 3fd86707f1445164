#include "adaptdl/torch/process_group.h"

#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/generation.h"
#include "adaptdl/signal.h"
#include "error_of.h"
#include "loop/process_exit.h"
#include "replica_processes.h"
#include "support/form_timeout.h"
#include "support/regroup.h"
#include "temporary_directory.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

namespace process_group_test {

namespace {

namespace generation = adaptdl::generation;
using adaptdl::collective::CollectiveError;
using adaptdl::internal::GroupUser;
using ::testing::error_of;
using ::testing::says;

constexpr int kReplicas = 3;
constexpr int kVictim = 1;

// Exchanges a tensor with the others when it joins a group. With `dies`, it kills its process instead, once all others
// have formed the group, which each of them shows by writing a byte to the pipe `formed`.
struct User final : GroupUser {
  User(bool dies_here, const std::array<int, 2>& formed_pipe) : dies(dies_here), formed(formed_pipe) {}
  void leave_group() override {}
  void join_group() override {
    char byte = 0;
    if (dies) {
      for (int other = 1; other < kReplicas; ++other) EXPECT(::read(formed[0], &byte, 1) == 1);
      std::raise(SIGKILL);
    }
    EXPECT(::write(formed[1], &byte, 1) == 1);
    met = true;
    std::vector<at::Tensor> tensors = {torch::ones({1})};
    adaptdl::process_group().allreduce(tensors)->wait();
  }
  const bool dies;
  const std::array<int, 2> formed;
  bool met = false;
};

// Returns a generation with the same members.
generation::Generation next_generation(int size) {
  generation::Generation next{.number = 1, .replicas = {}};
  const auto port = static_cast<std::uint16_t>(adaptdl::env::master_port());
  for (int rank = 0; rank < size; ++rank)
    next.replicas.push_back({.id = fmt::format("0-{}", rank), .address = "127.0.0.1", .port = port});
  return next;
}

// Brings the members of the next generation to the point where they have met and are about to form their process group.
void begin(int rank) {
  ::setenv("ADAPTDL_REPLICA_ID", fmt::format("0-{}", rank).c_str(), 1);
  adaptdl::init_process_group("gloo");
  adaptdl::internal::leave_process_group();
  generation::form(next_generation(kReplicas), {});
}

bool throws_loss() {
  try {
    adaptdl::internal::join_process_group();
  } catch (const CollectiveError&) {
    return true;
  }
  return false;
}

std::set<std::string> threads() {
  std::set<std::string> paths;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/task")) paths.insert(each.path());
  return paths;
}

bool blocks_sigpipe(const std::string& thread) {
  std::ifstream status(thread + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigBlk:")) return (std::stoull(line.substr(7), nullptr, 16) >> (SIGPIPE - 1) & 1) != 0;
  return false;
}

}  // namespace

TEST_CASE("a peer that dies while the objects that use a new process group join it is reported as lost") {
  std::array<int, 2> formed{};
  REQUIRE(::pipe(formed.data()) == 0);
  const auto codes = testing::run_replicas(kReplicas, [&formed](int rank) {
    begin(rank);
    User user(rank == kVictim, formed);
    EXPECT(throws_loss());
    EXPECT(user.met);
  });
  CHECK(codes == std::vector<int>{0, 128 + SIGKILL, 0});
}

TEST_CASE("a stop ends a replica that is waiting for others to connect, after a grace period" *
          doctest::test_suite("slow")) {
  for (const int rank_that_waits : {0, 1}) {
    const auto began = std::chrono::steady_clock::now();
    const auto codes = ::testing::run_replicas(2, [&](int rank) {
      if (rank != rank_that_waits) return;  // never connects
      adaptdl::signal::install();
      adaptdl::internal::connect_grace = std::chrono::milliseconds(200);
      // The exit code shows that this handler was called, and that the signal's default action was not taken.
      adaptdl::internal::set_exit_handler([](int code) { ::_exit(code == 143 ? 7 : 8); });
      std::thread([] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        ::kill(::getpid(), SIGTERM);
      }).detach();
      adaptdl::init_process_group("gloo");
    });
    CHECK(codes.at(static_cast<std::size_t>(rank_that_waits)) == 7);
    CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(30));
  }
}

TEST_CASE("a replica that receives SIGTERM before the others connect still connects to them in the grace period" *
          doctest::test_suite("slow")) {
  testing::expect_replicas(2, [](int rank) {
    adaptdl::signal::install();
    adaptdl::internal::connect_grace = std::chrono::minutes(1);
    if (rank == 0) std::raise(SIGTERM);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(500));
    adaptdl::init_process_group("gloo");
    EXPECT((adaptdl::signal::stop_signal() == SIGTERM) == (rank == 0));
    adaptdl::destroy_process_group();
  });
}

TEST_CASE("all threads that init_process_group starts block SIGPIPE") {
  testing::expect_replicas(2, [](int) {
    ::signal(SIGPIPE, SIG_DFL);
    const std::set<std::string> before = threads();
    adaptdl::init_process_group("gloo");
    const std::set<std::string> after = threads();
    EXPECT(after.size() > before.size());
    for (const std::string& thread : after) EXPECT(blocks_sigpipe(thread) != before.contains(thread));
  });
}

TEST_CASE("a peer that dies while a process group is forming does not block the others" * doctest::test_suite("slow")) {
  const auto codes = testing::run_replicas(kReplicas, [](int rank) {
    ::setenv("ADAPTDL_COLLECTIVE_TIMEOUT", "30m", 1);
    begin(rank);
    adaptdl::internal::form_timeout = std::chrono::seconds(1);
    if (rank == kVictim) {
      adaptdl::collective::broadcast(nullptr);  // in this call, rank 0 sends the port
      std::raise(SIGKILL);
    }
    EXPECT(throws_loss());
  });
  CHECK(codes == std::vector<int>{0, 128 + SIGKILL, 0});
}

// Starts a broadcast of one replica's tensor to all.
c10::intrusive_ptr<c10d::Work> broadcast(const at::Tensor& tensor, int from) {
  std::vector<at::Tensor> tensors = {tensor};
  c10d::BroadcastOptions options;
  options.rootRank = from;
  return adaptdl::process_group().broadcast(tensors, options);
}

// Returns the process ID of the replica with this rank.
pid_t process_of(int rank) {
  const auto pid = torch::tensor({static_cast<std::int64_t>(::getpid())});
  broadcast(pid, rank)->wait();
  return static_cast<pid_t>(pid.item<std::int64_t>());
}

void wait_to_be_killed() {
  for (;;) ::pause();
}

// With Gloo's own connections, the operation would fail only after the timeout.
#if defined(ADAPTDL_GLOO_PAIRS_LISTEN) || defined(ADAPTDL_GLOO_DEVICE_LISTENS)
TEST_CASE("an operation fails if a peer dies in the middle of a message") {
  // On a busy machine, the whole message may arrive before its sender is killed; then the test is repeated.
  constexpr int kCameWhole = 3;
  std::vector<int> codes;
  for (int attempt = 0; attempt < 50 && (attempt == 0 || codes[0] == kCameWhole); ++attempt) {
    codes = testing::run_replicas(2, [](int rank) {
      adaptdl::init_process_group("gloo");
      const pid_t victim = process_of(1);
      const auto tensor = torch::full({32 << 20}, rank, torch::kFloat);
      const auto work = broadcast(tensor, 1);
      if (rank == 1) wait_to_be_killed();
      const volatile float* const values = tensor.data_ptr<float>();
      while (values[0] == 0) {
      }
      ::kill(victim, SIGKILL);
      bool thrown = false;
      try {
        work->wait();
      } catch (const std::exception&) {
        thrown = true;
      }
      if (!thrown && values[tensor.numel() - 1] != 0) std::_Exit(kCameWhole);
      EXPECT(thrown);
    });
  }
  CHECK(codes == std::vector<int>{0, 128 + SIGKILL});
}
#endif

TEST_CASE("the loss of a peer ends all operations, including those that are waiting for a live peer") {
  const auto codes = testing::run_replicas(3, [](int rank) {
    adaptdl::init_process_group("gloo");
    const pid_t silent = process_of(2), victim = process_of(1);
    adaptdl::internal::tolerate_losses();
    if (rank != 0) wait_to_be_killed();
    const auto waits = broadcast(torch::ones({1}), 2), fails = broadcast(torch::ones({1}), 1);
    ::kill(victim, SIGKILL);
    fails->wait();
    EXPECT(adaptdl::internal::group_is_broken());
    waits->wait();
    ::kill(silent, SIGKILL);
  });
  CHECK(codes[0] == 0);
}

TEST_CASE("a peer that dies while the first process group is forming is reported in one line" *
          doctest::test_suite("slow")) {
  const auto codes = testing::run_replicas(2, [](int rank) {
    adaptdl::internal::form_timeout = std::chrono::seconds(1);
    if (rank == 1) {
      adaptdl::collective::initialize();
      adaptdl::collective::broadcast(nullptr);  // in this call, rank 0 sends the port
      std::raise(SIGKILL);
    }
    std::string error;
    try {
      adaptdl::init_process_group("gloo");
    } catch (const CollectiveError& lost) {
      error = lost.what();
    }
    EXPECT(!error.empty() && error.find('\n') == std::string::npos);
  });
  CHECK(codes == std::vector<int>{0, 128 + SIGKILL});
}

TEST_CASE("replicas connect through a file that only their user can read and that is removed afterwards" *
          doctest::test_suite("slow")) {
  const testing::TemporaryDirectory directory;
  const auto file = directory.path() / "the address";
  // An earlier job left a file with an address at which no process listens.
  std::ofstream(file) << R"({"host": "127.0.0.1", "port": 1, "secret": "0123456789abcdef0123456789abcdef"})";
  struct stat earlier {};
  REQUIRE(::stat(file.c_str(), &earlier) == 0);
  REQUIRE((earlier.st_mode & 0777) != 0600);
  testing::expect_replicas(kReplicas, [&](int rank) {
    ::setenv("ADAPTDL_MASTER_PORT", "1", 1);
    ::setenv("ADAPTDL_MASTER_ADDR", "localhost", 1);
    // Rank 1 checks the file that rank 0 wrote, before rank 2 connects.
    std::jthread looks([&] {
      struct stat written {};
      while (rank == 1 && (::stat(file.c_str(), &written) != 0 || written.st_ino == earlier.st_ino))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (rank != 1) return;
      EXPECT((written.st_mode & 0777) == 0600);
      std::ifstream in(file);
      EXPECT(says(std::string(std::istreambuf_iterator<char>(in), {}), R"("host":"localhost")"));
      std::ofstream(directory.path() / "seen");
    });
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    while (rank == 2 && !std::filesystem::exists(directory.path() / "seen"))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    adaptdl::init_process_group("gloo", "file://" + file.string(), kReplicas, rank);
    std::vector<at::Tensor> tensors = {torch::ones({1})};
    adaptdl::process_group().allreduce(tensors)->wait();
    EXPECT(tensors[0].item<float>() == kReplicas);
    adaptdl::destroy_process_group();
  });
  CHECK_FALSE(std::filesystem::exists(file));
  testing::expect_replicas(1, [&](int) {
    EXPECT(says(error_of<adaptdl::Error>([&] { adaptdl::init_process_group("gloo", "file:///nowhere/file", 2, 0); }),
                "cannot write '/nowhere/file': No such file or directory"));
  });
  for (const int rank : {0, 1}) {
    testing::expect_replicas(1, [&](int) {
      std::ofstream(directory.path() / "notes") << "precious";
      const auto notes = "file://" + (directory.path() / "notes").string();
      EXPECT(says(error_of<adaptdl::Error>([&] { adaptdl::init_process_group("gloo", notes, 2, rank); }),
                  "does not contain the address of rank 0; use another file"));
      EXPECT(std::filesystem::file_size(directory.path() / "notes") == 8);
    });
  }
  testing::expect_replicas(1, [&](int) {
    ::setenv("ADAPTDL_CONNECT_TIMEOUT", "1", 1);
    const auto missing = "file://" + (directory.path() / "missing").string();
    EXPECT(says(error_of<CollectiveError>([&] { adaptdl::init_process_group("gloo", missing, 2, 1); }),
                "replica 1 did not find '" + (directory.path() / "missing").string()));
  });
}

TEST_CASE("invalid settings are rejected before the replicas connect") {
  const auto error_with = [](const std::string& init_method) {
    return error_of<adaptdl::UsageError>([&] { adaptdl::init_process_group("gloo", init_method, 1, 0); });
  };
  testing::expect_replicas(
      1, [&](int) { EXPECT(says(error_with("file://x"), "env://, tcp://HOST:PORT or file:///PATH")); });
  testing::expect_replicas(1, [&](int) { EXPECT(error_with("env://") == ""); });
  testing::expect_replicas(1, [&](int) {
    ::setenv("ADAPTDL_CHECKPOINT_EVERY", "5x", 1);
    EXPECT(says(error_with("env://"), "ADAPTDL_CHECKPOINT_EVERY"));
  });
}

}  // namespace process_group_test
