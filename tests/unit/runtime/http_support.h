// A real HTTP server in its own process, whose responses a test determines.
#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "process_support.h"

namespace adaptdl::testing {

// The n-th argument is the n-th response: a JSON list of status, body, seconds to wait (if negative, until SIGUSR1),
// and copies of the body. The server prints its port, then each request as [method, path, authorization, body].
inline const char* const kServer = R"(
import http.server, json, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
answers = [json.loads(argument) for argument in sys.argv[1:]]
def say(what): print(json.dumps(what), flush=True)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sent = self.rfile.read(int(self.headers.get('Content-Length', 0))).decode()
        say([self.command, self.path, self.headers.get('Authorization'), sent])
        status, body, delay, times = answers.pop(0)
        body = body * times
        if delay < 0: signal.sigwait([signal.SIGUSR1])
        else: time.sleep(delay)
        if status:
            self.send_response(status)
            self.send_header('Content-Length', str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())
    do_PUT = do_POST = do_PATCH = do_DELETE = do_GET
    def log_message(self, *arguments): pass
server = http.server.HTTPServer(('127.0.0.1', 0), Handler)
say(server.server_port)
server.serve_forever()
)";

constexpr double kHeld = -1;  // until release()

struct Answer {
  int status;  // 0: closes the connection without a response
  std::string body;
  double delay = 0;
  int times = 1;
};

class Server {
 public:
  explicit Server(const std::vector<Answer>& answers)
      : process_(STDOUT_FILENO, [&] {
          std::vector<std::string> arguments{"python3", "-c", kServer};
          for (const Answer& each : answers)
            arguments.push_back(nlohmann::json{each.status, each.body, each.delay, each.times}.dump());
          std::vector<char*> pointers;
          for (std::string& argument : arguments) pointers.push_back(argument.data());
          pointers.push_back(nullptr);
          ::execvp("python3", pointers.data());
          return 127;
        }) {
    port_ = process_.line();
    REQUIRE_FALSE(port_.empty());
  }
  std::string url() const { return "http://127.0.0.1:" + port_; }
  nlohmann::json request() { return nlohmann::json::parse(process_.line()); }
  // Lets the server send the response that it is holding back.
  void release() { process_.signal(SIGUSR1); }

 private:
  Process process_;
  std::string port_;
};

}  // namespace adaptdl::testing
