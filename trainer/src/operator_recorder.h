// A record of the operators that LibTorch runs in this process, on all threads.
//
// It is one of LibTorch's global observers, so it costs nothing while nothing is recorded. An operator is recorded when
// it ends.
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
  pid_t thread;     // in which it began
  bool user_scope;  // a range that the program, or a communication backend, has marked
  bool async;       // it may overlap others of its thread in part
};

struct OperatorRecord {
  std::vector<RecordedOperator> operators;  // in the order in which they ended
  std::size_t dropped = 0;
};

// Records while it lives.
class OperatorRecorder {
 public:
  static constexpr std::size_t kMaxOperators = 200'000;  // later ones are dropped
  static constexpr std::size_t kMaxName = 256;           // bytes; longer names are cut off

  // Throws UsageError if there is another one.
  OperatorRecorder();
  ~OperatorRecorder();
  OperatorRecorder(const OperatorRecorder&) = delete;
  OperatorRecorder& operator=(const OperatorRecorder&) = delete;

  // Ends it, and returns what it has recorded. Waits up to a second for asynchronous operators that have begun. To be
  // called once.
  OperatorRecord finish();

 private:
  const std::uint64_t number_;
};

}  // namespace adaptdl::internal
