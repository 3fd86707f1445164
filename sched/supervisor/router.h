// Determines the answer to each request: implements the protocol, but not the connections.
//
// Threading: only the server's thread uses it.
#pragma once

#include <chrono>
#include <string_view>
#include <variant>

#include "supervisor/job_board.h"
#include "supervisor/socket_owner.h"
#include "supervisor/target.h"

namespace adaptdl::sched {

struct HttpRequest {
  std::string_view method, target;
  std::string_view authorization, host;  // headers; empty if missing
  std::string_view body;
  ConnectionEnds ends;
};

// Returned if the answer is not available yet.
struct Wait {
  Poll poll;
  std::chrono::milliseconds timeout{0};
};

class Router {
 public:
  // All arguments must outlive the router.
  Router(JobBoard& board, SupervisorListener& listener, const SupervisorOptions& options)
      : board_(board), listener_(listener), options_(options) {}

  // Passes reports to the listener and returns the answer. Errors in the request are answered, not thrown.
  std::variant<Answer, Wait> handle(const HttpRequest& request) const;

 private:
  bool needs_token(const HttpRequest& request) const;
  Answer put_hints(const std::string& job_id, std::string_view body) const;
  Answer post_progress(const std::string& job_id, const Target& target, std::string_view body) const;
  std::variant<Answer, Wait> discover(const std::string& job_id, const Target& target) const;
  std::variant<Answer, Wait> next_generation(const std::string& job_id, const Target& target) const;
  std::variant<Answer, Wait> answer_or_wait(Poll poll, const Target& target) const;

  JobBoard& board_;
  SupervisorListener& listener_;
  const SupervisorOptions& options_;
};

}  // namespace adaptdl::sched
