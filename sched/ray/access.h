// How to reach the job server of a Ray cluster, an HTTP server on the head node whose default port is 8265.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace adaptdl::ray {

struct Access {
  std::string url;                   // "http://HOST:PORT", without a slash at the end
  std::vector<std::string> headers;  // "Name: value"; they may contain a token and are never printed
};

// Returns how to reach the cluster at `address` or, if `address` is empty, at RAY_API_SERVER_ADDRESS or RAY_ADDRESS. As
// with Ray's own commands, the headers are those in RAY_JOB_HEADERS (a JSON object), and the token comes from
// RAY_AUTH_TOKEN, from the file RAY_AUTH_TOKEN_PATH, or from ~/.ray/auth_token. Throws UsageError if no address is
// known, or if the address or a variable is invalid, and Error if the token file cannot be read.
Access find_access(const std::string& address);

}  // namespace adaptdl::ray
