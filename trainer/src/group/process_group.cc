#include "group/process_group.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "adaptdl/checkpoint.h"
#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/generation.h"
#include "adaptdl/log.h"
#include "adaptdl/progress.h"
#include "adaptdl/signal.h"
#include "adaptdl/sigpipe.h"
#include "adaptdl/supervisor.h"
#include "adaptdl/torch/process_group.h"
#include "base/socket.h"
#include "group/rendezvous_file.h"
#include "group/rendezvous_store.h"
#include "loop/process_exit.h"
#include "loop/uncaught_errors.h"
#include "protocol/secret.h"
#include "support/form_timeout.h"
#include "support/regroup.h"
#include "support/rng_state.h"
#include "tensorboard/summary_writer_state.h"

namespace adaptdl {

namespace {

// The handlers are installed at program start, so that a signal requests a checkpoint even while data is being read.
[[maybe_unused]] const bool kHandlersInstalled = (signal::install(), true);
[[maybe_unused]] const bool kErrorsReported = (internal::report_uncaught_errors(), true);

compat::ProcessGroupPtr& group_slot() {
  // Never destroyed: exits from a step boundary must not wait for connections that other replicas have closed.
  static auto* group = new compat::ProcessGroupPtr;
  return *group;
}

// Returns the backend of the current group and of later groups.
std::string& backend_slot() {
  static auto* const backend = new std::string;
  return *backend;
}

// Returns the losses of the current group.
std::shared_ptr<compat::Losses>& losses_slot() {
  static auto* const losses = new std::shared_ptr<compat::Losses>(std::make_shared<compat::Losses>());
  return *losses;
}

std::vector<internal::GroupUser*>& group_users() {
  static auto* const users = new std::vector<internal::GroupUser*>;
  return *users;
}

struct Address {
  std::string host;
  std::uint16_t port;
};

Address parse_init_method(const std::string& url) {
  const std::string scheme = "tcp://";
  const auto colon = url.rfind(':');
  unsigned port = 0;
  if (url.starts_with(scheme) && colon != std::string::npos && colon > scheme.size()) {
    const auto* end = url.data() + url.size();
    const auto [rest, error] = std::from_chars(url.data() + colon + 1, end, port);
    if (error == std::errc() && rest == end && port <= 65535) {
      return {url.substr(scheme.size(), colon - scheme.size()), static_cast<std::uint16_t>(port)};
    }
  }
  throw UsageError(fmt::format("init_method must be env://, tcp://HOST:PORT or file:///PATH, got '{}'", url));
}

std::optional<std::filesystem::path> file_of(const std::optional<std::string>& init_method) {
  const std::string scheme = "file://";
  if (!init_method || !init_method->starts_with(scheme + "/")) return {};
  return init_method->substr(scheme.size());
}

// A scheduler of another major version may use a different protocol.
void check_scheduler_version() {
  const auto scheduler = env::sched_version();
  if (!scheduler || *scheduler == "0.0.0") return;
  const std::string ours = ADAPTDL_VERSION;
  if (scheduler->substr(0, scheduler->find('.')) != ours.substr(0, ours.find('.'))) {
    throw Error(
        fmt::format("adaptdl {} is incompatible with the scheduler's version {} (ADAPTDL_SCHED_VERSION); use releases "
                    "of the same major version",
                    ours, *scheduler));
  }
}

Address master_address(const std::optional<std::string>& init_method) {
  if (init_method && *init_method != "env://") return parse_init_method(*init_method);
  const auto port = static_cast<std::uint16_t>(env::master_port());
  if (const auto url = env::supervisor_url()) {
    const auto job = env::job_id();
    if (!job) throw UsageError("ADAPTDL_SUPERVISOR_URL is set but ADAPTDL_JOB_ID (NAMESPACE/NAME) is not");
    check_scheduler_version();
    return {supervisor::discover(*url, *job, env::num_restarts()).at(0), port};
  }
  return {env::master_addr(), port};
}

// Returns the local address from which this machine reaches `host`, or "" if it cannot be determined.
std::string local_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> guard(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  char text[NI_MAXHOST] = "";
  // Connecting a datagram socket sends nothing: it only chooses the route.
  const bool known =
      connect(fd, found->ai_addr, found->ai_addrlen) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
      getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0;
  close(fd);
  return known ? text : "";
}

// Returns the first IPv4 address of an interface that is up and not the loopback, or "" if there is none.
std::string outside_address() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(list, freeifaddrs);
  for (const auto* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[NI_MAXHOST] = "";
    if (getnameinfo(each->ifa_addr, sizeof(sockaddr_in), text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      return text;
  }
  return {};
}

// Returns the address at which other replicas reach this replica's Gloo device and store. A host name that /etc/hosts
// maps to the loopback would work only on a single machine.
std::string gloo_address(const std::string& master, bool one_host) {
  const auto address = local_address_towards(master);
  if (!address.empty() && !net::is_loopback(address)) return address;
  const auto outside = one_host ? std::string() : outside_address();
  return outside.empty() ? "127.0.0.1" : outside;
}

// `address`: the address at which other replicas reach this replica; rank 0 serves the store there. `host`: the host at
// which the other replicas reach rank 0 in the collective.
c10::intrusive_ptr<RendezvousStore> make_store(const std::string& address, const std::string& host, int rank,
                                               std::chrono::milliseconds timeout) {
  std::shared_ptr<RendezvousServer> server;
  nlohmann::json place;
  if (rank == 0) {
    server = std::make_shared<RendezvousServer>(address);
    // A scope, such as `eth0` in fe80::1%eth0, is valid only on this machine.
    const bool scoped = address.find('%') != std::string::npos;
    place = {{"host", scoped ? host : address}, {"port", server->port()}, {"secret", server->secret()}};
  }
  place = collective::broadcast(place);
  return c10::make_intrusive<RendezvousStore>(RendezvousPlace{place.at("host"), place.at("port"), place.at("secret")},
                                              timeout, std::move(server));
}

std::string choose_backend(const std::string& asked) {
  if (!asked.empty()) return asked;
  if (const auto set = env::backend()) return *set;
  return compat::has_nccl() && torch::cuda::is_available() ? "nccl" : "gloo";
}

void check_backend(const std::string& backend) {
  if (backend != "gloo" && backend != "nccl")
    throw UsageError(fmt::format("unknown backend '{}'; use 'gloo' or 'nccl'", backend));
  if (backend != "nccl") return;
  if (!compat::has_nccl()) throw UsageError("backend 'nccl': this LibTorch does not support NCCL; use 'gloo'");
  if (!torch::cuda::is_available())
    throw UsageError("backend 'nccl' requires a GPU, but LibTorch finds none; use 'gloo'");
}

// `host`: the host on which the collective's rank 0 listens.
void make_group(const std::string& host) {
  const auto& world = collective::world();
  const auto timeout = env::collective_timeout();
  // The threads of Gloo and the store write to the sockets of peers, which may have exited.
  const SigpipeGuard guard;
  const auto address = gloo_address(host, net::is_loopback(host));
  const auto store = make_store(address, host, world.rank(), std::min(timeout, internal::form_timeout));
  losses_slot() = std::make_shared<compat::Losses>();
  group_slot() = compat::make_process_group(backend_slot(), store, world.rank(), world.size(), timeout, address,
                                            secret_for(store->secret()), losses_slot());
  progress::event("generation",
                  {{"generation", generation::current()}, {"rank", world.rank()}, {"replicas", world.size()}});
}

// While this object exists, a request to stop ends the process after a grace period, because there is nothing to save
// yet. Replicas that connect in time agree on the stop at their first step boundary, in the same way as at any later
// boundary.
class StopWhileConnecting {
 public:
  StopWhileConnecting() : thread_([this](const std::stop_token& connected) { watch(connected); }) {}

 private:
  void watch(const std::stop_token& connected) {
    constexpr std::chrono::milliseconds kLook{50};
    std::chrono::milliseconds waited{0};
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any wake;
    while (waited < internal::connect_grace) {
      if (wake.wait_for(lock, connected, kLook, [&] { return connected.stop_requested(); })) return;
      if (signal::stop_signal() != 0) waited += kLook;
    }
    log::info("stopping: the other replicas did not connect, and there is nothing to save");
    internal::exit_process(128 + signal::stop_signal());
  }

  std::jthread thread_;
};

// Converts the errors of LibTorch and Gloo to CollectiveError.
void form(const std::function<void()>& forms) {
  try {
    forms();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string text = error.what();
    throw collective::CollectiveError(
        fmt::format("cannot form the process group: {}", text.substr(0, text.find('\n'))));
  }
}

std::string reachable(const std::string& host) { return host == "0.0.0.0" || host == "localhost" ? "127.0.0.1" : host; }

// If a replica leaves an NCCL communicator, or the communicator fails, operations hang until the communicator is
// destroyed.
void decline_what_cannot_follow() {
  if (backend_slot() != "gloo") generation::decline(fmt::format("its backend is {}", backend_slot()));
}

}  // namespace

namespace internal {

const compat::ProcessGroupPtr& process_group_ptr() {
  if (!group_slot() && !generation::joining())
    throw Error("no process group; call adaptdl::init_process_group() first");
  return group_slot();
}

GroupUser::GroupUser() { group_users().push_back(this); }
GroupUser::~GroupUser() { std::erase(group_users(), this); }

void leave_process_group() {
  for (auto* const user : group_users()) user->leave_group();
  group_slot().reset();
}

void join_process_group() {
  if (backend_slot().empty()) return;  // the program has no process group
  form([] {
    make_group(reachable(generation::host()));
    for (auto* const user : group_users()) user->join_group();
  });
}

bool step_is_unfinished() {
  return std::ranges::any_of(group_users(), [](auto* user) { return user->step_is_unfinished(); });
}

void drop_unfinished_steps() {
  for (auto* const user : group_users()) user->drop_unfinished_step();
}

void begin_steps() {
  for (auto* const user : group_users()) user->begin_step();
}

bool all_have_stepped() {
  return std::ranges::all_of(group_users(), [](const auto* user) { return user->has_stepped(); });
}

void tolerate_losses() { losses_slot()->tolerated = true; }
bool group_is_broken() { return losses_slot()->found; }

}  // namespace internal

void init_process_group(const std::string& backend_name, const std::optional<std::string>& init_method,
                        std::optional<int> world_size, std::optional<int> rank) {
  if (!backend_slot().empty())
    throw Error("init_process_group was already called; a process has only one process group");
  const auto backend = choose_backend(backend_name);
  check_backend(backend);
  backend_slot() = backend;
  if (generation::joining()) {
    decline_what_cannot_follow();
    generation::begin_joining();
    return;
  }
  if (world_size) setenv("ADAPTDL_NUM_REPLICAS", std::to_string(*world_size).c_str(), 1);
  if (rank) setenv("ADAPTDL_REPLICA_RANK", std::to_string(*rank).c_str(), 1);

  env::checkpoint_every();  // throws now if the value is invalid, because it is first used after the first step
  auto options = collective::options_from_env();
  {
    const StopWhileConnecting stops;
    if (const auto file = file_of(init_method)) {
      const char* const given = std::getenv("ADAPTDL_MASTER_ADDR");
      const auto host = given != nullptr ? given : outside_address();
      internal::initialize_by_file(*file, host.empty() ? "127.0.0.1" : host, options);
    } else {
      const auto master = master_address(init_method);
      options.master_addr = master.host;
      options.master_port = master.port;
      collective::initialize(options);
    }
  }
  form([&] { make_group(reachable(options.master_addr)); });
  checkpoint::agree();
  internal::register_rng();
  internal::register_events();
  decline_what_cannot_follow();
  if (options.rank == 0 && generation::follows()) generation::announce();
}

void destroy_process_group() {
  if (!group_slot()) return;
  try {
    collective::teardown();
    compat::shut_down(group_slot());
  } catch (const collective::CallError&) {
    throw;
  } catch (const collective::CollectiveError& error) {
    if (!generation::follows()) throw;
    log::warn(fmt::format("a replica was lost after all had finished: {}", error.what()));
  } catch (const c10::Error& error) {
    log::warn(fmt::format("cannot shut down the process group: {}", error.what_without_backtrace()));
  }
  group_slot().reset();
  backend_slot().clear();
}

c10d::ProcessGroup& process_group() {
  auto& group = *internal::process_group_ptr();
  generation::decline("it uses LibTorch's process group directly");
  return group;
}

c10::Device replica_device() {
  if (!torch::cuda::is_available()) return {c10::kCPU};
  const auto count = static_cast<int>(torch::cuda::device_count());
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(env::replica_rank() % count)};
}

}  // namespace adaptdl
