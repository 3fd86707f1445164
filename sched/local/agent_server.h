// The agent's connections and clock around DeviceShares.
//
// Threading: one thread, in run().
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "local/agent.h"
#include "local/agent_message.h"
#include "local/fd.h"
#include "policy/policies.h"

namespace adaptdl::sched {

class AgentServer {
 public:
  // `listener` is a socket that listens, `lock` the locked file that names the runs there are and their processes.
  AgentServer(const Fd& listener, const Fd& lock, const AgentTimes& times);

  // Returns when it has been idle for long.
  void run();

 private:
  class Session;
  struct Run {
    UserId user = 0;
    std::weak_ptr<Session> session;                       // by which it speaks; none if it vanished
    std::unique_ptr<boost::asio::steady_timer> vanished;  // until it is forgotten
    int pid = 0;
  };

  void accept();
  void take(const std::shared_ptr<Session>& session, std::string_view line);
  void vanish(const std::string& run_id, const Session* session);
  void forget(const std::string& run_id);
  void closed(const std::shared_ptr<Session>& session);

  void settle();
  void tick();
  void decide_soon();
  void decide();
  void tell();
  void await_idle();
  void write_lock();

  boost::asio::io_context context_{1};
  boost::asio::local::stream_protocol::acceptor acceptor_{context_};
  boost::asio::steady_timer tick_{context_}, settle_{context_}, idle_{context_}, retry_{context_};
  const int lock_;
  const AgentTimes times_;
  std::map<std::string, int> expected_;  // the last agent's runs that have not come yet, and their processes
  bool settled_ = false;
  bool deciding_ = false;
  std::set<std::shared_ptr<Session>> sessions_;
  std::map<std::string, Run> runs_;  // by the id that they say
  UserId next_user_ = 1;
  DeviceShares shares_;
  std::string policy_ = "adaptive";
  double fairness_ = -1;
};

}  // namespace adaptdl::sched
