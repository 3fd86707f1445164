#include "adaptdl/torch/epoch.h"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <stdexcept>

#include "adaptdl/checkpoint.h"
#include "adaptdl/metrics.h"
#include "elastic_job.h"
#include "error_of.h"
#include "loop/epoch_scope.h"

namespace epoch_test {

namespace {

using adaptdl::current_epoch;
using adaptdl::finished_epochs;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using adaptdl::checkpoint::CheckpointError;
using adaptdl::checkpoint::save_all_states;
using testing::ElasticJob;
using ::testing::says;

template <class Exception>
bool throws(const std::function<void()>& body) {
  try {
    body();
  } catch (const Exception&) {
    return true;
  }
  return false;
}

// A state with one number.
class Number : public adaptdl::checkpoint::State {
 public:
  explicit Number(const std::string& name) : State(name) {}
  void save(adaptdl::checkpoint::Writer& writer) const override { writer.json("value", value); }
  void load(const adaptdl::checkpoint::Reader& reader) override { value = reader.json("value"); }
  int value = 0;
};

// A supervisor that receives one request.
class Supervisor {
 public:
  Supervisor() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof address;
    EXPECT(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) == 0 && ::listen(listener_, 1) == 0);
    EXPECT(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    url_ = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
  }
  ~Supervisor() { ::close(listener_); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  const std::string& url() const { return url_; }
  // Returns whether a request arrives within `patience` ms.
  bool called(int patience) const {
    pollfd waits{listener_, POLLIN, 0};
    return ::poll(&waits, 1, patience) == 1;
  }
  // Returns the request, at least up to `text`, or "" if the request does not contain `text`.
  std::string request_with(const std::string& text) const {
    const int client = ::accept(listener_, nullptr, nullptr);
    std::string request;
    char buffer[4096];
    while (request.find(text) == std::string::npos) {
      const ssize_t count = ::read(client, buffer, sizeof buffer);
      if (count <= 0) break;
      request.append(buffer, static_cast<std::size_t>(count));
    }
    const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    EXPECT(::write(client, answer.data(), answer.size()) > 0);
    ::close(client);
    return request.find(text) == std::string::npos ? "" : request;
  }

 private:
  int listener_;
  std::string url_;
};

}  // namespace

TEST_CASE("progress is reported to the supervisor at the end of the last epoch") {
  ElasticJob().run_to(0, 1, [](int) {
    const Supervisor supervisor;
    setenv("ADAPTDL_SUPERVISOR_URL", supervisor.url().c_str(), 1);
    setenv("ADAPTDL_JOB_ID", "default/job", 1);
    for (const int epoch : remaining_epochs_until(2)) {
      adaptdl::metrics::set_progress("model", 40 + epoch);
      EXPECT(!supervisor.called(100));
    }
    EXPECT(supervisor.called(60000));
    EXPECT(supervisor.request_with("\"progress\":41") != "");
  });
}

TEST_CASE("epochs run in order, and current_epoch() is set only inside the loop") {
  ElasticJob().run_to(0, 1, [](int) {
    EXPECT(!current_epoch());
    EXPECT(finished_epochs() == 0);
    int expected = 0;
    for (int epoch : remaining_epochs_until(3)) {
      EXPECT(epoch == expected++);
      EXPECT(current_epoch() == epoch);
      EXPECT(finished_epochs() == epoch);
    }
    EXPECT(expected == 3);
    EXPECT(!current_epoch());
    for (int epoch : remaining_epochs_until(3)) EXPECT(epoch < 0);
    for (int epoch : remaining_epochs_until(5)) EXPECT(epoch == expected++);
    EXPECT(expected == 5);
    EXPECT(finished_epochs() == 5);
  });
}

TEST_CASE("an interrupted job restarts at the same epoch on another number of replicas") {
  const ElasticJob job;
  job.run_to(7, 1, [](int) {
    for (int epoch : remaining_epochs_until(10)) {
      if (epoch == 5) save_all_states(), _exit(7);
    }
  });
  job.run_to(0, 3, [](int) {
    int expected = 5;
    for (int epoch : remaining_epochs_until(10)) EXPECT(epoch == expected++);
    EXPECT(expected == 10);
  });
  CHECK(job.errors().find("starting at epoch 5") != std::string::npos);
  const auto checkpoints = adaptdl::checkpoint::list(job.checkpoints());
  REQUIRE(checkpoints.size() == 2);
  CHECK(checkpoints[0].manifest->progress == nlohmann::json{{"epoch", 10}});  // sorted by decreasing number
  CHECK(checkpoints[1].manifest->progress == nlohmann::json{{"epoch", 5}});
}

TEST_CASE("only a completed epoch loop saves its result, and only once") {
  const ElasticJob job;
  const auto train = [&](int epochs) {
    return [&, epochs](int) {
      Number number("number");
      adaptdl::checkpoint::load_state(number);
      for (int epoch : remaining_epochs_until(epochs)) {
        EXPECT(number.value == epoch);
        ++number.value;
      }
      EXPECT(number.value == epochs);
    };
  };
  job.run_to(0, 2, train(2));
  CHECK(job.newest_checkpoint() == 0);
  job.run_to(0, 1, train(2));  // has finished already
  CHECK(job.newest_checkpoint() == 0);
  job.run_to(0, 3, train(4));
  CHECK(job.newest_checkpoint() == 1);
  job.run_to(0, 1, [&](int) {
    for ([[maybe_unused]] int epoch : remaining_epochs_until(9)) break;
    for ([[maybe_unused]] int epoch : remaining_epochs_until(5)) continue;
  });
  CHECK(job.newest_checkpoint() == 1);
  CHECK(says(job.errors(), "checkpoint-1', the result of the last epoch"));
  job.run_to(0, 1, [&](int) {
    unsetenv("ADAPTDL_CHECKPOINT_PATH");
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) continue;
  });
  CHECK(job.newest_checkpoint() == 1);
}

TEST_CASE("only rank 0 logs the first epoch and skipped epochs") {
  const ElasticJob job;
  job.run_to(0, 2, [](int) {
    for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) continue;
    for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) continue;
  });
  const auto errors = job.errors();
  const auto starting = errors.find("starting at epoch 0"), skipping = errors.find("skipping all epochs before 2");
  CHECK(starting != std::string::npos);
  CHECK(skipping != std::string::npos);
  CHECK(errors.find("starting", starting + 1) == std::string::npos);
  CHECK(errors.find("skipping", skipping + 1) == std::string::npos);
}

TEST_CASE("an epoch left by break or return is finished, but one left by an exception repeats") {
  ElasticJob().run_to(0, 1, [](int) {
    for ([[maybe_unused]] int epoch : remaining_epochs_until(10)) break;
    EXPECT(finished_epochs() == 1);
    EXPECT(!current_epoch());
    [] {
      for ([[maybe_unused]] int epoch : remaining_epochs_until(10)) return;
    }();
    EXPECT(finished_epochs() == 2);
    EXPECT(throws<std::runtime_error>([] {
      for ([[maybe_unused]] int epoch : remaining_epochs_until(10)) throw std::runtime_error("out of luck");
    }));
    EXPECT(finished_epochs() == 2);
    EXPECT(!current_epoch());
    for (int epoch : remaining_epochs_until(3)) EXPECT(epoch == 2);
    // While an exception is in flight, a break in a loop that a destructor runs must still count as a break.
    struct LoopsOnDestruction {
      ~LoopsOnDestruction() {
        for ([[maybe_unused]] int epoch : remaining_epochs_until(10)) break;
      }
    };
    EXPECT(throws<std::runtime_error>([] {
      const LoopsOnDestruction loops;
      throw std::runtime_error("out of luck");
    }));
    EXPECT(finished_epochs() == 4);
  });
}

TEST_CASE("nested epoch loops and a negative number of epochs are rejected") {
  ElasticJob().run_to(0, 1, [](int) {
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      EXPECT(throws<UsageError>([] {
        for ([[maybe_unused]] int nested : remaining_epochs_until(2)) continue;
      }));
    }
    EXPECT(finished_epochs() == 1);
    EXPECT(throws<UsageError>([] { (void)remaining_epochs_until(-1); }));
  });
}

TEST_CASE("loading a checkpoint without epochs fails instead of starting at epoch 0") {
  const ElasticJob job;
  job.run_to(0, 1, [](int) {
    const Number number("number");
    save_all_states();
  });
  job.run_to(0, 1, [](int) { EXPECT(throws<CheckpointError>([] { (void)finished_epochs(); })); });
}

TEST_CASE("a state created in an epoch lives until the epoch ends and survives a restart") {
  const ElasticJob job;
  const auto make = [] {
    return adaptdl::internal::make_in_epoch<Number>("number-" + adaptdl::internal::epoch_label());
  };
  job.run_to(7, 1, [&](int) {
    for (int epoch : remaining_epochs_until(3)) {
      make()->value = 100 + epoch;
      if (epoch == 1) save_all_states(), _exit(7);
    }
  });
  const auto checkpoints = adaptdl::checkpoint::list(job.checkpoints());
  REQUIRE(checkpoints.size() == 1);
  std::vector<std::string> names;
  for (const auto& state : checkpoints[0].manifest->states) names.push_back(state.name);
  CHECK(names == std::vector<std::string>{".adaptdl-epoch", "number-epoch1"});
  job.run_to(0, 1, [&](int) {
    for (int epoch : remaining_epochs_until(3)) EXPECT(make()->value == (epoch == 1 ? 101 : 0));
  });
}

TEST_CASE("an epoch repeated after an exception finds the states of its first run") {
  ElasticJob().run_to(0, 1, [](int) {
    using adaptdl::internal::count_in_epoch;
    const auto make = [] {
      return adaptdl::internal::make_in_epoch<Number>("number-" + std::to_string(count_in_epoch("number")));
    };
    EXPECT(throws<std::runtime_error>([&] {
      for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
        make()->value = 1;
        make()->value = 2;
        throw std::runtime_error("out of luck");
      }
    }));
    for (int epoch : remaining_epochs_until(2)) {
      EXPECT(make()->value == (epoch == 0 ? 1 : 0));
      EXPECT(make()->value == (epoch == 0 ? 2 : 0));
    }
  });
}

}  // namespace epoch_test
