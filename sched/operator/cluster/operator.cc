#include "operator/cluster/operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "http/http.h"
#include "kube/api/json_fields.h"

namespace adaptdl::sched {
namespace {

constexpr const char* kLeaderLabel = "adaptdl/leader";
// Minimum pause between two cycles that are caused by nodes that are about to be removed. Such cycles are repeated,
// because a job may not be able to move yet.
constexpr std::chrono::seconds kMoveAgain{5};
constexpr const kube::Resource* kWatched[] = {&kube::kAdaptDLJobs, &kube::kPods, &kube::kNodes};
constexpr std::size_t kKinds = std::size(kWatched) + std::size(kDeviceResources);
// How long the operator waits before it tries again to watch objects that it could not read. The first pause is
// shorter, because an API server that is starting may not know all its resources.
constexpr std::chrono::seconds kWatchAgain{15}, kWatchAgainLater{300};
// Range of the pause between two allocations, so that jobs that are submitted together receive nodes together.
constexpr std::chrono::milliseconds kGather{100}, kMaxGather{1000};

bool is_device_resource(const kube::Resource& resource) {
  return std::ranges::find(kDeviceResources, &resource) != std::end(kDeviceResources);
}

// Returns whether the object requests resources or may have released some.
bool concerns_allocator(const kube::Resource& resource, const nlohmann::json& object) {
  if (resource.kind == kube::kNodes.kind) return true;
  if (resource.kind == kube::kResourceClaims.kind) return kube::field(object, {"status", "allocation"}).is_null();
  if (is_device_resource(resource)) return true;
  const std::string phase = kube::text_field(object, {"status", "phase"});
  const bool ended = phase == "Succeeded" || phase == "Failed";
  const bool has_nothing = phase.empty() || phase == "Pending" || phase == "Suspended";
  return ended || (resource.kind == kube::kAdaptDLJobs.kind && has_nothing);
}

std::string policy_name(const OperatorOptions& options) {
  return options.policy.empty() ? std::string(policy_names().front()) : options.policy;
}

}  // namespace

Operator::Operator(kube::Client& client, OperatorOptions options)
    : client_(client),
      options_(std::move(options)),
      allocator_(make_policy(policy_name(options_), options_.policy_options)),
      state_(options_.drain) {
  if (options_.expander) {
    if (!allocator_.chooses_size())
      throw UsageError(
          fmt::format("the policy '{}' does not choose the number of nodes; use 'adaptive' or --max-nodes 0",
                      policy_name(options_)));
    expander_.emplace(client_.access(), *options_.expander, options_.lifecycle.prices);
  }
  if (!options_.usage.second.empty()) recorder_.emplace(client_.access(), options_.usage.first, options_.usage.second);
  // The validator is created first, because Kubernetes sends reviews to this operator once the supervisor listens.
  if (options_.validator)
    validator_ = std::make_unique<Validator>(client_.access(), options_.pods, *options_.validator);
  SupervisorOptions supervisor;
  supervisor.address = options_.address;
  supervisor.port = options_.port;
  supervisor.max_connections = 65536;
  supervisor.all_jobs_known = false;
  supervisor_ = std::make_unique<Supervisor>(supervisor, static_cast<SupervisorListener&>(*this));
  if (options_.pods.supervisor_url.empty()) options_.pods.supervisor_url = supervisor_->url();
  controller_ = std::make_unique<Controller>(client_, state_, queue_, *supervisor_, reports_, metrics_, options_.pods,
                                             options_.lifecycle);
  if (!options_.metrics_port) return;
  SupervisorOptions metrics;
  metrics.address = options_.address;
  metrics.port = *options_.metrics_port;
  metrics.max_connections = 64;
  metrics.metrics = [this] { return metrics_text(); };
  metrics_server_ = std::make_unique<Supervisor>(metrics, static_cast<SupervisorListener&>(*this));
}

Operator::~Operator() = default;

ClusterState::HintsOf Operator::newest_hints() const {
  return [this](const std::string& job, const std::string& uid) { return controller_->hints(job, uid); };
}

// Called by the thread of metrics_server_. Requests in quick succession receive the same text, because computing it
// takes time.
std::string Operator::metrics_text() {
  if (!leads_) return OperatorMetrics::standby_text();
  if (const Clock::time_point now = Clock::now(); now >= metrics_until_) {
    const AllocatorCluster cluster = state_.cluster(options_.pods, std::chrono::system_clock::now(), newest_hints());
    metrics_text_ = metrics_.text(state_, cluster);
    metrics_until_ = now + std::chrono::seconds(1);
  }
  return metrics_text_;
}

void Operator::run(std::stop_token stop) {
  std::stop_source ends;
  const std::stop_callback pass_on(stop, [&] { ends.request_stop(); });
  log::info(
      fmt::format("scheduling policy: {}; supervisor URL: {}", policy_name(options_), options_.pods.supervisor_url));
  if (metrics_server_) log::info(fmt::format("metrics: {}/metrics", metrics_server_->url()));
  {
    std::vector<std::jthread> threads;
    for (const kube::Resource* resource : kWatched)
      threads.emplace_back([this, resource, ends] { guard(ends, [&] { watch(*resource, ends.get_token()); }); });
    for (const kube::Resource* resource : kDeviceResources)
      threads.emplace_back(
          [this, resource, ends] { guard(ends, [&] { watch_devices(*resource, ends.get_token()); }); });
    guard(ends, [&] {
      // An earlier process in this pod may have left the label.
      label_own_pod(false);
      if (!wait_until_synced(ends.get_token()) || !lead(ends.get_token())) return;
      for (int i = 0; i < options_.workers; ++i)
        threads.emplace_back([this, ends] { guard(ends, [&] { work(ends.get_token()); }); });
      allocate(ends.get_token());
      record_usage();
    });
  }
  election_.reset();  // the threads that change the cluster have ended
  if (validator_) validator_->drain();
  const std::lock_guard lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
}

void Operator::guard(std::stop_source ends, const std::function<void()>& work) {
  try {
    work();
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    ends.request_stop();
  }
}

// Waits until all existing objects have been received. Returns false once a stop is requested.
bool Operator::wait_until_synced(std::stop_token stop) {
  {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, stop, [this] { return synced_.size() == kKinds; });
  }
  if (stop.stop_requested()) return false;
  log::info("received all jobs, pods and nodes of the cluster");
  return true;
}

// Waits until this operator may act. Returns false once a stop is requested.
bool Operator::lead(std::stop_token stop) {
  if (options_.lease) {
    election_ = std::make_unique<LeaderElection>(client_.access(), *options_.lease, options_.lease_lost);
    log::info(fmt::format("waiting for the lease '{}/{}'", options_.lease->name_space, options_.lease->name));
    if (!election_->wait(stop)) return false;
    log::info("acquired the lease");
  }
  leads_ = true;
  controller_->lead();
  state_.take_deleted_usage();  // the previous leader has recorded this usage
  for (const std::string& key : state_.jobs()) controller_->announce(key);
  supervisor_->set_all_jobs_known();
  label_own_pod(true);
  return true;
}

// Sets or removes the label by which the supervisor's Service selects the leader. Returns whether the pod exists.
bool Operator::label_pod(const std::string& name, bool leads) {
  const nlohmann::json value = leads ? nlohmann::json("true") : nlohmann::json();
  try {
    client_.patch(kube::path(kube::kPods, options_.pod.first, name), kube::Patch::kMerge,
                  {{"metadata", {{"labels", {{kLeaderLabel, value}}}}}});
    return true;
  } catch (const kube::ApiError& error) {
    if (!error.not_found()) throw;
    return false;
  }
}

void Operator::label_own_pod(bool leads) {
  const auto& [name_space, name] = options_.pod;
  if (name.empty()) return;
  if (!label_pod(name, leads)) throw Error(fmt::format("pod '{}/{}' not found; check --pod", name_space, name));
  if (!leads) return;
  // A previous leader whose node has failed cannot remove its label.
  const kube::ListOptions leaders{.label_selector = std::string(kLeaderLabel) + "=true", .field_selector = {}};
  for (const nlohmann::json& pod : client_.list(kube::path(kube::kPods, name_space), leaders)) {
    if (const std::string other = kube::name_of(pod); other != name) label_pod(other, false);
  }
}

void Operator::watch(const kube::Resource& resource, std::stop_token stop) {
  kube::watch(client_, kube::path(resource, ""), {}, stop, [&](kube::Change&& change) {
    apply(resource, change);
    if (change.kind == kube::Change::Kind::kSynced) set_synced(resource);
    return true;
  });
}

void Operator::set_synced(const kube::Resource& resource) {
  const std::lock_guard lock(mutex_);
  synced_.insert(resource.kind);
  wake_.notify_all();
}

bool Operator::is_synced(const kube::Resource& resource) {
  const std::lock_guard lock(mutex_);
  return synced_.contains(resource.kind);
}

// Watches the objects, and retries after errors: clusters before Kubernetes 1.34 do not have the resource, and an
// operator that was updated without its ClusterRole lacks the permission. After an error, objects are kept until they
// are listed again.
void Operator::watch_devices(const kube::Resource& resource, std::stop_token stop) {
  std::string last;
  bool received = false;
  std::chrono::seconds pause = kWatchAgain;
  while (!stop.stop_requested()) {
    try {
      std::vector<nlohmann::json> listed;
      bool synced = false;
      kube::watch(client_, kube::path(resource, ""), {}, stop, [&](kube::Change&& change) {
        if (synced) {
          apply(resource, change);
        } else if (change.kind == kube::Change::Kind::kSynced) {
          synced = received = true;
          last.clear();
          for (const std::string& fault : state_.replace_device_objects(resource, listed)) log::warn(fault);
          listed.clear();
          set_synced(resource);
          wake_allocator();
        } else if (!change.object.is_null()) {
          listed.push_back(std::move(change.object));
        }
        return true;
      });
    } catch (const kube::ApiError& error) {
      const bool missing = error.not_found(), forbidden = error.code() == 403;
      if (!missing && !forbidden && !is_synced(resource)) throw;
      if ((!missing || received) && last != error.what())
        log::warn(fmt::format("cannot watch {}: {}{}", resource.plural, error.what(),
                              forbidden ? "; update the operator's ClusterRole" : ""));
      last = error.what();
      set_synced(resource);
    } catch (const http::ConnectionError&) {
      if (!is_synced(resource)) throw;  // otherwise, the other watches report the error
    }
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, pause, [] { return false; });
    pause = kWatchAgainLater;
  }
}

void Operator::apply(const kube::Resource& resource, const kube::Change& change) {
  using Kind = kube::Change::Kind;
  if (change.kind == Kind::kInterrupted) log::warn(fmt::format("cannot watch {}: {}", resource.plural, change.message));
  if (change.kind == Kind::kInterrupted || change.kind == Kind::kSynced) return;
  const bool gone = change.kind == Kind::kDeleted;
  if (is_device_resource(resource)) {
    if (gone) {
      state_.drop_device_object(resource, change.object);
    } else if (const std::string fault = state_.put_device_object(resource, change.object); !fault.empty()) {
      log::warn(fault);
    }
  } else if (resource.kind == kube::kNodes.kind) {
    add(gone ? state_.drop_node(change.object) : state_.put_node(change.object));
  } else if (resource.kind == kube::kPods.kind) {
    add({gone ? state_.drop_pod(change.object) : state_.put_pod(change.object)});
  } else {
    add({gone ? state_.drop_job(change.object) : state_.put_job(change.object)});
  }
  if (gone || concerns_allocator(resource, change.object)) wake_allocator();
}

void Operator::add(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (!key.empty()) queue_.add(key);
  }
}

void Operator::wake_allocator() {
  const std::lock_guard lock(mutex_);
  changed_ = true;
  wake_.notify_all();
}

void Operator::work(std::stop_token stop) {
  while (const auto key = queue_.take(stop)) {
    controller_->sync(*key);
    queue_.done(*key);
  }
}

// Returns when the first cycle begins. A new leader continues the cycles of the previous one.
Operator::Clock::time_point Operator::first_cycle() const {
  using std::chrono::milliseconds;
  const auto last = election_ ? election_->last_cycle() : std::nullopt;
  if (!last) return Clock::now() + options_.interval;
  const auto left = std::chrono::ceil<milliseconds>(*last + options_.interval - std::chrono::system_clock::now());
  return Clock::now() + std::clamp(left, milliseconds(0), options_.interval);
}

void Operator::allocate(std::stop_token stop) {
  Clock::time_point cycle = first_cycle();
  while (wait_for_work(stop, std::min(cycle, move_again_))) {
    const Clock::time_point begin = Clock::now();
    const bool all = begin >= cycle;
    if (all) cycle = begin + options_.interval;
    if (all && election_) election_->set_last_cycle(std::chrono::system_clock::now());
    allocate_once(all);
    // The pause leaves most of the time for other work, regardless of the number of jobs.
    const auto pause = std::clamp<Clock::duration>(4 * (Clock::now() - begin), kGather, kMaxGather);
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, stop, pause, [] { return false; });
  }
}

void Operator::record_usage() {
  if (!recorder_) return;
  const std::vector<kube::UsageRecord> existing = state_.usage();
  recorder_->record(existing, state_.take_deleted_usage(), std::chrono::system_clock::now());
}

// Waits for a change or the next cycle. Returns false once a stop is requested.
bool Operator::wait_for_work(std::stop_token stop, Clock::time_point cycle) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, stop, cycle, [this] { return changed_; });
  changed_ = false;
  return !stop.stop_requested();
}

void Operator::allocate_once(bool all) {
  const Clock::time_point begin = Clock::now();
  // Read the decisions before the jobs: a decision that is carried out in between is then in the status of its job.
  std::map<std::string, Allocation> undone;
  for (const std::string& key : state_.jobs()) {
    if (auto nodes = controller_->undone(key)) undone[key] = *std::move(nodes);
  }
  AllocatorCluster cluster = state_.cluster(options_.pods, std::chrono::system_clock::now(), newest_hints());
  for (AllocatorJob& job : cluster.jobs) {
    const auto found = undone.find(job.info.name);
    if (found == undone.end()) continue;
    job.current = found->second;
    job.waits_for_first_fit = false;
  }
  cluster.surplus = surplus_;
  const bool waits = std::ranges::any_of(cluster.jobs, &AllocatorJob::waits_for_first_fit);
  const bool must_move = Allocator::must_move_job(cluster);
  const bool cycle = all || (waits && !allocator_.uses_first_fit()) || (must_move && begin >= moved_ + kMoveAgain);
  if (must_move && cycle) moved_ = begin;
  move_again_ = must_move ? moved_ + kMoveAgain : Clock::time_point::max();
  if (cycle && expander_) cluster.pool = expander_->read_pool();
  if (cluster.pool) state_.complete_node(cluster.pool->node_resources);
  CycleDecisions decisions = cycle ? allocator_.cycle(cluster) : CycleDecisions{Allocator::first_fit(cluster), {}};
  for (const AllocatorJob& job : cluster.jobs) {
    const auto found = decisions.jobs.find(job.info.name);
    if (found == decisions.jobs.end()) continue;
    // In a large cluster, hundreds of reasons change in a cycle. Jobs that are starting or changing must not wait until
    // all of these reasons have been written.
    const bool stays = found->second.nodes == job.current;
    controller_->decide(job.info.name, std::move(found->second),
                        stays ? WorkQueue::Priority::kLow : WorkQueue::Priority::kNormal);
  }
  if (decisions.pool) {
    surplus_ = decisions.pool->surplus;
    expander_->request(*decisions.pool);
    metrics_.pool_sized(*decisions.pool);
  }
  if (!cycle) return;
  metrics_.cycle_ended(Clock::now() - begin, std::chrono::system_clock::now());
  record_usage();
}

}  // namespace adaptdl::sched
