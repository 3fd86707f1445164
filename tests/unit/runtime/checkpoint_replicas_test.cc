// Tests saving and loading with several replicas, each in its own process.
#include <chrono>

#include "adaptdl/collective.h"
#include "checkpoint_support.h"
#include "golden.h"
#include "held_port.h"

namespace checkpoint_replicas_test {

using namespace checkpoint_test;
namespace collective = adaptdl::collective;

namespace {

// Runs `body(rank)` on `size` connected replicas, and returns their exit statuses by rank.
std::vector<int> run_replicas(int size, const std::function<int(int)>& body, std::size_t max_message = 1 << 20) {
  const testing::HeldPort port;
  std::vector<pid_t> replicas;
  for (int rank = 0; rank < size; ++rank) {
    replicas.push_back(start_child([&, rank] {
      ckpt::reset();
      ::alarm(60);  // a deadlock must fail the test instead of blocking it
      collective::Options options;
      options.master_port = port.number();
      options.rank = rank;
      options.size = size;
      options.max_message = max_message;
      collective::initialize(options);
      return body(rank);
    }));
  }
  std::vector<int> statuses;
  for (const pid_t replica : replicas) statuses.push_back(wait_for(replica));
  return statuses;
}

std::vector<int> all_well(int size) { return std::vector<int>(static_cast<std::size_t>(size), 0); }

// A state with a value that all ranks share and a part that differs by rank. The method named by `fail` throws.
struct Parted : ckpt::State {
  explicit Parted(std::string name) : State(std::move(name)) {}
  void sync() override {
    if (fail == "sync") throw std::runtime_error("sync failed");
  }
  void save(ckpt::Writer& writer) const override {
    if (fail == "save") throw std::runtime_error("save failed");
    writer.json("value", value);
  }
  void load(const ckpt::Reader& reader) override { value = reader.json("value"), replicas = reader.replicas(); }
  bool has_parts() const override { return true; }
  void save_part(ckpt::Writer& writer) const override {
    if (fail == "save_part") throw std::runtime_error("save_part failed");
    writer.json("own", own);
    writer.bytes("padding", std::vector<std::byte>(part_size));
  }
  void load_part(const ckpt::Reader& reader) override { own = reader.json("own"), described = reader.describe(); }
  int value = 0, own = -1, replicas = 0;
  std::size_t part_size = 10;
  std::string fail, described;
};

// Returns the message that save_all_states throws, or "".
template <typename E = ckpt::CheckpointError>
std::string save_error() {
  try {
    ckpt::save_all_states();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("each rank loads its own part, even if the number of replicas has changed") {
  const Directory directory;
  Parted state("generator");
  CHECK(run_replicas(3, [&](int rank) {
          state.value = 5 + rank;
          state.own = 100 + rank;
          const auto path = ckpt::save_all_states();
          return path && *path == directory / "checkpoint-0" ? 0 : 1;
        }) == all_well(3));
  CHECK(ckpt::verify(directory / "checkpoint-0").empty());
  CHECK(fs::exists(directory / "checkpoint-0/generator.rank2.json"));
  CHECK(fs::exists(directory / "checkpoint-0/generator.rank2.safetensors"));
  CHECK(ckpt::list(directory.path())[0].manifest->replicas == 3);
  for (const int size : {1, 2, 4}) {
    CHECK(run_replicas(size, [&](int rank) {
            ckpt::agree();
            if (!ckpt::load_state(state, true)) return 1;
            if (state.value != 5 || state.replicas != 3) return 2;
            if (rank < 3 && !contains(state.described, "rank " + std::to_string(rank) + "'s part")) return 3;
            return state.own == (rank < 3 ? 100 + rank : -1) ? 0 : 4;
          }) == all_well(size));
  }
}

TEST_CASE("a state that throws on one rank fails only that save, on all replicas") {
  const Directory directory;
  Parted first("a"), state("b"), last("c");
  for (const std::string where : {"sync", "save_part", "save"}) {
    CAPTURE(where);
    const int guilty = where == "save" ? 0 : 1;
    CHECK(run_replicas(3, [&](int rank) {
            if (rank == guilty) state.fail = where;
            const std::string expected =
                "no checkpoint was saved: rank " + std::to_string(guilty) + ": state 'b': " + where + " failed";
            const std::string error = save_error();
            if (error != expected) throw std::runtime_error(error);
            state.fail.clear();
            if (!ckpt::save_all_states()) return 2;
            collective::teardown();
            return 0;
          }) == all_well(3));
  }
  CHECK(directory.names() == std::vector<std::string>{"checkpoint-1", "checkpoint-2"});
}

TEST_CASE("a replica that throws while others wait in sync() fails the save on all replicas") {
  struct Summing : ckpt::State {
    Summing() : State("summing") {}
    void sync() override {
      if (fail) throw std::runtime_error("sync failed");
      (void)collective::allreduce(1);
    }
    void save(ckpt::Writer&) const override {}
    void load(const ckpt::Reader&) override {}
    bool fail = false;
  };
  const Directory directory;
  Summing state;
  const Number other("z");
  CHECK(run_replicas(3, [&](int rank) {
          state.fail = rank == 1;
          const std::string error = save_error<adaptdl::Error>();
          return contains(error, rank == 1 ? "rank 1: state 'summing': sync failed" : "replica 1")
                     ? 0
                     : throw std::runtime_error(error);
        }) == all_well(3));
  CHECK(directory.names().empty());
}

TEST_CASE("a save that fails on rank 0 fails on all replicas with the same reason") {
  Directory directory;
  write_file(directory / "file", "x");
  directory.use(directory / "file");
  const Number state("a");
  CHECK(run_replicas(3, [&](int) {
          return contains(save_error(), "rank 0: '" + directory.path().string() + "' is not a directory") ? 0 : 1;
        }) == all_well(3));
}

TEST_CASE("a save fails if replicas have different states or only some have a checkpoint path") {
  const Directory directory;
  CHECK(run_replicas(2, [&](int rank) {
          const Number common("common");
          const Number own(rank == 0 ? "x" : "y");
          const std::string error = save_error();
          return contains(error, R"(rank 0 has the states ["common","x"], but rank 1 has ["common","y"])") ? 0 : 1;
        }) == all_well(2));
  CHECK(run_replicas(2, [&](int rank) {
          if (rank == 1) ::unsetenv("ADAPTDL_CHECKPOINT_PATH");
          return contains(save_error(), "ADAPTDL_CHECKPOINT_PATH is set on rank 0 or rank 1, but not on both") ? 0 : 1;
        }) == all_well(2));
  CHECK(run_replicas(2, [&](int) {
          ::unsetenv("ADAPTDL_CHECKPOINT_PATH");
          return ckpt::save_all_states() ? 1 : 0;
        }) == all_well(2));
  CHECK(directory.names().empty());
}

TEST_CASE("if one replica dies, a save fails on the others") {
  const Directory directory;
  Parted state("a");
  const auto begin = std::chrono::steady_clock::now();
  const auto statuses = run_replicas(3, [&](int rank) {
    struct Dying : ckpt::State {
      explicit Dying(bool d) : State("dying"), dies(d) {}
      void sync() override {
        if (dies) ::raise(SIGKILL);
      }
      void save(ckpt::Writer&) const override {}
      void load(const ckpt::Reader&) override {}
      bool dies;
    } dying(rank == 2);
    const std::string error = save_error<collective::CollectiveError>();
    return contains(error, "replica 2 left") ? 0 : throw std::runtime_error(error);
  });
  CHECK(statuses == std::vector<int>{0, 0, -SIGKILL});
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(25));
  CHECK(directory.names().empty());
}

TEST_CASE("a save fails on all replicas if their parts exceed the message limit of collective calls") {
  const Directory directory;
  Parted state("a");
  state.part_size = 100'000;
  CHECK(run_replicas(
            2, [&](int) { return save_error<adaptdl::Error>().empty() ? 1 : 0; }, 150'000) == all_well(2));
  CHECK(directory.names().empty());
}

TEST_CASE("agree() fails if replicas find different checkpoints, and reports each replica's checkpoint") {
  Directory directory;
  Number state("a");
  REQUIRE(ckpt::save_all_states());
  REQUIRE(ckpt::save_all_states());
  fs::copy(directory.path(), directory.root() / "other", fs::copy_options::recursive);
  flip_bit(directory.root() / "other/checkpoint-1/a.json", 2);
  fs::create_directory(directory.root() / "empty");
  CHECK(run_replicas(3, [&](int rank) {
          if (rank == 1) ::setenv("ADAPTDL_CHECKPOINT_PATH", (directory.root() / "other").c_str(), 1);
          if (rank == 2) ::setenv("ADAPTDL_CHECKPOINT_PATH", (directory.root() / "empty").c_str(), 1);
          const std::string error = error_of([] { ckpt::agree(); });
          if (!contains(error, "rank 0 has checkpoint-1 ")) return 1;
          if (!contains(error, "rank 1 has checkpoint-0 ") || !contains(error, "checkpoint-1/a.json' is damaged"))
            return 2;
          return contains(error, "rank 2 has no checkpoint") ? 0 : 3;
        }) == all_well(3));
  CHECK(run_replicas(2, [&](int rank) {
          if (rank == 1) ::setenv("ADAPTDL_CHECKPOINT_PATH", (directory / "checkpoint-0/a.json").c_str(), 1);
          return contains(error_of([] { ckpt::agree(); }), "rank 1: cannot read") ? 0 : 1;
        }) == all_well(2));
  CHECK(run_replicas(3, [&](int) { return ckpt::agree(), 0; }) == all_well(3));
}

TEST_CASE("saving fails if several replicas are configured but no process group is initialized") {
  const Directory directory;
  const Number state("a");
  ::setenv("ADAPTDL_NUM_REPLICAS", "2", 1);
  CHECK_GOLDEN(error_of<adaptdl::UsageError>([] { ckpt::save_all_states(); }));
  ::unsetenv("ADAPTDL_NUM_REPLICAS");
  CHECK(directory.names().empty());
}

}  // namespace checkpoint_replicas_test
