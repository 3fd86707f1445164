#include "local/launch/local_supervisor.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <system_error>

#include "adaptdl/error.h"
#include "base/private_files.h"
#include "protocol/secret.h"

namespace adaptdl::sched {
namespace {

// The maximum number of replicas whose calls or reports are stored. A run has fewer replicas. Calls beyond the maximum
// may be dropped, since their callers repeat them.
constexpr std::size_t kMaxCalls = 8192;

Fd make_event() {
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw Error(fmt::format("cannot create an event descriptor: {}", std::strerror(errno)));
  return event;
}

void write_token(const std::filesystem::path& path, const std::string& token) {
  // A file that a killed run left behind may contain another token.
  std::error_code error;
  std::filesystem::remove(path, error);
  error = create_private_file(path);
  if (!error && !(std::ofstream(path) << token).flush()) error = std::make_error_code(std::errc::io_error);
  if (error) throw Error(fmt::format("cannot write file '{}': {}", path.string(), error.message()));
}

// Programs that use AdaptDL's Python package send no token. On this machine, they must belong to the user; on other
// nodes, that cannot be checked.
SupervisorOptions options_for(const std::string& address) {
  if (address.empty()) return {.without_token = WithoutToken::kServedToOwner};
  return {.address = address, .without_token = WithoutToken::kServed};
}

}  // namespace

LocalSupervisor::LocalSupervisor(std::string job_id, std::filesystem::path token_file, const std::string& address)
    : job_id_(std::move(job_id)),
      token_(make_secret()),
      token_file_(std::move(token_file)),
      event_(make_event()),
      server_(options_for(address), *this) {
  server_.add_job(job_id_, token_);
  if (!token_file_.empty()) write_token(token_file_, token_);
}

LocalSupervisor::~LocalSupervisor() {
  std::error_code ignored;
  if (!token_file_.empty()) std::filesystem::remove(token_file_, ignored);
}

void LocalSupervisor::wake() const {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(event_.get(), &one, sizeof one);
}

void LocalSupervisor::hints_changed(const std::string&) {
  const std::lock_guard lock(mutex_);
  hints_changed_ = true;
  wake();
}

void LocalSupervisor::replica_waits(const std::string&, const std::string& replica_id, int after, bool broken) {
  const std::lock_guard lock(mutex_);
  const auto key = std::pair(replica_id, broken);
  if (calls_.size() >= kMaxCalls && !calls_.contains(key)) return;
  calls_[key] = after;
  wake();
}

void LocalSupervisor::progress_reported(const std::string&, const std::string& replica_id,
                                        const nlohmann::json& report) {
  const std::lock_guard lock(mutex_);
  if (progress_.size() >= kMaxCalls && !progress_.contains(replica_id)) return;
  progress_[replica_id] = report;
}

std::map<std::string, nlohmann::json> LocalSupervisor::take_progress() {
  const std::lock_guard lock(mutex_);
  return std::exchange(progress_, {});
}

LocalSupervisor::Received LocalSupervisor::take() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  Received received{.hints_changed = std::exchange(hints_changed_, false), .calls = {}};
  for (const auto& [who, after] : std::exchange(calls_, {})) {
    received.calls.push_back({.replica_id = who.first, .after = after, .broken = who.second});
  }
  return received;
}

void LocalSupervisor::begin(int restarts, Generation generation) {
  server_.clear_generation(job_id_);
  set_generation(restarts, std::move(generation));
}

void LocalSupervisor::set_generation(int restarts, Generation generation) {
  std::vector<std::string> addresses;
  for (const GenerationMember& member : generation.replicas) addresses.push_back(member.address);
  server_.set_addresses(job_id_, restarts, std::move(addresses));
  server_.set_generation(job_id_, std::move(generation));
}

}  // namespace adaptdl::sched
