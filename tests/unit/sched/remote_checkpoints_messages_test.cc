// Tests which messages RemoteCheckpoints sends to replica servers, and how it handles theirs.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "local/replica/remote_checkpoints.h"
#include "remote_checkpoints_support.h"
#include "remote_host_support.h"

namespace remote_checkpoints_messages_test {

using namespace remote_checkpoints_support;
using namespace remote_host_support;

TEST_CASE("a checkpoint that arrives after another node has saved a newer one is dropped") {
  const Directory checkpoints;
  const LaunchPlan plan = Scene::make_plan("", checkpoints.path());
  Lines lines;
  std::vector<std::string> answers;
  const auto answer = [&](const std::string& device, const json& message) {
    answers.push_back(device + " " + message.value("part", "start"));
  };
  RemoteCheckpoints remote(plan, lines, answer, [](const std::string&, int, const std::string&) {});
  const auto take = [&](const std::string& device, json message) {
    message["copy"] = 1;
    remote.take(device, message);
  };
  const auto begin = [&](const std::string& device, const std::string& name) {
    take(device, {{"part", "begin"}, {"name", name}, {"size", 3}});
    take(device, {{"part", "file"}, {"name", "state"}});
  };
  const json bytes = {{"part", "bytes"}, {"base64", "YWJj"}}, end = {{"part", "end"}};
  begin("a", "checkpoint-4");
  begin("b", "checkpoint-5");
  take("a", bytes);
  take("a", end);
  begin("a", "checkpoint-6");
  take("a", bytes);
  take("a", end);
  take("b", bytes);
  take("b", end);
  CHECK(answers ==
        std::vector<std::string>{"a received", "a stored", "a received", "a stored", "b received", "b stored"});
  CHECK_FALSE(fs::exists(checkpoints / "checkpoint-4"));
  CHECK_FALSE(fs::exists(checkpoints / "checkpoint-6"));
  CHECK(read_all(checkpoints / "checkpoint-5/state") == "abc");
  // A replica that starts on the device later saves newer checkpoints.
  remote.start("a", "10.0.0.1", {{"do", "start"}, {"number", 2}}, true);
  begin("a", "checkpoint-7");
  take("a", bytes);
  take("a", end);
  CHECK(fs::exists(checkpoints / "checkpoint-7"));
}

TEST_CASE("the loss of the last checkpoint is not hidden by an earlier one that was stored") {
  const Directory checkpoints;
  const LaunchPlan plan = Scene::make_plan("", checkpoints.path());
  Lines lines;
  const auto ignore = [](const std::string&, const json&) {};
  RemoteCheckpoints remote(plan, lines, ignore, [](const std::string&, int, const std::string&) {});
  int copy = 0;
  const auto take = [&](const std::string& device, json message) {
    message["copy"] = copy;
    remote.take(device, message);
  };
  const auto save = [&](const std::string& device, int number, const json& end) {
    ++copy;
    take(device, {{"part", "begin"}, {"name", fmt::format("checkpoint-{}", number)}, {"size", 0}});
    take(device, {{"part", "file"}, {"name", "state"}});
    take(device, end);
  };
  const json stored = {{"part", "end"}}, failed = {{"part", "abort"}, {"why", "No space left on device"}};
  const json replaced = {{"part", "abort"}, {"why", ""}};
  save("a", 1, stored);
  CHECK(remote.has_last());
  save("a", 2, failed);
  CHECK_FALSE(remote.has_last());
  save("a", 3, stored);
  CHECK(remote.has_last());
  save("a", 4, replaced);  // by a newer checkpoint, which follows
  CHECK(remote.has_last());
  save("b", 5, failed);
  save("a", 6, stored);  // is dropped, because the first replica is now on another device
  CHECK_FALSE(remote.has_last());
  save("b", 7, stored);
  save("a", 8, failed);
  CHECK(remote.has_last());
  remote.begin();
  CHECK(remote.has_last());
}

TEST_CASE("a device receives its own copy of the checkpoint if no device of its node has one that it can share") {
  const Directory checkpoints;
  checkpoints.add(3, "x");
  const LaunchPlan plan = Scene::make_plan("", checkpoints.path());
  Lines lines;
  std::vector<std::string> sent;
  std::map<std::string, int> copies;  // by device
  const auto send = [&](const std::string& device, const json& message) {
    sent.push_back(device + " " + message.value("part", "start"));
    copies[device] = message.value("copy", 0);
  };
  RemoteCheckpoints remote(plan, lines, send, [](const std::string&, int, const std::string&) {});
  const auto answer = [&](const std::string& device, json message) {
    message["copy"] = copies.at(device);
    remote.take(device, message);
  };
  const json stored = {{"part", "stored"}, {"path", "/somewhere/checkpoint-3"}};
  const json failed = {{"part", "failed"}, {"why", "not on the same file system"}};
  using Sent = std::vector<std::string>;
  const auto start = [&](const std::string& device, const std::string& address, int number) {
    remote.start(device, address, {{"do", "start"}, {"number", number}}, false);
    return std::exchange(sent, {});
  };
  remote.begin();
  CHECK(start("a", "10.0.0.1", 0) == Sent{"a begin", "a file", "a bytes", "a end"});
  CHECK(start("b", "10.0.0.1", 1).empty());
  CHECK(start("c", "10.0.0.2", 2) == Sent{"c begin", "c file", "c bytes", "c end"});
  answer("c", stored);
  CHECK(sent.empty());
  answer("a", stored);
  CHECK(std::exchange(sent, {}) == Sent{"b link"});
  answer("b", failed);
  CHECK(std::exchange(sent, {}) == Sent{"b begin", "b file", "b bytes", "b end"});
  answer("b", stored);
  CHECK(sent == Sent{"a start", "b start", "c start"});
}

TEST_CASE("if a run sets ADAPTDL_CHECKPOINT_KEEP twice, the last value decides how many checkpoints are kept") {
  const Directory from, to;
  from.save(4);
  LaunchPlan plan = Scene::make_plan("", to.path());
  plan.settings = {{"ADAPTDL_CHECKPOINT_KEEP", "1"}, {"ADAPTDL_CHECKPOINT_KEEP", "3"}};
  Lines lines;
  RemoteCheckpoints remote(
      plan, lines, [](const std::string&, const json&) {}, [](const std::string&, int, const std::string&) {});
  int copy = 0;
  for (const std::string& name : from.names()) {
    CheckpointSender sender(from / name, ++copy);
    while (const auto message = sender.next()) remote.take("a", *message);
  }
  CHECK(to.names() == std::vector<std::string>{"checkpoint-1", "checkpoint-2", "checkpoint-3"});
  CHECK(lines.notices.empty());
}

TEST_CASE("a checkpoint of which only a part was received does not remain beside one whose files are shared") {
  const Directory other, own;
  other.add(3, "abc");
  CheckpointReceiver receiver(own.path(), 2);
  receiver.take({{"part", "begin"}, {"name", "checkpoint-3"}, {"size", 3}, {"copy", 1}});
  receiver.take({{"part", "file"}, {"name", "state"}, {"copy", 1}});
  CHECK(own.names().size() == 1);
  const std::string path = (other / "checkpoint-3").string();
  CHECK(receiver.take({{"part", "link"}, {"path", path}, {"size", 4}, {"copy", 2}})["part"] == "failed");
  CHECK(own.names().empty());
  CHECK(receiver.take({{"part", "link"}, {"path", path}, {"size", 3}, {"copy", 3}})["part"] == "stored");
  CHECK(own.names() == std::vector<std::string>{"checkpoint-3"});
}

}  // namespace remote_checkpoints_messages_test
