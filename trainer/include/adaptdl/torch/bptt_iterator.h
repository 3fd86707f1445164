// Batches of a long text for language models that are trained by truncated back-propagation through time. This is the
// counterpart of AdaptDL's AdaptiveBPTTIterator.
//
//   AdaptiveBPTTIterator text(tokens, {.batch_size = 20, .bptt_len = 35});
//   for (int epoch : remaining_epochs_until(30)) {
//     for (auto& batch : text) { ... loss_of(model(batch.text), batch.target) ... }
//   }
//
// Layout: with b samples of a batch on each replica, the N tokens are cut into b columns of equal length and padded at
// the end. A pass goes down all columns at once, in windows of bptt_len rows. A batch is one window, [rows, b], and
// each of K replicas reads every K-th window. The target of a token is the token that follows it in the text, if
// necessary in the next column. The targets of the last token and of the padding are kIgnored. The rows of a batch are
// consecutive, so in each column a row continues the text of the row before.
//
// Guarantees: a pass on any K replicas reads every row, in order, and all replicas get the same number of batches with
// the same number of rows. The rows left for the last batch are shared evenly; where that is impossible, up to K-1 rows
// are read twice. So every token but the last is read with its target exactly once, except in those rows. (With one
// column, the last row is not read, because it has no target.) Each batch has at least one target that is not kIgnored.
//
// Elasticity: an interrupted pass resumes at the row where it was, on any number of replicas, if the batch size of a
// replica is the same: nothing is lost or repeated. With another batch size the columns differ, and the pass resumes at
// the proportional row, rounded up. Some tokens are then read again in this pass, and others are not read. The same
// applies when an adaptive batch size (autoscale_batch_size) changes in the middle of a pass. A loop is always exactly
// one pass, whatever statistical progress it made.
//
// Errors: those of AdaptiveDataLoaderHelper, and UsageError for invalid tokens or options.
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
  // Columns that a step reads over all replicas, >= 1. Each replica gets an equal share, rounded up.
  std::int64_t batch_size = 1;
  // Rows of a batch, >= 1: the number of tokens over which gradients propagate back.
  std::int64_t bptt_len = 35;
  // Token that pads the last columns.
  std::int64_t padding = 0;
  // Whether text and target have the shape [b, rows] instead of [rows, b].
  bool batch_first = false;
  // Name of its checkpoint state, used instead of a number; see AdaptiveDataLoaderHelper.
  std::string name = {};
};

class AdaptiveBPTTIterator : public AdaptiveDataLoaderMixin {
 private:
  class Loop;

 public:
  // The target of a token that has none. LibTorch's losses ignore it by default.
  static constexpr std::int64_t kIgnored = -100;

  // Two int64 tensors of equal shape, on the device of the tokens. If that is a GPU, batches need not be copied to it.
  struct Batch {
    at::Tensor text;    // tokens
    at::Tensor target;  // the token that follows each
  };

  // `tokens`: int64 [N], N >= 2. They are kept, and laid out again in two copies when the batch size changes.
  explicit AdaptiveBPTTIterator(at::Tensor tokens, BPTTOptions options = {});

  AdaptiveBPTTIterator(const AdaptiveBPTTIterator&) = delete;
  AdaptiveBPTTIterator& operator=(const AdaptiveBPTTIterator&) = delete;

  // Iterates over the remaining batches of this pass; none if it was finished before a restart. The loop ends with it.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;

    Iterator(Iterator&&) noexcept;
    Iterator& operator=(Iterator&&) noexcept;
    ~Iterator();

    Batch& operator*() const noexcept;
    Batch* operator->() const noexcept { return &**this; }
    // Counts the batch as read, and gets the next one after a step boundary, where the job may exit.
    Iterator& operator++();
    bool operator==(std::default_sentinel_t) const noexcept { return !loop_; }

   private:
    friend class AdaptiveBPTTIterator;
    explicit Iterator(AdaptiveBPTTIterator& text);
    std::unique_ptr<Loop> loop_;
  };

  // Begins a pass. Throws UsageError as AdaptiveDataLoaderHelper::context does, and Error if the checkpoint was taken
  // in the middle of a text of another length.
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const noexcept { return {}; }

  // Returns the number of batches of a whole pass on each replica, at the present batch size.
  std::size_t size() const;

  // Returns the options given to the constructor.
  const BPTTOptions& options() const noexcept { return options_; }

 private:
  at::Tensor tokens_;
  BPTTOptions options_;
};

}  // namespace adaptdl
