// Records the operators that LibTorch runs in this process, on all threads.
//
// The recorder is a global LibTorch observer that is registered only while it records, so it costs nothing at other
// times. An operator is recorded when it ends.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace adaptdl::internal {

struct RecordedOperator {
  std::string name;
  std::chrono::steady_clock::time_point begin, end;
  pid_t thread;     // the thread in which it began
  bool user_scope;  // whether the program or a communication backend marked this range
  bool async;       // whether it may partly overlap other operators of its thread
};

struct OperatorRecord {
  std::vector<RecordedOperator> operators;  // in the order in which they ended
  std::size_t dropped = 0;
};

// Records operators while the object exists.
class OperatorRecorder {
 public:
  static constexpr std::size_t kMaxOperators = 200'000;  // later operators are dropped
  static constexpr std::size_t kMaxName = 256;           // bytes; longer names are cut off

  // Throws UsageError if another recorder exists.
  OperatorRecorder();
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  // Stops recording and returns the record. Waits up to a second for asynchronous operators that have begun. May be
  // called only once.
  OperatorRecord finish();

 private:
  const std::uint64_t number_;
};

}  // namespace adaptdl::internal
