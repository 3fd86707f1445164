#include "adaptdl/torch/bptt_iterator.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "adaptdl/error.h"
#include "loop/batch_size_choice.h"
#include "support/replicas.h"

namespace adaptdl {

namespace {

// Returns `options`. Throws UsageError if the options or the tokens are invalid.
const BPTTOptions& checked_options(const BPTTOptions& options, const at::Tensor& tokens) {
  if (options.batch_size < 1)
    throw UsageError(
        fmt::format("batch_size must be at least 1 (samples across all replicas), got {}", options.batch_size));
  if (options.bptt_len < 1)
    throw UsageError(fmt::format("bptt_len must be at least 1 (tokens per window), got {}", options.bptt_len));
  if (tokens.dim() != 1 || tokens.scalar_type() != at::kLong)
    throw UsageError("the tokens must be a one-dimensional int64 tensor");
  if (tokens.size(0) < 2) throw UsageError(fmt::format("a text must have at least 2 tokens, got {}", tokens.size(0)));
  return options;
}

// Returns the number of rows that a pass reads: those whose first column has a target.
std::size_t rows_read(std::size_t tokens, std::size_t columns) {
  return std::min(internal::divide_up(tokens, columns), tokens - 1);
}

}  // namespace

class AdaptiveBPTTIterator::Loop {
 public:
  explicit Loop(AdaptiveBPTTIterator& owner)
      : helper_(owner.helper()),
        options_(owner.options_),
        tokens_(owner.tokens_),
        context_(helper_.context()),
        skipped_(helper_.skipdone()) {
    if (skipped_) return;
    helper_.check_dataset(static_cast<std::size_t>(tokens_.size(0)));
    lay_out();
  }

  bool next() {
    if (skipped_) return false;
    if (profile_) {
      profile_.reset();
      if (helper_.redo_step()) {
        row_ = *helper_.current_index() / columns_;
      } else {
        row_ += std::min(rows_left(), round());
        helper_.set_current_index(row_ * columns_);
      }
    }
    if (rows_left() == 0) return false;
    profile_.emplace(helper_.profile(rows_left() >= round(), internal::divide_up(rows_left(), round())));
    if (helper_.batch_size_changed()) lay_out();
    cut();
    return true;
  }

  Batch batch;

 private:
  // Cuts the tokens into as many columns as a batch has samples, and moves to the row that corresponds to the position
  // of the pass in the previous layout.
  void lay_out() {
    const auto columns = helper_.sync_local_bsz();
    replicas_ = static_cast<std::size_t>(internal::num_replicas());
    if (columns == columns_) return;
    columns_ = columns;
    const auto tokens = static_cast<std::size_t>(tokens_.size(0));
    const auto length = internal::divide_up(tokens, columns_), cells = length * columns_;
    const auto fill = [&](const at::Tensor& some, std::int64_t value) {
      const auto missing = static_cast<std::int64_t>(cells) - some.size(0);
      return at::cat({some, at::full({missing}, value, tokens_.options())})
          .view({static_cast<std::int64_t>(columns_), static_cast<std::int64_t>(length)})
          .t()
          .contiguous();
    };
    text_ = fill(tokens_, options_.padding);
    targets_ = fill(tokens_.slice(0, 1), kIgnored);
    rows_ = rows_read(tokens, columns_);
    const auto index = *helper_.current_index(), cells_before = helper_.end_index();
    row_ = cells_before == 0 ? 0 : std::min(rows_ - 1, internal::divide_up(index * length, cells_before));
    helper_.set_end_index(cells);
    helper_.set_current_index(row_ * columns_);
  }

  // Returns the number of rows that the replicas together read with one batch each.
  std::size_t round() const { return static_cast<std::size_t>(options_.bptt_len) * replicas_; }
  std::size_t rows_left() const { return rows_ - row_; }

  // Sets `batch` to this replica's window.
  void cut() {
    const auto left = std::min(rows_left(), round());
    const auto height = internal::divide_up(left, replicas_);
    const auto start = row_ + std::min(static_cast<std::size_t>(internal::replica_rank()) * height, left - height);
    const auto window = [&](const at::Tensor& all) {
      const auto rows = all.narrow(0, static_cast<std::int64_t>(start), static_cast<std::int64_t>(height));
      return options_.batch_first ? rows.t().contiguous() : rows;
    };
    batch = {window(text_), window(targets_)};
  }

  AdaptiveDataLoaderHelper& helper_;
  const BPTTOptions& options_;
  const at::Tensor& tokens_;
  AdaptiveDataLoaderHelper::Context context_;
  const bool skipped_;
  std::size_t replicas_ = 1;
  std::size_t columns_ = 0;                                   // samples per batch
  std::size_t rows_ = 0;                                      // rows that a pass reads
  std::size_t row_ = 0;                                       // first row of the current batches
  at::Tensor text_, targets_;                                 // [column length, columns]
  std::optional<AdaptiveDataLoaderHelper::Profile> profile_;  // last, because a batch must end before its loop
};

AdaptiveBPTTIterator::AdaptiveBPTTIterator(at::Tensor tokens, BPTTOptions options)
    : AdaptiveDataLoaderMixin(static_cast<std::size_t>(checked_options(options, tokens).batch_size), options.name),
      tokens_(std::move(tokens)),
      options_(std::move(options)) {}

AdaptiveBPTTIterator::Iterator::Iterator(AdaptiveBPTTIterator& text) : loop_(std::make_unique<Loop>(text)) { ++*this; }
AdaptiveBPTTIterator::Iterator::Iterator(Iterator&&) noexcept = default;
AdaptiveBPTTIterator::Iterator& AdaptiveBPTTIterator::Iterator::operator=(Iterator&&) noexcept = default;
AdaptiveBPTTIterator::Iterator::~Iterator() = default;

AdaptiveBPTTIterator::Batch& AdaptiveBPTTIterator::Iterator::operator*() const noexcept { return loop_->batch; }

AdaptiveBPTTIterator::Iterator& AdaptiveBPTTIterator::Iterator::operator++() {
  if (!loop_->next()) loop_.reset();
  return *this;
}

std::size_t AdaptiveBPTTIterator::size() const {
  const auto replicas = static_cast<std::size_t>(internal::num_replicas());
  const auto known = helper().current_local_bsz();
  const auto columns = known > 0 ? known : internal::divide_up(helper().batch_size(), replicas);
  return internal::divide_up(rows_read(static_cast<std::size_t>(tokens_.size(0)), columns),
                             static_cast<std::size_t>(options_.bptt_len) * replicas);
}

}  // namespace adaptdl
