// The WWW-Authenticate header, in which a server states the authentication that it requires.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace adaptdl::image {

struct Challenge {
  std::string scheme;                                    // in lower case: bearer, basic, …
  std::map<std::string, std::string> parameters;         // names in lower case
  std::string parameter(const std::string& name) const;  // empty if there is none
};

// Parses the challenges in one header, up to the first malformed one.
std::vector<Challenge> parse_challenges(std::string_view header);

}  // namespace adaptdl::image
