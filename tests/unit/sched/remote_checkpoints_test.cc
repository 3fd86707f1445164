// Tests checkpoints that are copied between a run's directory and nodes that do not share it.
#include "local/replica/remote_checkpoints.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/error.h"
#include "remote_checkpoints_support.h"
#include "remote_host_support.h"

namespace remote_checkpoints_test {

using namespace remote_checkpoints_support;
using namespace remote_host_support;

namespace {

// `save N [SIZE]` saves 3 MB, which need several messages, or another size as checkpoint N of a runtime without
// manifests; `report N` reports it.
constexpr const char* kSave = R"(
save() {
  mkdir "$ADAPTDL_CHECKPOINT_PATH/.new" && head -c ${2:-3000000} /dev/zero | tr '\0' "$1" >"$ADAPTDL_CHECKPOINT_PATH/.new/state" &&
    : >"$ADAPTDL_CHECKPOINT_PATH/.new/empty" &&
    mv "$ADAPTDL_CHECKPOINT_PATH/.new" "$ADAPTDL_CHECKPOINT_PATH/checkpoint-$1"
}
report() { echo "{\"event\": \"checkpoint\", \"path\": \"$ADAPTDL_CHECKPOINT_PATH/checkpoint-$1\"}" >&$ADAPTDL_STATUS_FD; }
)";

// Returns the directories in which replica servers store checkpoints.
std::vector<fs::path> node_directories(const Scene& scene) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(scene.links.directory())) {
    if (entry.path().filename().string().starts_with(".adaptdl-checkpoints-")) found.push_back(entry.path());
  }
  return found;
}

// Waits until the server of the device has handled all messages so far, and lets the host handle the answers.
void exchange_messages(Scene& scene, const std::string& device) {
  for (int i = 0; i < 20; ++i) scene.host.free_port(device);
}

// Returns the directory of the only replica server, which serves device "a".
fs::path node_directory(Scene& scene) {
  exchange_messages(scene, "a");
  const std::vector<fs::path> found = node_directories(scene);
  REQUIRE(found.size() == 1);
  return found.front();
}

}  // namespace

TEST_CASE("a replica's checkpoint is stored before its report and its exit status are delivered" *
          doctest::test_suite("slow")) {
  const Directory checkpoints;
  Scene scene(std::string(kSave) + "save 1 10000000; report 1; exit 143", {"a"}, checkpoints.path());
  const Replica& replica = scene.start(0, "a", 0);
  const fs::path copy = checkpoints / "checkpoint-1";
  bool early = false;
  REQUIRE(scene.eventually([&] {
    early = early || ((!scene.reports[0].empty() || !scene.ends.empty()) && !fs::exists(copy));
    return replica.gone();
  }));
  CHECK_FALSE(early);
  CHECK(scene.reports[0] == std::vector<json>{{{"event", "checkpoint"}, {"path", copy.string()}}});
  CHECK(scene.ends[0].status == ExitStatus{.signalled = false, .code = 143});
  const std::string content = read_all(copy / "state");
  CHECK(content.size() == 10'000'000);
  CHECK(content.find_first_not_of('1') == std::string::npos);
  CHECK(fs::file_size(copy / "empty") == 0);
  CHECK(scene.lines.notices.empty());
}

TEST_CASE("a checkpoint that no replica reports is copied when the replica ends") {
  const Directory checkpoints;
  Scene scene(std::string(kSave) + "save 1", {"a"}, checkpoints.path());
  const Replica& replica = scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(fs::exists(checkpoints / "checkpoint-1/state"));
}

TEST_CASE("if checkpoints are saved faster than they can be copied, the newest one is copied, and all are reported" *
          doctest::test_suite("slow")) {
  const Directory checkpoints;
  Scene scene(std::string(kSave) + "for i in 1 2 3 4; do save $i; report $i; done", {"a"}, checkpoints.path());
  const Replica& replica = scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(read_all(checkpoints / "checkpoint-4/state").starts_with("4"));
  CHECK(scene.reports[0].size() == 4);
}

TEST_CASE("replicas start once the newest checkpoint has reached every node" * doctest::test_suite("slow")) {
  const Directory checkpoints;
  checkpoints.add(2, "old");
  checkpoints.add(3, std::string(10'000'000, 'x'));
  Scene scene(R"(ls "$ADAPTDL_CHECKPOINT_PATH"; wc -c <"$ADAPTDL_CHECKPOINT_PATH/checkpoint-3/state")", {"a", "b"},
              checkpoints.path());
  const Replica& first = scene.start(0, "a", 0);
  const Replica& second = scene.start(1, "b", 1);
  REQUIRE(scene.eventually([&] { return first.gone() && second.gone(); }));
  for (const int rank : {0, 1}) CHECK(scene.lines.out[rank] == "checkpoint-3\n10000000\n");
  CHECK(read_all(checkpoints / "checkpoint-2/state") == "old");  // nothing was saved, so nothing was deleted
}

TEST_CASE("a replica that joins running replicas does not wait for a checkpoint") {
  const Directory checkpoints;
  checkpoints.add(3, "x");
  Scene scene(R"(ls "$ADAPTDL_CHECKPOINT_PATH" | wc -l)", {"a"}, checkpoints.path());
  const Replica& replica = scene.start(0, "a", 0, 1);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(scene.lines.out[0] == "0\n");
}

TEST_CASE("each start of all replicas continues from the newest checkpoint of the run, wherever it was saved" *
          doctest::test_suite("slow")) {
  const Directory checkpoints;
  Scene scene(
      std::string(kSave) +
          R"(ls "$ADAPTDL_CHECKPOINT_PATH"; [ $ADAPTDL_REPLICA_RANK = 1 ] || save $((ADAPTDL_NUM_RESTARTS + 1)))",
      {"a", "b"}, checkpoints.path());
  for (int restarts = 0; restarts < 3; ++restarts) {
    // The replicas swap nodes at each restart.
    const std::vector<std::string> devices =
        restarts % 2 == 0 ? std::vector<std::string>{"a", "b"} : std::vector<std::string>{"b", "a"};
    if (restarts > 0) scene.host.begin();
    const std::size_t before = scene.replicas.size();
    for (int rank = 0; rank < 2; ++rank) {
      const ReplicaPlace place{
          .rank = rank, .size = 2, .restarts = restarts, .device = devices[static_cast<std::size_t>(rank)]};
      scene.replicas.push_back(scene.host.start(rank, place, [](const Replica&, const json&) {}));
    }
    REQUIRE(scene.eventually([&] { return scene.replicas[before]->gone() && scene.replicas[before + 1]->gone(); }));
    scene.replicas.clear();
  }
  for (const int rank : {0, 1}) CHECK(scene.lines.out[rank] == "checkpoint-1\ncheckpoint-2\n");
  CHECK(fs::exists(checkpoints / "checkpoint-3"));
}

TEST_CASE("a replica that is stopped or killed while the checkpoint is copied never starts" *
          doctest::test_suite("slow")) {
  for (const bool all : {false, true}) {
    const Directory checkpoints;
    checkpoints.add(3, std::string(3'000'000, 'x'));
    Scene scene("echo started", {"a"}, checkpoints.path());
    Replica& replica = scene.start(0, "a", 0);
    all ? scene.host.kill_all() : replica.ask_to_stop();
    REQUIRE(scene.eventually([&] { return replica.gone(); }));
    CHECK_FALSE(is_failure(scene.ends[0]));
    CHECK(scene.ends[0].status == ExitStatus{.signalled = true, .code = all ? SIGKILL : SIGTERM});
    // A replica that is started later prints a line, but the one that was stopped or killed prints none.
    const Replica& later = scene.start(1, "a", 1);
    REQUIRE(scene.eventually([&] { return later.gone(); }));
    CHECK(scene.lines.out[0].empty());
    CHECK(scene.lines.out[1] == "started\n");
  }
}

TEST_CASE("a replica that is killed while its checkpoint is copied ends without delay") {
  const Directory checkpoints;
  Scene scene(std::string(kSave) + "save 1; report 1; save 2; sleep 1000", {"a"}, checkpoints.path());
  const fs::path directory = node_directory(scene);
  Replica& replica = scene.start(0, "a", 0);
  // Without the host's answers, the copy makes no progress.
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (!fs::exists(directory / "checkpoint-2") && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(10ms);
  replica.kill(false);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(scene.ends[0].status == ExitStatus{.signalled = true, .code = SIGKILL});
  CHECK_FALSE(fs::exists(checkpoints / "checkpoint-2"));
  // The replica's node still sends the checkpoint that was complete before the kill.
  REQUIRE(scene.eventually([&] { return fs::exists(checkpoints / "checkpoint-1"); }));
}

TEST_CASE("a replica that fails ends without delay, and its checkpoint still arrives") {
  const Directory checkpoints;
  Scene scene(std::string(kSave) + "save 1; report 1; exit 3", {"a"}, checkpoints.path());
  const Replica& replica = scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return !scene.ends.empty(); }));
  CHECK(scene.ends[0].status == ExitStatus{.signalled = false, .code = 3});
  REQUIRE(scene.eventually([&] { return replica.gone() && fs::exists(checkpoints / "checkpoint-1"); }));
}

TEST_CASE("replicas that are asked to stop end once their last checkpoint has been copied" *
          doctest::test_suite("slow")) {
  const Directory checkpoints;
  Scene scene(std::string(kSave) +
                  "trap 'save 3; report 3; exit 143' TERM; save 1; report 1; save 2; report 2; "
                  "touch $ADAPTDL_CHECKPOINT_PATH/ready; while :; do sleep 0.02; done",
              {"a"}, checkpoints.path());
  const fs::path directory = node_directory(scene);
  Replica& replica = scene.start(0, "a", 0);
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (!fs::exists(directory / "ready") && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(10ms);
  replica.ask_to_stop();
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(scene.reports[0].size() == 3);
  CHECK(fs::exists(checkpoints / "checkpoint-3"));
  CHECK(scene.lines.notices.empty());
}

TEST_CASE("the bytes of a checkpoint are checked, and a damaged one is passed over in favor of an older one") {
  const Directory checkpoints;
  checkpoints.save(2);
  const auto damage = [&](const std::string& name) {
    std::string text = read_all(checkpoints / name / "number.json");
    text.at(text.find('7')) = '8';
    std::ofstream(checkpoints / name / "number.json") << text;
  };
  damage("checkpoint-1");
  Scene scene(R"(ls "$ADAPTDL_CHECKPOINT_PATH")", {"a"}, checkpoints.path());
  const Replica& replica = scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(scene.lines.out[0] == "checkpoint-0\n");
  REQUIRE(scene.lines.notices.size() == 1);
  CHECK(scene.lines.notices[0].ends_with("using '" + (checkpoints / "checkpoint-0").string() + "' instead"));
  damage("checkpoint-0");
  CHECK_THROWS_AS(scene.host.begin(), checkpoint::CheckpointError);
}

TEST_CASE("the devices of a node share the files of one copy") {
  const Directory checkpoints;
  checkpoints.add(3, std::string(3'000'000, 'x'));
  Scene scene(R"(cd "$ADAPTDL_CHECKPOINT_PATH"; ls; stat -c %i checkpoint-3/state)", {"a", "b", "c"},
              checkpoints.path());
  for (int rank = 0; rank < 3; ++rank) scene.start(rank, std::string(1, static_cast<char>('a' + rank)), rank);
  REQUIRE(scene.eventually([&] { return std::ranges::all_of(scene.replicas, &Replica::gone); }));
  CHECK(scene.lines.out[0].starts_with("checkpoint-3\n"));
  CHECK(scene.lines.out[1] == scene.lines.out[0]);
  CHECK(scene.lines.out[2] == scene.lines.out[0]);
}

TEST_CASE("if a node is lost while the checkpoint is copied to it, the other replicas start" *
          doctest::test_suite("slow")) {
  const Directory checkpoints;
  checkpoints.add(3, std::string(3'000'000, 'x'));
  Scene scene("echo started", {"a", "b"}, checkpoints.path());
  ::kill(scene.links.pid("a"), SIGSTOP);
  const Replica& lost = scene.start(0, "a", 0);
  const Replica& other = scene.start(1, "b", 1);
  exchange_messages(scene, "b");
  scene.host.read();
  CHECK(scene.lines.out[1].empty());
  ::kill(scene.links.pid("a"), SIGKILL);
  REQUIRE(scene.eventually([&] { return lost.gone() && other.gone(); }));
  CHECK(is_failure(scene.ends[0]));
  CHECK(scene.lines.out[1] == "started\n");
}

TEST_CASE("a checkpoint that cannot be stored is reported to the user, and does not end the run") {
  const Directory checkpoints;
  Scene scene(std::string(kSave) + "save 1; report 1; echo continues", {"a"}, checkpoints / "file");
  std::ofstream(checkpoints / "file") << "not a directory";
  const Replica& replica = scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(scene.lines.out[0] == "continues\n");
  CHECK(scene.ends[0].status == ExitStatus{});
  CHECK(scene.reports[0].empty());
  REQUIRE(scene.lines.notices.size() == 1);
  CHECK(scene.lines.notices[0].find((checkpoints / "file").string()) != std::string::npos);
}

TEST_CASE("a node that cannot store the checkpoint fails its replica with the reason") {
  const Directory checkpoints;
  checkpoints.add(3, "x");
  Scene scene("echo started", {"a"}, checkpoints.path());
  const fs::path directory = node_directory(scene);
  fs::remove_all(directory);
  std::ofstream(directory) << "not a directory";
  const Replica& replica = scene.start(0, "a", 0);
  REQUIRE(scene.eventually([&] { return replica.gone(); }));
  CHECK(describe_end(scene.ends[0]).find("could not be started: ") == 0);
  CHECK(describe_end(scene.ends[0]).find(directory.string()) != std::string::npos);
  CHECK(scene.lines.out[0].empty());
}

TEST_CASE("a checkpoint that cannot be read fails the start") {
  const Directory checkpoints;
  checkpoints.add(3, "x");
  fs::create_directory(checkpoints / "checkpoint-3/directory");  // only files are copied
  Scene scene("echo started", {"a"}, checkpoints.path());
  CHECK_THROWS_AS(scene.start(0, "a", 0), Error);
}

TEST_CASE("a node's checkpoints are removed when its server ends, or by the next server") {
  const Directory checkpoints;
  Scene scene(std::string(kSave) + "save 1; sleep 1000", {"a"}, checkpoints.path());
  const fs::path directory = node_directory(scene);
  scene.start(0, "a", 0);
  CHECK(scene.eventually([&] { return fs::exists(directory / "checkpoint-1"); }));
  ::kill(scene.links.pid("a"), SIGKILL);
  REQUIRE(scene.eventually([&] { return scene.host.devices().empty(); }));
  CHECK(fs::exists(directory));
  scene.links.connect("b");
  REQUIRE(scene.eventually([&] { return !fs::exists(directory) && node_directories(scene).size() == 1; }));
  CHECK(scene.links.disconnect("b") == 0);
  CHECK(node_directories(scene).empty());
}

}  // namespace remote_checkpoints_test
