#include "kube/copy/pod_shell.h"

#include <fmt/format.h>

#include "http/http.h"
#include "kube/stream/exec.h"

namespace adaptdl::kube {
namespace {

template <typename Action>
auto broken_as(const Action& action) {
  try {
    return action();
  } catch (const http::ConnectionError& error) {
    throw Broken(error.what());
  }
}

class PodProcess : public Process {
 public:
  PodProcess(Client& client, const ExecOptions& options) : session_(client, options) {}

  bool read(const Sink& out, const Sink& err) override {
    return broken_as([&] {
      return session_.read(
          [&](Session::From from, std::string_view bytes) { (from == Session::From::kOut ? out : err)(bytes); });
    });
  }
  void write(std::string_view bytes) override {
    broken_as([&] { session_.write(std::as_bytes(std::span(bytes))); });
  }
  int exit_code() override { return session_.exit_code(); }

 private:
  Session session_;
};

}  // namespace

PodShell::PodShell(Client& client, nlohmann::json job, PodChoice choice, std::stop_token stop,
                   std::function<void(const std::string&)> notice)
    : client_(client),
      job_(std::move(job)),
      choice_(std::move(choice)),
      stop_(std::move(stop)),
      notice_(std::move(notice)) {}

PodShell::~PodShell() = default;

std::string PodShell::name() const {
  const std::lock_guard lock(mutex_);
  return pod_.empty() ? fmt::format("job '{}'", job_.at("metadata").at("name").get<std::string>())
                      : fmt::format("pod '{}'", pod_);
}

void PodShell::choose() {
  const std::string name = job_.at("metadata").at("name"), name_space = job_.at("metadata").at("namespace");
  worked_ = false;
  helper_.reset();
  container_.clear();
  if (choice_.image.empty()) {
    std::vector<Replica> replicas;
    for (const auto& pod :
         client_.list(path(kPods, name_space), {.label_selector = replica_selector(name), .field_selector = ""}))
      replicas.push_back(parse_replica(pod));
    if (const Replica* replica = choose_replica(replicas, choice_.rank)) {
      pod_ = replica->name;
      container_ = choice_.container.empty() ? replica->container : choice_.container;
      return;
    }
  }
  if (choice_.rank)
    throw Error(fmt::format("job '{}' has no running replica with rank {}; omit --rank to copy from its volume", name,
                            *choice_.rank));
  helper_ = std::make_unique<HelperPod>(client_, job_, choice_.image, stop_, notice_);
  pod_ = helper_->name();
}

std::unique_ptr<Process> PodShell::start(const std::vector<std::string>& command, bool with_input) {
  const std::lock_guard lock(mutex_);
  try {
    if (pod_.empty()) choose();
    const ExecOptions options{.name_space = job_.at("metadata").at("namespace"),
                              .pod = pod_,
                              .container = container_,
                              .command = command,
                              .in = with_input};
    auto process = std::make_unique<PodProcess>(client_, options);
    worked_ = true;
    return process;
  } catch (const http::ConnectionError& error) {
    throw Broken(error.what());
  } catch (const ApiError& error) {
    // Choosing another pod would not help after a 401 or a 403.
    if (!worked_ || error.code() == 401 || error.code() == 403) throw;
    worked_ = false;
    const std::string last = std::exchange(pod_, "");
    throw Broken(error.code() == 404 ? fmt::format("pod '{}' no longer exists", last) : error.what());
  }
}

}  // namespace adaptdl::kube
