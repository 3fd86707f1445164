// The credentials that authorize the next request to an API server.
//
// Tokens and certificates may change while a command runs. Files are read again every minute, and a plugin is run again
// when its credentials expire. Both also happen after the server has refused the credentials. No message contains a
// secret.
//
// Threading: every member may be called from any thread at any time; concurrent callers share one run of a plugin.
// Lifetime: the object keeps its own copy of the access.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kube/api/access.h"
#include "kube/api/credential_plugin.h"

namespace adaptdl::kube {

struct Authorization {
  std::vector<std::string> headers;  // "Name: value": Authorization and Impersonate-*
  std::string certificate, key;      // PEM; both or neither
  std::uint64_t version = 0;         // identifies these credentials in a call to `refused`
};

class Credentials {
 public:
  explicit Credentials(Access access);

  // Throws Error if a file cannot be read, a certificate has expired, or a plugin is missing, fails, does not print
  // valid credentials or takes too long.
  Authorization current();

  // Reports that the server answered the credentials of this version with a 401. Returns whether it is worth calling
  // `current` again, which then re-reads the files or runs the plugin again.
  bool refused(std::uint64_t version);

  // Describes the user, for messages about a 401 or 403: "user 'ada' in context 'lab', with a token that expired at
  // ...".
  std::string in_words();

 private:
  using Clock = std::chrono::steady_clock;

  void refresh();

  const Access access_;
  std::mutex mutex_;
  Authorization authorization_;
  bool known_ = false;                // authorization_ may be used
  Clock::time_point read_at_;         // when authorization_ was built
  std::optional<PluginAnswer> answer_;  // the plugin's answer, until it expires or is refused
};

}  // namespace adaptdl::kube
