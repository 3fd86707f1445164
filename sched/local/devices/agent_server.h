// AgentServer adds the agent's connections and timers to DeviceShares.
//
// Threading: everything runs in the thread that calls run().
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/fd.h"
#include "local/devices/agent.h"
#include "local/devices/agent_message.h"
#include "policy/policies.h"

namespace adaptdl::sched {

class AgentServer {
 public:
  // `listener` is a listening socket, and `lock` is the locked file that lists the runs and their processes.
  AgentServer(const Fd& listener, const Fd& lock, const AgentTimes& times);

  // Serves runs until the agent has been idle for AgentTimes::idle.
  void run();

 private:
  class Session;
  struct Run {
    UserId user = 0;
    std::weak_ptr<Session> session;                       // expired if the run has lost its connection
    std::unique_ptr<boost::asio::steady_timer> vanished;  // when this expires, the run is forgotten
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
  std::map<std::string, int> expected_;  // by run id: process ids of the previous agent's runs that have yet to connect
  bool settled_ = false;
  bool deciding_ = false;
  std::set<std::shared_ptr<Session>> sessions_;
  std::map<std::string, Run> runs_;  // by run id
  UserId next_user_ = 1;
  DeviceShares shares_;
  double fairness_ = -1;
};

}  // namespace adaptdl::sched
