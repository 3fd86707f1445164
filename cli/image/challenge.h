// What a server asks for when it refuses a request: the header WWW-Authenticate.
//
// Threading: plain functions.
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

// The challenges of one header. What cannot be read ends the list.
std::vector<Challenge> parse_challenges(std::string_view header);

}  // namespace adaptdl::image
