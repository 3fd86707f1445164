// Tests the usage of jobs by month: none is lost or counted twice, regardless of which jobs are deleted and which
// requests fail or are repeated.
#include "kube/jobs/usage_ledger.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "adaptdl/error.h"

namespace kube_usage_ledger_test {

using namespace adaptdl::kube;
using doctest::Approx;
using nlohmann::json;
using namespace std::chrono_literals;

namespace {

const Month kMonth = *Month::parse("2026-11");
const Month kNext = *Month::parse("2026-12");
const Time kBegin = kMonth.begin();

UsageRecord job(const std::string& uid, JobUsage usage, const std::string& user = "alice") {
  return {.uid = uid, .name_space = "team", .name = "job-" + uid, .user = user, .usage = usage};
}

// Returns the usage of a job that has held 2 GPUs at a price of 6 per hour since the given time.
JobUsage held(Time since, double gpu_seconds = 0) {
  return {.gpu_seconds = gpu_seconds, .cost = gpu_seconds / 3600 * 3, .gpus = 2, .cost_per_hour = 6, .since = since};
}

JobUsage released(JobUsage usage, Time when) {
  usage.release(when);
  return usage;
}

UsageLedger stored(const UsageLedger& ledger) { return UsageLedger::parse(ledger.month(), {{"data", ledger.data()}}); }

UsageSum total(const UsageLedger& ledger, Time now) {
  UsageSum sum;
  for (const UsageSum& each : ledger.sums(now)) sum += each;
  return sum;
}

}  // namespace

TEST_CASE("months are calendar months in UTC") {
  CHECK(kMonth.to_string() == "2026-11");
  CHECK(to_string(kMonth.begin()).starts_with("2026-11-01T00:00:00"));
  CHECK(kMonth.end() == kNext.begin());
  CHECK(Month::of(kNext.begin()) == kNext);
  CHECK(Month::of(kNext.begin() - 1us) == kMonth);
  CHECK(Month::parse("2026-12")->end() == Month::parse("2027-01")->begin());
  CHECK(kMonth < kNext);
  for (const char* text :
       {"", "2026-13", "2026-00", "2026-1", "2026-111", "26-11", "2026/11", "abcd-11", "-026-11", "1969-12"})
    CHECK_FALSE(Month::parse(text));
}

TEST_CASE("the month of a ConfigMap is parsed from the end of its name") {
  const auto month = [](const char* name) { return month_of({{"metadata", {{"name", name}}}}); };
  CHECK(month("adaptdl-usage-2026-11") == kMonth);
  for (const char* name : {"", "2026-11", "usage2026-11", "usage-2026-13", "usage-2026-11-1"}) CHECK_FALSE(month(name));
}

TEST_CASE("existing jobs are charged until now, per user and namespace") {
  UsageLedger ledger(kMonth);
  ledger.record({job("a", held(kBegin)), job("b", released(held(kBegin), kBegin + 1h), "bob"),
                 job("c", held(kBegin + 2h)), job("unused", {})},
                {}, kBegin + 2h);
  const auto sums = stored(ledger).sums(kBegin + 4h);
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].user == "alice");
  CHECK(sums[0].name_space == "team");
  CHECK(sums[0].jobs == 2);
  CHECK(sums[0].gpu_hours == Approx(12));
  CHECK(*sums[0].cost == Approx(36));
  CHECK(sums[1].user == "bob");
  CHECK(sums[1].jobs == 1);
  CHECK(sums[1].gpu_hours == Approx(2));
}

TEST_CASE("deleted jobs remain in the totals but leave no entry") {
  UsageLedger ledger(kMonth);
  ledger.record({job("a", held(kBegin)), job("b", held(kBegin))}, {}, kBegin + 1h);
  // Job a was reported as deleted, b disappeared, and c was created and deleted between two updates.
  ledger.record({}, {job("a", released(held(kBegin), kBegin + 2h)), job("c", released(held(kBegin), kBegin + 1h))},
                kBegin + 3h);
  CHECK(ledger.is_deleted("a"));
  for (int i = 0; i < 3; ++i) {
    const UsageSum sum = total(stored(ledger), kBegin + 9h);
    CHECK(sum.jobs == 3);
    CHECK(sum.gpu_hours == Approx(2 * (2 + 3 + 1)));
    CHECK(*sum.cost == Approx(6 * (2 + 3 + 1)));
    ledger.record({}, {}, kBegin + 4h);
  }
  CHECK_FALSE(ledger.is_deleted("a"));
  CHECK(json::parse(ledger.data()["usage.json"].get<std::string>())["jobs"].empty());
}

TEST_CASE("the cost is unknown without prices") {
  UsageLedger ledger(kMonth);
  JobUsage usage = held(kBegin);
  usage.cost.reset();
  usage.cost_per_hour.reset();
  ledger.record({job("a", usage)}, {}, kBegin);
  CHECK_FALSE(total(stored(ledger), kBegin + 1h).cost);
  ledger.record({}, {}, kBegin + 1h);
  ledger.record({}, {}, kBegin + 1h);
  CHECK_FALSE(total(stored(ledger), kBegin + 1h).cost);
}

TEST_CASE("the usage of a job that spans months is divided between them") {
  const Time end = kMonth.end();
  UsageLedger november(kMonth);
  november.record({job("runs", held(end - 5h)), job("over", released(held(kBegin), kBegin + 3h))}, {}, end - 1h);
  const std::vector<UsageRecord> now = {job("runs", held(end - 5h)), job("over", released(held(kBegin), kBegin + 3h)),
                                        job("new", held(end + 1h))};
  UsageLedger december = november.close(kNext, now, {});
  december.record(now, {}, end + 2h);
  CHECK(total(stored(november), end + 99h).gpu_hours == Approx(2 * (5 + 3)));
  CHECK(*total(stored(november), end + 99h).cost == Approx(6 * (5 + 3)));
  CHECK(total(stored(november), end + 99h).jobs == 2);
  CHECK(total(stored(december), end + 2h).gpu_hours == Approx(2 * (2 + 1)));
  CHECK(*total(stored(december), end + 2h).cost == Approx(6 * (2 + 1)));
  CHECK(total(stored(december), end + 2h).jobs == 2);
  // In the next month, the usage is not counted again.
  UsageLedger january = december.close(*Month::parse("2027-01"), now, {});
  january.record(now, {}, kNext.end());
  CHECK(total(january, kNext.end()).gpu_hours == Approx(0));
  // The sums of a month do not change after its end.
  CHECK(total(UsageLedger::parse(kMonth, {{"data", november.data()}}), end + 999h).gpu_hours == Approx(16));
}

TEST_CASE("usage after a month's end is not charged to that month, even if it is closed late") {
  const Time end = kMonth.end();
  UsageLedger november(kMonth);
  november.record({job("a", held(end - 5h)), job("b", held(end - 5h))}, {}, end - 1h);
  // No operator ran until the jobs had ended and one had been deleted.
  const std::vector<UsageRecord> now = {job("a", released(held(end - 5h), end + 30h))};
  const std::vector<UsageRecord> deleted = {job("b", released(held(end - 5h), end + 10h))};
  UsageLedger december = november.close(kNext, now, deleted);
  december = november.close(kNext, now, deleted);  // the first result was not stored
  december.record(now, deleted, end + 40h);
  december.record(now, {}, end + 40h);
  CHECK(total(stored(november), end + 99h).gpu_hours == Approx(2 * (5 + 5)));
  CHECK(total(stored(december), end + 99h).gpu_hours == Approx(2 * (30 + 10)));
  CHECK(*total(stored(december), end + 99h).cost == Approx(6 * (30 + 10)));
}

TEST_CASE("a job's user does not change, and an overlong user name is ignored") {
  UsageLedger ledger(kMonth);
  ledger.record({job("a", held(kBegin))}, {}, kBegin);
  ledger.record({job("a", held(kBegin), "bob")}, {}, kBegin);
  CHECK(ledger.sums(kBegin + 1h).at(0).user == "alice");
  json object{{"metadata", {{"uid", "u"}, {"annotations", {{kSubmitterAnnotation, std::string(256, 'x')}}}}}};
  CHECK(parse_usage_record(object).user.size() == 256);
  object["metadata"]["annotations"][kSubmitterAnnotation] = std::string(257, 'x');
  CHECK(parse_usage_record(object).user.empty());
}

TEST_CASE("data other than a JSON object is an error, and invalid fields count as 0") {
  for (const json& data : {json(), json{{"usage.json", ""}}, json{{"usage.json", "[1]"}}, json{{"usage.json", "{"}}})
    CHECK_THROWS_AS(UsageLedger::parse(kMonth, {{"data", data}}), adaptdl::Error);
  for (const json& data :
       {json{{"usage.json", "{\"jobs\": [1], \"deleted\": 2}"}},
        json{{"usage.json", R"({"jobs": {"u": 7}, "deleted": [3, {"jobs": "x", "gpuHours": -1}]})"}}})
    CHECK(total(UsageLedger::parse(kMonth, {{"data", data}}), kBegin).gpu_hours == 0);
}

namespace {

// Starts, stops and deletes jobs at random, while the operator restarts and responses are lost.
void check_histories(int histories) {
  std::mt19937 random(3);
  const auto below = [&](unsigned n) { return random() % n; };
  for (int history = 0; history < histories; ++history) {
    CAPTURE(history);
    std::map<std::string, UsageRecord> jobs;
    std::vector<UsageRecord> deleted;  // deleted jobs in the operator's memory
    double expected = 0;               // GPU-hours of deleted jobs
    json store = UsageLedger(kMonth).data();
    std::optional<UsageLedger> ledger;
    Time now = kBegin;
    int created = 0;
    const auto pass = [&](bool applied, bool answered) {
      if (!ledger) ledger = UsageLedger::parse(kMonth, {{"data", store}});
      std::erase_if(deleted, [&](const UsageRecord& each) { return ledger->is_deleted(each.uid); });
      std::vector<UsageRecord> existing;
      for (const auto& [uid, each] : jobs) existing.push_back(each);
      ledger->record(existing, deleted, now);
      if (applied) store = ledger->data();
      if (applied && answered) {
        deleted.clear();
      } else {
        ledger.reset();
      }
    };
    for (int step = 0; step < 60; ++step) {
      now += std::chrono::minutes(1 + below(30));
      for (unsigned change = below(4); change > 0; --change) {
        if (jobs.empty() || below(3) == 0) {
          const std::string uid = std::to_string(created++);
          jobs[uid] = job(uid, held(now), below(2) == 0 ? "alice" : "bob");
        } else {
          auto each = std::next(jobs.begin(), static_cast<std::ptrdiff_t>(below(static_cast<unsigned>(jobs.size()))));
          JobUsage& usage = each->second.usage;
          if (below(2) == 0) {
            usage.since ? usage.release(now) : usage.hold(2, 6, now);
          } else {
            usage.release(now);
            expected += usage.gpu_hours(now);
            deleted.push_back(each->second);
            jobs.erase(each);
          }
        }
      }
      const bool applied = below(4) != 0;
      pass(applied, applied && below(4) != 0);
      // A new operator does not know which jobs were deleted, so the deletions must be recorded before it starts.
      if (below(8) == 0) {
        pass(true, true);
        ledger.reset();
      }
    }
    pass(true, true);
    double existing = 0;
    for (const auto& [uid, each] : jobs) existing += each.usage.gpu_hours(now);
    const UsageLedger last = UsageLedger::parse(kMonth, {{"data", store}});
    CHECK(total(last, now).gpu_hours == Approx(expected + existing));
    CHECK(*total(last, now).cost == Approx(3 * (expected + existing)));
  }
}

}  // namespace

TEST_CASE("no usage is lost or counted twice when responses are lost and operators restart" *
          doctest::test_suite("slow")) {
  check_histories(50);
}

TEST_CASE("no usage is lost or doubled in 1000 random histories" * doctest::test_suite("full")) {
  check_histories(1000);
}

}  // namespace kube_usage_ledger_test
