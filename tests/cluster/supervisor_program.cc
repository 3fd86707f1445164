// A job's supervisor in a cluster without a scheduler: supervisor_program ADDRESS PORT NAMESPACE/NAME. Each line of
// standard input contains a group and the addresses of its replicas by rank. At the end of the input, the program
// prints the job's hints as JSON and exits.
#include <iostream>
#include <iterator>
#include <sstream>

#include "supervisor/supervisor.h"

namespace {

struct NoListener final : adaptdl::sched::SupervisorListener {
  void hints_changed(const std::string&) override {}
  void foreign_discovers(const std::string&) override {}
  void replica_waits(const std::string&, const std::string&, int, bool) override {}
  void member_follows(const std::string&, int) override {}
  void progress_reported(const std::string&, const std::string&, const nlohmann::json&) override {}
};

void serve(const std::string& address, const std::string& port, const std::string& job) {
  NoListener listener;
  adaptdl::sched::SupervisorOptions options;
  options.address = address;
  options.port = static_cast<std::uint16_t>(std::stoi(port));
  adaptdl::sched::Supervisor supervisor(options, listener);
  supervisor.add_job(job);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    int group = 0;
    words >> group;
    supervisor.set_addresses(job, group, {std::istream_iterator<std::string>(words), {}});
  }
  std::cout << supervisor.hints(job).dump() << std::endl;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  try {
    serve(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
