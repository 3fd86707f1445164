#include "adaptdl/torch/iterable_loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/collective.h"
#include "adaptdl/error.h"
#include "data/elastic_loop.h"
#include "support/replicas.h"

namespace adaptdl::internal {

StreamLoop::StreamLoop(AdaptiveDataLoaderHelper& helper, std::size_t epoch_samples, std::size_t prefetch, Source source)
    : helper_(helper),
      source_(std::move(source)),
      epoch_samples_(epoch_samples),
      prefetch_(prefetch),
      context_(helper.context()),
      skipped_(helper.skipdone()) {
  if (skipped_) return;
  if (helper.adaptive() && epoch_samples == 0) {
    throw UsageError(fmt::format(
        "data loader '{}' has an adaptive batch size, which requires epoch_samples; set epoch_samples to the "
        "number of samples per epoch",
        helper.name()));
  }
  lay_out();
}

StreamLoop::~StreamLoop() {
  enough_ = true;
  if (reading_.valid()) reading_.wait();
}

// Moves the stream to the loop's position, for the current replicas.
void StreamLoop::lay_out() {
  local_bsz_ = helper_.sync_local_bsz();
  rank_ = static_cast<std::size_t>(replica_rank());
  replicas_ = static_cast<std::size_t>(num_replicas());
  rewind();
  // end_index is the index at which this pass began.
  position_ = *helper_.current_index() - helper_.end_index();
  at_end_ = source_.skip(position_) < position_;
}

void StreamLoop::rewind() {
  source_.reset();
  position_ = 0;
  at_end_ = false;
}

// Reads one example for each replica and keeps this replica's example. Returns false if there are too few examples
// left.
bool StreamLoop::read_round() {
  if (source_.skip(rank_) < rank_ || source_.read(1) == 0) return false;
  const auto others = replicas_ - 1 - rank_;
  if (source_.skip(others) == others) return true;
  source_.take_back();
  return false;
}

void StreamLoop::read_ahead() {
  if (prefetch_ == 0) return;
  enough_ = false;
  // The examples of the next step are needed in any case.
  const auto wanted = (prefetch_ + batches_of_step()) * (local_bsz_ + 1);
  reading_ = std::async(std::launch::async, [this, wanted] { fill(wanted); });
}

// Stops the reading thread, and rethrows its exception if it has thrown one.
void StreamLoop::stop_reading_ahead() {
  enough_ = true;
  if (reading_.valid()) reading_.get();
  enough_ = false;
}

// Reads until `wanted` examples are queued or the stream ends.
void StreamLoop::fill(std::size_t wanted) {
  const bool limited = epoch_samples_ > 0 && !helper_.adaptive();
  while (!at_end_ && !enough_ && source_.queued() < wanted) {
    std::size_t rounds = wanted - source_.queued();
    if (limited) {
      const auto left = epoch_samples_ - std::min(position_, epoch_samples_);
      rounds = std::min(rounds, (left + replicas_ - 1) / replicas_);
    }
    const auto got = rounds == 0 ? 0 : replicas_ == 1 ? source_.read(rounds) : read_round() ? std::size_t{1} : 0;
    position_ += got * replicas_;
    at_end_ = got == 0;
  }
}

std::size_t StreamLoop::next() {
  if (skipped_) return 0;
  stop_reading_ahead();
  if (profile_) {
    profile_.reset();
    if (!helper_.redo_step()) {
      helper_.set_current_index(*helper_.current_index() + taken_ * replicas_);
      if (helper_.epoch_done(epoch_samples_)) return 0;
    }
  }
  taken_ = helper_.adaptive() ? next_of_many() : next_of_pass();
  return taken_;
}

std::size_t StreamLoop::batches_of_step() const { return static_cast<std::size_t>(helper_.accumulation_steps()) + 1; }

// Returns whether every replica has an example for every batch of a step. This is a collective call.
bool StreamLoop::can_begin() {
  fill(batches_of_step());
  return collective::allreduce(source_.queued() < batches_of_step() ? 1 : 0, collective::sum,
                               "examples remaining in " + helper_.name()) == 0;
}

// Implements next() for a single pass. The replicas agree on the end of the pass one step ahead, so each of them must
// have an example for every batch of the next step.
std::size_t StreamLoop::next_of_pass() {
  if (helper_.nested()) return next_of_nested();
  if (!helper_.loop().boundary_passed() && !can_begin()) return 0;
  const auto here = [this] {
    std::optional<std::size_t> batches_left;
    const auto total = local_bsz_ * replicas_, index = *helper_.current_index();
    if (epoch_samples_ > index) batches_left = (epoch_samples_ - index + total - 1) / total;
    return ElasticLoop::Boundary{.batches_left = batches_left, .data_end = [this] {
                                   const auto wanted = (local_bsz_ + 1) * batches_of_step();
                                   fill(wanted);
                                   return source_.queued() < wanted;
                                 }};
  };
  const auto lay_out_again = [&] {
    lay_out();
    return can_begin() ? std::optional(here()) : std::nullopt;
  };
  if (!helper_.loop().pass(here(), lay_out_again)) return 0;
  const auto batches = batches_of_step();
  const auto done = static_cast<std::size_t>(helper_.accumulated());
  if (helper_.loop().data_end() && done == 0) return 0;
  profile_.emplace(helper_);
  const auto share = (source_.queued() + batches - done - 1) / (batches - done);
  const auto count = std::min(local_bsz_, share);
  helper_.loop().set_commit(count == local_bsz_);
  return count;
}

// Implements next() for a single pass in a nested loop, in which each replica detects the end for itself.
std::size_t StreamLoop::next_of_nested() {
  fill(local_bsz_);
  return std::min(local_bsz_, source_.queued());
}

// Implements next() for an adaptive loop of several passes, in which each replica begins the next pass on its own.
std::size_t StreamLoop::next_of_many() {
  helper_.loop().pass({}, [this] {
    lay_out();
    return std::optional(ElasticLoop::Boundary{});
  });
  profile_.emplace(helper_);
  local_bsz_ = helper_.sync_local_bsz();
  fill(local_bsz_);
  if (source_.queued() == 0) {
    rewind();
    helper_.set_end_index(*helper_.current_index());
    fill(local_bsz_);
    if (source_.queued() == 0) {
      throw UsageError(fmt::format("the dataset of data loader '{}' has fewer samples than there are replicas ({})",
                                   helper_.name(), replicas_));
    }
  }
  const auto count = std::min(local_bsz_, source_.queued());
  helper_.loop().set_commit(count == local_bsz_);
  return count;
}

IterableLoaderOptions checked(IterableLoaderOptions options) {
  if (options.batch_size < 1)
    throw UsageError(
        fmt::format("batch_size must be at least 1 (samples across all replicas), got {}", options.batch_size));
  if (options.epoch_samples < 0) {
    throw UsageError(fmt::format(
        "epoch_samples must be at least 0 (samples across all replicas; 0 for the length of the stream), got {}",
        options.epoch_samples));
  }
  if (options.prefetch < 0)
    throw UsageError(fmt::format("prefetch must be at least 0 (batches), got {}", options.prefetch));
  return options;
}

}  // namespace adaptdl::internal
