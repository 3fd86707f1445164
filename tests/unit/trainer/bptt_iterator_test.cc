// Tests AdaptiveBPTTIterator on one replica, on several replicas and across restarts. Each replica is a process.
#include "adaptdl/torch/bptt_iterator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <torch/types.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "adaptdl/error.h"
#include "adaptdl/torch/epoch.h"
#include "elastic_job.h"
#include "loop/batch_size_choice.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace bptt_iterator_test {

namespace {

using adaptdl::AdaptiveBPTTIterator;
using adaptdl::BPTTOptions;
using adaptdl::remaining_epochs_until;
using adaptdl::UsageError;
using testing::ElasticJob;
using Numbers = std::vector<std::int64_t>;
using ::testing::error_of;
using ::testing::says;

constexpr int kCheckpointed = 143;
constexpr auto kIgnored = AdaptiveBPTTIterator::kIgnored;
constexpr std::int64_t kPadding = -7;

// Returns a text whose token i is the number i.
at::Tensor text_of(std::size_t tokens) { return at::arange(static_cast<std::int64_t>(tokens)); }

Numbers values(const at::Tensor& tensor) {
  const auto flat = tensor.contiguous().flatten();
  return {flat.data_ptr<std::int64_t>(), flat.data_ptr<std::int64_t>() + flat.numel()};
}

// Parses the numbers of a note.
Numbers numbers_of(const std::string& note) {
  std::istringstream text(note);
  Numbers numbers;
  for (std::int64_t number = 0; text >> number;) numbers.push_back(number);
  return numbers;
}

// Checks that the target of each token is the next token in a text of `tokens` tokens, if there is one.
void expect_targets(const AdaptiveBPTTIterator::Batch& batch, std::int64_t tokens) {
  const auto text = values(batch.text), target = values(batch.target);
  EXPECT(text.size() == target.size());
  bool any = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool follows = text[i] != kPadding && text[i] + 1 < tokens;
    EXPECT(target[i] == (follows ? text[i] + 1 : kIgnored));
    any |= follows;
  }
  EXPECT(any);
}

}  // namespace

TEST_CASE("a pass reads the columns of the text in windows, and targets continue across column ends") {
  ElasticJob().run_to(0, 1, [](int) {
    AdaptiveBPTTIterator text(text_of(11), {.batch_size = 2, .bptt_len = 4, .padding = kPadding});
    AdaptiveBPTTIterator across(text_of(11), {.batch_size = 2, .bptt_len = 4, .batch_first = true, .name = "across"});
    AdaptiveBPTTIterator single(text_of(4), {.batch_size = 1, .bptt_len = 2, .name = "single"});
    EXPECT(text.size() == 2 && single.size() == 2);
    for ([[maybe_unused]] int epoch : remaining_epochs_until(2)) {
      std::vector<Numbers> texts, targets;
      for (auto& batch : text) {
        EXPECT(text.current_local_bsz() == 2u);
        texts.push_back(values(batch.text));
        targets.push_back(values(batch.target));
      }
      EXPECT(texts == std::vector<Numbers>{{0, 6, 1, 7, 2, 8, 3, 9}, {4, 10, 5, kPadding}});
      EXPECT(targets == std::vector<Numbers>{{1, 7, 2, 8, 3, 9, 4, 10}, {5, kIgnored, 6, kIgnored}});
      const auto first = *across.begin();
      EXPECT(values(first.text) == Numbers{0, 1, 2, 3, 6, 7, 8, 9});
      EXPECT(values(first.target) == Numbers{1, 2, 3, 4, 7, 8, 9, 10});
      Numbers last;
      for (auto& batch : single) last = values(batch.target);
      EXPECT(last == Numbers{3});  // the text's last token has no target
    }
  });
}

TEST_CASE("all replicas get the same number and size of batches, and rows are read in order") {
  const ElasticJob job;
  for (int replicas = 1; replicas <= 4; ++replicas) {
    job.run_to(0, replicas, [&](int) {
      std::mt19937 random(5);  // with the same numbers on every replica
      for ([[maybe_unused]] int epoch : remaining_epochs_until(40)) {
        const auto tokens = 2 + random() % 200;
        const BPTTOptions options{.batch_size = static_cast<std::int64_t>(1 + random() % 9),
                                  .bptt_len = static_cast<std::int64_t>(1 + random() % 12),
                                  .padding = kPadding};
        AdaptiveBPTTIterator text(text_of(tokens), options);
        const auto expected = text.size();
        std::size_t batches = 0;
        std::int64_t next = 0, repeated = 0;
        for (auto& batch : text) {
          ++batches;
          expect_targets(batch, static_cast<std::int64_t>(tokens));
          EXPECT(batch.text.size(0) >= 1 && batch.text.size(0) <= options.bptt_len);
          // In the first column, a token is the number of its row.
          const auto mine = fmt::format("{} {}", batch.text[0][0].item<std::int64_t>(), batch.text.size(0));
          for (const auto& window : adaptdl::collective::world().allgather(mine)) {
            const auto rows = numbers_of(window);
            EXPECT(rows[1] == batch.text.size(0));
            EXPECT(rows[0] <= next);
            repeated += next - rows[0];
            next = rows[0] + rows[1];
          }
        }
        const auto columns = static_cast<std::size_t>(text.helper().current_local_bsz());
        EXPECT(next == static_cast<std::int64_t>(std::min((tokens + columns - 1) / columns, tokens - 1)));
        EXPECT(repeated < replicas);
        EXPECT(batches == expected);
      }
    });
  }
}

TEST_CASE("with a constant local batch size, restarts on 1 to 4 replicas lose no tokens" *
          doctest::test_suite("slow")) {
  constexpr std::size_t kTokens = 500, kColumns = 3;
  for (unsigned seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    const ElasticJob job;
    std::mt19937 random(seed);
    int last_replicas = 0;
    bool finished = false;
    for (int run = 0; !finished; ++run) {
      REQUIRE(run < 60);
      const int replicas = last_replicas = 1 + run % 4;
      const int victim = static_cast<int>(random() % static_cast<unsigned>(replicas));
      const auto steps = 1 + random() % 4;
      const auto codes = job.run(replicas, [&](int rank) {
        AdaptiveBPTTIterator text(
            text_of(kTokens), {.batch_size = replicas * std::int64_t{kColumns}, .bptt_len = 5, .padding = kPadding});
        std::size_t step = 0;
        for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
          for (auto& batch : text) {
            if (++step == steps && rank == victim) kill(getpid(), SIGTERM);
            expect_targets(batch, kTokens);
            job.note(fmt::format("{}", fmt::join(values(batch.text), " ")));
          }
        }
      });
      finished = codes == std::vector<int>(static_cast<std::size_t>(replicas), 0);
      if (!finished) REQUIRE(codes == std::vector<int>(static_cast<std::size_t>(replicas), kCheckpointed));
    }
    std::map<std::int64_t, int> times;
    std::size_t cells = 0;
    for (const auto& note : job.notes()) {
      for (const auto token : numbers_of(note)) ++times[token], ++cells;
    }
    times.erase(kPadding);
    CHECK(times.size() == kTokens);
    const auto rows = (kTokens + kColumns - 1) / kColumns;
    CHECK(cells - rows * kColumns < static_cast<std::size_t>(last_replicas) * kColumns);
  }
}

TEST_CASE("with another batch size, the pass resumes at the same fraction of the text, rounded up to a row") {
  for (const auto& [columns_before, columns_after] : {std::pair{6, 3}, {3, 6}, {4, 7}, {1, 5}, {5, 1}}) {
    CAPTURE(columns_before);
    CAPTURE(columns_after);
    constexpr std::int64_t kTokens = 403;
    const ElasticJob job;
    const auto program = [&](std::int64_t batch_size, std::optional<std::size_t> stop) {
      AdaptiveBPTTIterator text(text_of(kTokens), {.batch_size = batch_size, .bptt_len = 7, .padding = kPadding});
      std::size_t step = 0;
      for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
        for (auto& batch : text) {
          if (stop && ++step == *stop) kill(getpid(), SIGTERM);
          job.note(fmt::format("{} {}", batch.text[0][0].item<std::int64_t>(), batch.text.size(0)));
        }
      }
    };
    const auto length = [](std::int64_t columns) { return (kTokens + columns - 1) / columns; };
    job.run_to(kCheckpointed, 1, [&](int) { program(columns_before, 4); });
    const auto last = numbers_of(job.notes().back());
    const auto done = last[0] + last[1];
    job.run_to(0, 1, [&](int) { program(columns_after, {}); });
    const auto first = numbers_of(job.notes()[static_cast<std::size_t>(done / 7)]);
    const auto expected = (done * length(columns_after) + length(columns_before) - 1) / length(columns_before);
    CHECK(first[0] == expected);
    const auto end = numbers_of(job.notes().back());
    CHECK(end[0] + end[1] == std::min(length(columns_after), kTokens - 1));
  }
}

TEST_CASE("when the batch size changes within a pass, all replicas continue at the same fraction of the text") {
  static constexpr std::int64_t kTokens = 2000, kLength = 6;
  const ElasticJob job;
  job.run_to(0, 2, [&](int) {
    // The local batch size changes from 4 to 7, and then to 2 with two batches per step.
    adaptdl::internal::set_batch_size_decider([](std::uint64_t step) -> std::optional<std::pair<std::size_t, int>> {
      if (step == 3) return std::pair{std::size_t{7}, 0};
      if (step == 6) return std::pair{std::size_t{2}, 1};
      return {};
    });
    AdaptiveBPTTIterator text(text_of(kTokens), {.batch_size = 8, .bptt_len = kLength, .padding = kPadding});
    text.autoscale_batch_size(20, {}, true);
    const auto rows = [](std::int64_t columns) { return (kTokens + columns - 1) / columns; };
    Numbers widths;
    std::int64_t columns = 4, next = 0;
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for (auto& batch : text) {
        expect_targets(batch, kTokens);
        if (const auto width = batch.text.size(1); width != columns) {
          const auto cells = columns * rows(columns);
          next = (next * columns * rows(width) + cells - 1) / cells;
          columns = width;
        }
        if (widths.empty() || widths.back() != columns) widths.push_back(columns);
        EXPECT(text.helper().accumulation_steps() == (columns == 2 ? 1 : 0));
        const auto mine = fmt::format("{} {} {}", batch.text[0][0].item<std::int64_t>(), batch.text.size(0), columns);
        for (const auto& window : adaptdl::collective::world().allgather(mine)) {
          const auto place = numbers_of(window);
          EXPECT(place[0] <= next && place[2] == columns);
          EXPECT(place[0] == next || batch.text.size(0) < kLength);  // rows are repeated only at the end
          next = place[0] + place[1];
        }
      }
    }
    EXPECT(widths == Numbers{4, 7, 2});
    EXPECT(next == rows(2));
  });
}

TEST_CASE("a finished pass is skipped after a restart, and a pass interrupted by an exception resumes") {
  const ElasticJob job;
  const auto program = [&](bool stop) {
    AdaptiveBPTTIterator first(text_of(40), {.batch_size = 2, .bptt_len = 5});
    AdaptiveBPTTIterator second(text_of(40), {.batch_size = 2, .bptt_len = 5});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      std::size_t batches = 0;
      const auto loop = [&](std::size_t limit) {
        for ([[maybe_unused]] auto& batch : first) {
          if (batches == limit) throw std::runtime_error("out of luck");
          ++batches;
        }
      };
      try {
        loop(2);
      } catch (const std::runtime_error&) {
        loop(100);
      }
      EXPECT(batches == (stop ? 4 : 0));
      for (auto& batch : second) {
        job.note(fmt::format("{}", batch.text[0][0].item<std::int64_t>()));
        if (stop) kill(getpid(), SIGTERM);
        if (!stop) break;
      }
      EXPECT(values((*first.begin()).text).front() == 0);  // this pass is independent of the first one
    }
  };
  job.run_to(kCheckpointed, 1, [&](int) { program(true); });
  job.run_to(0, 1, [&](int) { program(false); });
  CHECK(job.notes() == std::vector<std::string>{"0", "5", "10"});  // one more step runs before a stop is agreed on
}

TEST_CASE("resuming with a text of another length fails and names the loader") {
  const ElasticJob job;
  const auto program = [&](std::size_t tokens) {
    AdaptiveBPTTIterator text(text_of(tokens), {.batch_size = 2, .bptt_len = 5, .name = "tales"});
    for ([[maybe_unused]] int epoch : remaining_epochs_until(1)) {
      for ([[maybe_unused]] auto& batch : text) kill(getpid(), SIGTERM);
    }
  };
  job.run_to(kCheckpointed, 1, [&](int) { program(40); });
  job.run_to(0, 1, [&](int) {
    const auto error = error_of([&] { program(41); });
    EXPECT(says(error, "tales") && says(error, "40") && says(error, "41"));
  });
}

TEST_CASE("invalid tokens and options are rejected") {
  ElasticJob().run_to(0, 1, [](int) {
    const auto refusal = [](const at::Tensor& tokens, const BPTTOptions& options) {
      return error_of([&] { const AdaptiveBPTTIterator text(tokens, options); });
    };
    EXPECT(says(refusal(text_of(9), {.batch_size = 0}),
                "batch_size must be at least 1 (samples across all replicas), got 0"));
    EXPECT(says(refusal(text_of(9), {.bptt_len = 0}), "bptt_len must be at least 1 (tokens per window), got 0"));
    EXPECT(says(refusal(text_of(1), {}), "at least 2 tokens, got 1"));
    EXPECT(says(refusal(at::rand(9), {}), "int64"));
    EXPECT(says(refusal(text_of(9).view({3, 3}), {}), "one-dimensional"));
    AdaptiveBPTTIterator text(text_of(9));
    EXPECT(says(error_of([&] { text.begin(); }), "outside an epoch loop"));
    EXPECT(says(error_of([&] { text.autoscale_batch_size(0); }), "max_batch_size 0"));
  });
}

}  // namespace bptt_iterator_test
