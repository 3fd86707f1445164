#include "collective/pending_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace adaptdl::collective {
namespace {

using wire::Frame;
using wire::Kind;
using wire::Type;

constexpr std::size_t kMaxAhead = 1024;  // number of calls by which a replica may be ahead before it must wait

}  // namespace

PendingCalls::PendingCalls(const Options& options)
    : options_(options), replicas_(static_cast<std::size_t>(options.size)), missing_(replicas_.size()) {}

void PendingCalls::add(int rank, Part part) {
  Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  if (replica.parts.empty()) --missing_;
  replica.part_bytes += part.value.size();
  replica.parts.push_back(std::move(part));
  ++replica.calls;
}

std::string PendingCalls::mismatch_text() const {
  std::vector<std::pair<const Part*, std::vector<int>>> calls;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const Part& part = replicas_[i].parts.front();
    auto call =
        std::find_if(calls.begin(), calls.end(), [&](const auto& each) { return each.first->is_of_call(part); });
    if (call == calls.end()) call = calls.insert(calls.end(), {&part, {}});
    call->second.push_back(static_cast<int>(i));
  }
  if (calls.size() == 1) return "";
  std::string who;
  for (const auto& [part, ranks] : calls)
    who += fmt::format("{}{} on {}", who.empty() ? "" : ", ", wire::call_text(part->kind, part->purpose),
                       replicas_text(ranks));
  return fmt::format("call #{} differs between replicas: {}; all replicas must make the same calls in the same order",
                     completed_ + 1, who);
}

Frame PendingCalls::complete(const Reduce& reduce) {
  const Kind kind = replicas_[0].parts.front().kind;
  Frame result = combine(kind, reduce);
  result.kind = kind;
  result.sequence = ++completed_;
  if (result.type == Type::kFailed && result.payload.size() > wire::kMaxText) result.payload.resize(wire::kMaxText);
  for (Replica& replica : replicas_) {
    replica.part_bytes -= replica.parts.front().value.size();
    replica.parts.pop_front();
    if (replica.parts.empty()) ++missing_;
  }
  return result;
}

// Returns the result of the current call.
Frame PendingCalls::combine(Kind kind, const Reduce& reduce) {
  const std::string name = wire::call_name(kind, completed_ + 1);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const Part& part = replicas_[i].parts.front();
    if (part.failed) return {Type::kFailed, kind, 0, fmt::format("{}: replica {}: {}", name, i, part.value)};
  }
  try {
    Bytes value = reduce_parts(reduce);
    const std::size_t size = kind == Kind::kAllgather ? value.size() - 8 * replicas_.size() : value.size();
    const std::string oversize = oversize_text(options_, size);
    if (!oversize.empty()) return {Type::kFailed, kind, 0, fmt::format("{}: the result: {}", name, oversize)};
    return {Type::kValue, kind, 0, std::move(value)};
  } catch (const std::exception& error) {
    return {Type::kFailed, kind, 0, fmt::format("{}: {}", name, error.what())};
  } catch (...) {
    return {Type::kFailed, kind, 0, fmt::format("{}: the reduction threw an unknown exception", name)};
  }
}

Bytes PendingCalls::reduce_parts(const Reduce& reduce) {
  std::vector<Bytes> values;
  for (Replica& replica : replicas_) {
    Part& part = replica.parts.front();
    replica.part_bytes -= part.value.size();
    values.push_back(std::exchange(part.value, {}));
  }
  switch (replicas_[0].parts.front().kind) {
    case Kind::kAllgather:
      return wire::pack(values);
    case Kind::kBroadcast:
      return std::move(values[0]);
    case Kind::kTeardown:
      return {};
    case Kind::kAllreduce:
      break;
  }
  Bytes accumulated = std::move(values[0]);
  for (std::size_t i = 1; i < values.size(); ++i)
    accumulated = reduce(std::move(accumulated), std::exchange(values[i], {}));
  return accumulated;
}

bool PendingCalls::too_far_ahead(int rank) const {
  const Replica& replica = replicas_[static_cast<std::size_t>(rank)];
  return replica.parts.size() > kMaxAhead || replica.part_bytes > options_.max_message;
}

std::optional<PendingCalls::TimePoint> PendingCalls::first_arrival() const {
  if (missing_ == replicas_.size()) return std::nullopt;
  TimePoint first = TimePoint::max();
  for (const Replica& replica : replicas_)
    if (!replica.parts.empty()) first = std::min(first, replica.parts.front().arrived);
  return first;
}

std::vector<int> PendingCalls::missing_ranks() const {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < replicas_.size(); ++i)
    if (replicas_[i].parts.empty()) ranks.push_back(static_cast<int>(i));
  return ranks;
}

std::string PendingCalls::when() const {
  for (const Replica& replica : replicas_)
    if (!replica.parts.empty()) return "during " + wire::call_name(replica.parts.front().kind, completed_ + 1);
  return completed_ == 0 ? "before the first call" : fmt::format("after call #{}", completed_);
}

}  // namespace adaptdl::collective
