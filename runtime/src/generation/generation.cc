#include "adaptdl/generation.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "adaptdl/collective.h"
#include "adaptdl/env.h"
#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "adaptdl/progress.h"
#include "adaptdl/sched_hints.h"
#include "checkpoint/admission.h"
#include "checkpoint/load.h"
#include "checkpoint/states.h"
#include "collective/world.h"
#include "generation/client.h"
#include "generation/transfer.h"
#include "generation/watch.h"
#include "metrics/background.h"
#include "protocol/hints_request.h"
#include "protocol/place.h"
#include "protocol/secret.h"

namespace adaptdl::generation {
namespace {

using collective::CollectiveError;
using collective::Communicator;
using nlohmann::json;

// The pause between attempts to connect. It is short, because training waits for members that must retry: those that
// arrive before rank 0 is listening.
constexpr std::chrono::milliseconds kConnectPause{10};

// What a newcomer keeps until it has joined.
struct Newcomer {
  bool admitted = false;                                 // whether it has called admission()
  Progress furthest = {};                                // progress of the member that sends the states
  std::unique_ptr<Communicator> coming = {};             // communicator of the group that it joins
  std::shared_ptr<checkpoint::StateStream> states = {};  // the states that it receives
};

Newcomer& newcomer() {
  static auto* const only = new Newcomer;  // never destroyed: threads may still connect while the process exits
  return *only;
}

int count_nodes(const Generation& generation) {
  std::set<std::string> addresses;
  for (const Member& member : generation.replicas) addresses.insert(member.address);
  return static_cast<int>(addresses.size());
}

// Returns a function that returns whether there is a newer generation than `next`.
std::function<bool()> gives_up(const Generation& next) {
  return [number = next.number] { return Watch::instance().newest(number, false).has_value(); };
}

// Connects this process to the group of `next`.
std::unique_ptr<Communicator> connect(const Generation& next) {
  Place& own = place();
  own.current = next.number;
  own.host = next.replicas.front().address;
  auto options = collective::options_from_env();
  options.master_addr = next.replicas.front().address;
  options.master_port = next.replicas.front().port;
  options.rank = next.rank_of(own.id).value();
  options.size = static_cast<int>(next.replicas.size());
  options.job += fmt::format(", generation {}", next.number);
  // A member may be in the middle of a long step. If it has died, a newer generation appears and ends the wait.
  options.connect_timeout = options.timeout;
  options.connect_pause = kConnectPause;
  options.give_up = gives_up(next);
  env::set_membership(options.rank, options.size, count_nodes(next));
  auto communicator = std::make_unique<Communicator>(options);
  Watch::instance().rest();
  return communicator;
}

// What the members of a new group report to each other.
struct Reports {
  std::vector<json> all;  // by rank
  int source = 0;         // rank of the member with the most progress
  Orders orders;

  bool all_have_passed(std::uint64_t boundaries) const {
    return std::all_of(all.begin(), all.end(), [&](const json& report) {
      return !report.at("newcomer").get<bool>() && report.at("boundaries").get<std::uint64_t>() >= boundaries;
    });
  }

  bool newcomers() const {
    return std::any_of(all.begin(), all.end(), [](const json& report) { return report.at("newcomer").get<bool>(); });
  }
};

Progress progress_of(const json& report) {
  return {report.at("boundaries").get<std::uint64_t>(),
          report.at("versions").get<std::map<std::string, std::uint64_t>>()};
}

std::uint64_t distance(const json& report) {
  if (report.at("newcomer").get<bool>()) return 0;
  auto sum = report.at("boundaries").get<std::uint64_t>() + 1;
  for (const json& version : report.at("versions")) sum += version.get<std::uint64_t>();
  return sum;
}

Reports exchange(Communicator& world, const json& own) {
  Reports reports;
  for (const std::string& text : world.allgather(own.dump(), "progress")) reports.all.push_back(json::parse(text));
  const auto furthest = std::max_element(reports.all.begin(), reports.all.end(),
                                         [](const json& a, const json& b) { return distance(a) < distance(b); });
  if (distance(*furthest) == 0)
    throw CollectiveError("no replica of the previous group is left to admit the new replicas");
  reports.source = static_cast<int>(furthest - reports.all.begin());
  for (std::size_t rank = 0; rank < reports.all.size(); ++rank) {
    const json& report = reports.all[rank];
    if (report.at("newcomer").get<bool>()) {
      reports.orders.emplace(rank, std::nullopt);
      continue;
    }
    std::set<std::string> older;
    for (const auto& [name, version] : furthest->at("versions").items())
      if (report.at("versions").value(name, std::uint64_t{0}) < version.get<std::uint64_t>()) older.insert(name);
    if (!older.empty()) reports.orders.emplace(rank, std::move(older));
  }
  return reports;
}

// On the member with the most progress, sends the states to the replicas that need them. On the replicas that need
// states, returns the stream of these states; on all other replicas, returns nullptr.
std::shared_ptr<checkpoint::StateStream> transfer(Communicator& world, const Generation& next, const Reports& reports) {
  if (reports.orders.empty()) return {};
  const bool sends = world.rank() == reports.source;
  const std::string& address = next.replicas[static_cast<std::size_t>(reports.source)].address;
  net::Listener listener;
  json offer;
  if (sends) {
    listener = net::listen_on(address, 0);
    offer = {{"port", listener.port}, {"secret", make_secret()}};
  }
  offer = json::parse(world.allgather(offer.dump(), "states")[static_cast<std::size_t>(reports.source)]);
  const std::string secret = secret_for(offer.at("secret").get<std::string>());
  const TransferLimits limits{.timeout = env::collective_timeout(), .give_up = gives_up(next)};
  if (sends) send_states(listener, secret, reports.orders, world.size(), limits);
  if (sends || !reports.orders.contains(world.rank())) return {};
  return receive_states(address, offer.at("port").get<std::uint16_t>(), secret, world.rank(), limits);
}

void await_newcomers(Communicator& world) {
  world.allreduce(
      collective::Bytes{}, [](collective::Bytes a, const collective::Bytes&) { return a; }, "newcomers");
}

// Ends the process of a newcomer that was admitted but then dropped before it joined.
[[noreturn]] void leave() {
  progress::event("left", json::object());
  std::_Exit(0);
}

// Installs a communicator that refuses all calls until the newcomer joins.
void refuse_calls() {
  auto options = collective::options_from_env();
  collective::replace_world(
      Communicator::refusing(options, [] { decline("it makes collective calls of its own before its first step"); }));
}

// Waits for the generation that admits this newcomer.
checkpoint::Snapshot admit(Question question) {
  for (;;) {
    const Generation next = ask_until_answered(question);
    question.after = next.number;
    if (!next.has_me() && question.broken) leave();
    if (!next.has_me()) continue;
    try {
      auto world = connect(next);
      const Reports reports = exchange(*world, {{"newcomer", true}});
      newcomer().states = transfer(*world, next, reports);
      auto snapshot = checkpoint::read_states(newcomer().states);
      newcomer().furthest = progress_of(reports.all[static_cast<std::size_t>(reports.source)]);
      newcomer().coming = std::move(world);
      refuse_calls();
      return snapshot;
    } catch (const CollectiveError& error) {
      log::info(fmt::format("generation {} failed while it was forming: {}; waiting for the next one", next.number,
                            error.what()));
      question.broken = true;
    }
  }
}

}  // namespace

bool Generation::has_me() const { return rank_of(place().id).has_value(); }

bool follows() noexcept {
  try {
    return place().follows();
  } catch (...) {  // the environment is invalid
    return false;
  }
}

bool joining() noexcept { return place().joining; }

int current() noexcept { return place().current; }

const std::string& host() noexcept { return place().host; }

void announce() {
  const auto job = env::job_id();
  if (!job || !env::supervisor_url()) return;
  if (auto request = hints_request({{"liveRescale", follows()}}, *job))
    metrics::Background::instance().post(std::move(*request));
}

void decline(const std::string& why) {
  if (place().joining) {
    progress::event("cannot_join", {{"why", why}});
    // In a cluster, no other process reports this to the supervisor.
    if (const auto job = env::job_id(); job && !env::status_fd()) post_sched_hints({{"liveRescale", false}}, *job);
    throw Error(fmt::format("new replicas cannot join this program while it is running: {}", why));
  }
  if (!follows()) return;
  place().declined = true;
  if (env::replica_rank() != 0) return;
  log::info(fmt::format("this program is rescaled only through checkpoints: {}", why));
  announce();
}

std::optional<Generation> announced() { return Watch::instance().newest(place().current, true); }

Generation await_next() {
  Watch::instance().rest();
  return ask_until_answered({.after = place().current, .replica = place().id, .broken = true});
}

Formation form(const Generation& next, const Progress& own, bool in_step) {
  collective::replace_world(nullptr);
  collective::replace_world(connect(next));
  Communicator& world = collective::world();
  const Reports reports =
      exchange(world, {{"newcomer", false}, {"boundaries", own.boundaries}, {"versions", own.versions}});
  if (in_step && !reports.all_have_passed(own.boundaries))
    throw collective::MismatchError(
        "a replica cannot join the others in the middle of a step; start again from the last checkpoint");
  Formation formation;
  formation.furthest = progress_of(reports.all[static_cast<std::size_t>(reports.source)]);
  if (const auto stream = transfer(world, next, reports)) {
    auto snapshot = checkpoint::read_states(stream);
    stream->fetch();  // all or nothing: if the sender is lost, this replica continues with its own states
    for (const std::string& name : *reports.orders.at(world.rank())) {
      checkpoint::states().at(name)->load(*snapshot.reader(name));
      formation.renewed.push_back(name);
    }
  }
  if (reports.newcomers()) await_newcomers(world);
  Watch::instance().rest();
  return formation;
}

void begin_joining() { refuse_calls(); }

std::optional<checkpoint::Snapshot> admission() {
  const Place& own = place();
  if (!own.joining || std::exchange(newcomer().admitted, true)) return {};
  return admit({.after = own.current - 1, .replica = own.id});
}

void fetch_states() { newcomer().states->fetch(); }

checkpoint::Snapshot readmission() {
  newcomer().states.reset();
  newcomer().coming.reset();
  return admit({.after = place().current, .replica = place().id, .broken = true});
}

Formation join() {
  Newcomer& own = newcomer();
  if (!own.coming) throw Error("a new replica reached its first step without any state to load: it has no data loader");
  checkpoint::take_remaining_states();
  collective::replace_world(std::move(own.coming));
  Watch::instance().rest();
  place().joining = false;
  return {own.furthest, {}};
}

void await_others() { await_newcomers(collective::world()); }

}  // namespace adaptdl::generation
