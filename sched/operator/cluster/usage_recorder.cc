#include "operator/cluster/usage_recorder.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/log.h"
#include "kube/api/json_fields.h"
#include "operator/base/brief_calls.h"

namespace adaptdl::sched {
namespace {

using kube::UsageLedger;
using kube::UsageRecord;
using nlohmann::json;

}  // namespace

UsageRecorder::UsageRecorder(kube::Access access, std::string name_space, std::string name)
    : name_space_(std::move(name_space)), name_(std::move(name)), client_(std::move(access), kBriefCalls) {}

void UsageRecorder::record(const std::vector<UsageRecord>& existing, std::vector<UsageRecord> deleted, kube::Time now) {
  std::ranges::move(deleted, std::back_inserter(deleted_));
  try {
    kube::Month month = kube::Month::of(now);
    if (ledger_ && month < ledger_->month()) month = ledger_->month();  // the clock was set back
    if (!ledger_ || ledger_->month() != month) load(month, existing);
    std::erase_if(deleted_, [&](const UsageRecord& each) { return ledger_->is_deleted(each.uid); });
    ledger_->record(existing, deleted_, now);
    store();
    deleted_.clear();
    last_error_.clear();
  } catch (const Error& error) {
    // It is not known whether the last request was carried out, so the ledger is loaded again.
    ledger_.reset();
    if (std::exchange(last_error_, error.what()) != error.what())
      log::warn(fmt::format("cannot record the usage of jobs: {}", error.what()));
  }
}

// Loads the month's ledger, or creates it if it does not exist.
void UsageRecorder::load(kube::Month month, const std::vector<UsageRecord>& existing) {
  ledger_.reset();
  try {
    stored_ = client_.get(kube::path(kube::kConfigMaps, name_space_, name_of(month)));
  } catch (const kube::ApiError& error) {
    if (!error.not_found()) throw;
    stored_ = json();
  }
  if (!stored_.is_null()) {
    ledger_ = UsageLedger::parse(month, stored_);
    return;
  }
  std::optional<UsageLedger> last = latest_before(month);
  UsageLedger next(month);
  if (last) {
    // Only now is it known which of the deleted jobs were stored.
    std::erase_if(deleted_, [&](const UsageRecord& each) { return last->is_deleted(each.uid); });
    next = last->close(month, existing, deleted_);
    ledger_ = std::move(last);
    store();
  }
  stored_ = {{"apiVersion", "v1"},
             {"kind", "ConfigMap"},
             {"metadata",
              {{"name", name_of(month)},
               {"namespace", name_space_},
               {"labels", {{"app.kubernetes.io/name", kube::kUsageLabel}}}}},
             {"data", next.data()}};
  stored_ = client_.create(kube::path(kube::kConfigMaps, name_space_), stored_);
  ledger_ = std::move(next);
}

// Returns the ledger of the last month before this one, and sets stored_ to its ConfigMap.
std::optional<UsageLedger> UsageRecorder::latest_before(kube::Month month) {
  std::optional<kube::Month> latest;
  for (json& each : client_.list(kube::path(kube::kConfigMaps, name_space_), kube::usage_ledgers())) {
    const auto found = kube::month_of(each);
    if (!found || kube::name_of(each) != name_of(*found) || *found >= month || (latest && *found < *latest)) continue;
    latest = found;
    stored_ = std::move(each);
  }
  if (!latest) return {};
  return UsageLedger::parse(*latest, stored_);
}

// Writes the ledger unless it is already stored.
void UsageRecorder::store() {
  json data = ledger_->data();
  if (kube::field(stored_, {"data"}) == data) return;
  stored_["data"] = std::move(data);
  stored_ = client_.replace(kube::path(kube::kConfigMaps, name_space_, kube::name_of(stored_)), stored_);
}

}  // namespace adaptdl::sched
