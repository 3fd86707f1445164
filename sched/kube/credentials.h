// What authorises a request to an API server now.
//
// Tokens and certificates may change while a command runs: files are read again every minute, plugins are asked again
// when what they said expires, and both after the server refused what they gave. What is never given out is a secret in
// words.
//
// Threading: every member may be called from any thread at once; a plugin runs once for all that wait for it.
// Lifetime: keeps a copy of the access.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kube/access.h"
#include "kube/credential_plugin.h"

namespace adaptdl::kube {

struct Authorization {
  std::vector<std::string> headers;  // "Name: value": Authorization and Impersonate-*
  std::string certificate, key;      // PEM; both or none
  std::uint64_t version = 0;         // of what the server may refuse, see `refused`
};

class Credentials {
 public:
  explicit Credentials(Access access);

  // Throws Error: a file that cannot be read, a certificate that has expired, a plugin that is missing, fails, says
  // nothing of use or takes too long.
  Authorization current();

  // The server answered 401 to what `current` gave. Whether asking `current` again is worth while: it will read the
  // token's file, or run the plugin, once more.
  bool refused(std::uint64_t version);

  // Who this is, for a message about a 401 or 403: "user 'ada' of context 'lab', by a token that expired at ...".
  std::string in_words();

 private:
  using Clock = std::chrono::steady_clock;

  void refresh();

  const Access access_;
  std::mutex mutex_;
  Authorization authorization_;
  bool known_ = false;                // authorization_ may be used
  Clock::time_point read_at_;         // when it was made
  std::optional<PluginAnswer> said_;  // by the plugin, until it expires or is refused
};

}  // namespace adaptdl::kube
