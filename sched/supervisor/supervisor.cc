#include "supervisor/supervisor.h"

#include <fmt/format.h>

#include <utility>

#include "supervisor/server.h"

namespace adaptdl::sched {

Supervisor::Supervisor(const SupervisorOptions& options, SupervisorListener& listener)
    : server_(std::make_unique<Server>(options, listener)) {}

Supervisor::~Supervisor() = default;

std::uint16_t Supervisor::port() const { return server_->port(); }

std::string Supervisor::url() const {
  const std::string& address = server_->options().address;
  const bool v6 = address.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", address, v6 ? "]" : "", port());
}

void Supervisor::add_job(const std::string& job_id, std::optional<std::string> token) {
  server_->board().add(job_id, std::move(token));
}

void Supervisor::set_all_jobs_known() { server_->board().set_all_jobs_known(true); }

void Supervisor::set_hints(const std::string& job_id, nlohmann::json hints) {
  server_->board().set_hints(job_id, std::move(hints));
}

void Supervisor::remove_job(const std::string& job_id) {
  server_->board().remove(job_id);
  server_->wake(job_id);
}

void Supervisor::set_addresses(const std::string& job_id, int group, std::vector<std::string> addresses) {
  server_->board().set_addresses(job_id, group, std::move(addresses));
  server_->wake(job_id);
}

void Supervisor::set_generation(const std::string& job_id, Generation generation) {
  server_->board().set_generation(job_id, std::move(generation));
  server_->wake(job_id);
}

void Supervisor::clear_generation(const std::string& job_id) { server_->board().set_generation(job_id, {}); }

nlohmann::json Supervisor::hints(const std::string& job_id) const { return server_->board().hints(job_id); }

}  // namespace adaptdl::sched
