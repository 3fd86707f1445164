// Splits a long text into batches for language models that are trained by truncated backpropagation through time. It is
// the counterpart of AdaptDL's AdaptiveBPTTIterator.
//
//   AdaptiveBPTTIterator text(tokens, {.batch_size = 20, .bptt_len = 35});
//   for (int epoch : remaining_epochs_until(30)) {
//     for (auto& batch : text) { ... loss_of(model(batch.text), batch.target) ... }
//   }
//
// Layout: with a batch size of b on each replica, the N tokens are cut into b columns of equal length, with padding at
// the end. A pass reads all columns in parallel, in windows of bptt_len rows. A batch is one window of shape [rows, b],
// and each of K replicas reads every K-th window. The target of a token is the token that follows it in the text, which
// may be in the next column. The targets of the last token and of the padding are kIgnored. The rows of a batch are
// consecutive, so in each column a row continues the text of the row before.
//
// Guarantees: on any number K of replicas, a pass reads every row in order, and all replicas receive the same number of
// batches with the same number of rows. The rows left for the last batch are divided evenly; if that is impossible, up
// to K-1 rows are read twice. Apart from those rows, every token but the last is read exactly once with its target.
// (With one column, the last row is not read, because it has no target.) Each batch has at least one target that is not
// kIgnored.
//
// Elasticity: if the batch size per replica is unchanged, an interrupted pass resumes at the same row on any number of
// replicas, and no row is lost or repeated. If the batch size is different, the columns are cut again, and the pass
// resumes at the same fraction of their length, rounded up to a whole row. Some tokens are then read twice in this
// pass, and others are skipped. The same applies when an adaptive batch size (autoscale_batch_size) changes in the
// middle of a pass. A loop is always exactly one pass, regardless of how much statistical progress it makes.
//
// Errors: UsageError for invalid tokens or options, and the errors of AdaptiveDataLoaderHelper.
// Threading: only the training thread may use the object.
// Lifetime: iterators refer to the object, which can be neither copied nor moved.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

#include "adaptdl/torch/data_loader_helper.h"

namespace adaptdl {

// Options of AdaptiveBPTTIterator.
struct BPTTOptions {
  // Number of columns per step across all replicas, >= 1. Each replica receives an equal share, rounded up.
  std::int64_t batch_size = 1;
  // Number of rows in a batch, >= 1: the number of tokens over which gradients propagate back.
  std::int64_t bptt_len = 35;
  // Token that pads the last columns.
  std::int64_t padding = 0;
  // Whether text and target have the shape [b, rows] instead of [rows, b].
  bool batch_first = false;
  // Name of the checkpoint state, used instead of a number; see AdaptiveDataLoaderHelper.
  std::string name = {};
};

class AdaptiveBPTTIterator : public AdaptiveDataLoaderMixin {
 private:
  class Loop;

 public:
  // The target of a token that no token follows. LibTorch's losses ignore it by default.
  static constexpr std::int64_t kIgnored = -100;

  // Two int64 tensors of equal shape, on the tokens' device. If the tokens are on a GPU, batches need not be copied to
  // it.
  struct Batch {
    at::Tensor text;    // tokens
    at::Tensor target;  // for each token in `text`, the token that follows it
  };

  // `tokens`: int64 [N], N >= 2. The object keeps the tokens. A loop also keeps two copies of the tokens in columns,
  // which it creates again when the batch size changes.
  explicit AdaptiveBPTTIterator(at::Tensor tokens, BPTTOptions options = {});

  AdaptiveBPTTIterator(const AdaptiveBPTTIterator&) = delete;
  AdaptiveBPTTIterator& operator=(const AdaptiveBPTTIterator&) = delete;

  // Iterates over the remaining batches of this pass. There are none if the pass was finished before a restart. The
  // loop ends after the last batch, or earlier if the iterator is destroyed.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator(Iterator&&) noexcept;
    Iterator& operator=(Iterator&&) noexcept;
    ~Iterator();

    Batch& operator*() const noexcept;
    Batch* operator->() const noexcept { return &**this; }
    // Marks the batch as read, passes a step boundary, where the job may exit, and moves to the next batch.
    Iterator& operator++();
    bool operator==(std::default_sentinel_t) const noexcept { return !loop_; }

   private:
    friend class AdaptiveBPTTIterator;
    explicit Iterator(AdaptiveBPTTIterator& text);
    std::unique_ptr<Loop> loop_;
  };

  // Begins a pass. Throws UsageError under the same conditions as AdaptiveDataLoaderHelper::context, and Error if the
  // checkpoint was saved in the middle of a text of a different length.
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const noexcept { return {}; }

  // Returns the number of batches in a whole pass on each replica, at the current batch size.
  std::size_t size() const;

  // Returns the options given to the constructor.
  const BPTTOptions& options() const noexcept { return options_; }

 private:
  at::Tensor tokens_;
  BPTTOptions options_;
};

}  // namespace adaptdl
