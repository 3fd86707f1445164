// Batches of a long text for language models, to be trained by truncated back-propagation through time: the counterpart
// of AdaptDL's AdaptiveBPTTIterator.
//
//   AdaptiveBPTTIterator text(tokens, {.batch_size = 20, .bptt_len = 35});
//   for (int epoch : remaining_epochs_until(30)) {
//     for (auto& batch : text) { ... loss_of(model(batch.text), batch.target) ... }
//   }
//
// Layout. With b samples of a batch on each replica, the N tokens are cut into b columns of equal length, the last of
// them filled up. A pass goes down all columns at once, in windows of bptt_len rows: a batch is one window, [rows, b],
// and each replica reads every K-th of K replicas. The target of a token is the one that follows it in the text, in the
// next column if need be; that of the text's last token and of what fills up is kIgnored. Rows of a batch are
// consecutive, and each row begins where the one before ended.
//
// What is promised. A pass on any K replicas reads every row, in order, and all replicas take equally many batches of
// equally many rows: what is left for the last batch is shared evenly, with up to K-1 rows read once more where it
// cannot be. So every token but the last is a target of its predecessor exactly once, save for those rows (and, with
// batch_size 1 on a replica, the last row, which has no target). Each batch has a target that counts.
//
// Elasticity. A pass that is interrupted goes on at the row where it was if the batch size of a replica is the same, on
// any number of replicas: nothing is lost or repeated. With another one the columns are others, and the pass goes on at
// the proportional row, rounded up: then some tokens are read again in this pass and others not. The same holds in the
// middle of a pass when an adaptive batch size (autoscale_batch_size) changes. A pass is always one, whatever
// statistical progress was made in it.
//
// Errors, beside those of AdaptiveDataLoaderHelper: UsageError on tokens and options that make no sense.
// Threading: used by the training thread. Lifetime: iterators refer to the object, which cannot be copied or moved.
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
  // Columns that are read in a step over all replicas, >= 1. Each replica gets it divided by their number, rounded up.
  std::int64_t batch_size = 1;
  // Rows of a batch, >= 1: over how many tokens gradients go back.
  std::int64_t bptt_len = 35;
  // Token that fills up the last columns.
  std::int64_t padding = 0;
  // Whether text and target are [b, rows] in the place of [rows, b].
  bool batch_first = false;
  // Name of its checkpoint state, in the place of its number; see AdaptiveDataLoaderHelper.
  std::string name = {};
};

class AdaptiveBPTTIterator : public AdaptiveDataLoaderMixin {
 private:
  class Loop;

 public:
  // The target of a token that has none; what LibTorch's losses ignore by default.
  static constexpr std::int64_t kIgnored = -100;

  // Two int64 tensors of equal shape, on the device of the tokens. With the tokens in a GPU's memory nothing is copied.
  struct Batch {
    at::Tensor text;    // tokens
    at::Tensor target;  // the token that follows each
  };

  // `tokens`: int64 [N], N >= 2; kept, and laid out anew when the batch size changes, which takes two copies of them.
  explicit AdaptiveBPTTIterator(at::Tensor tokens, BPTTOptions options = {});

  AdaptiveBPTTIterator(const AdaptiveBPTTIterator&) = delete;
  AdaptiveBPTTIterator& operator=(const AdaptiveBPTTIterator&) = delete;

  // The batches that are left of this pass; none if it was finished before a restart. The loop ends with its iterator.
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

  // Batches of a whole pass on each replica, at the present batch size.
  std::size_t size() const;

  // As given to the constructor.
  const BPTTOptions& options() const noexcept { return options_; }

 private:
  at::Tensor tokens_;
  BPTTOptions options_;
};

}  // namespace adaptdl
