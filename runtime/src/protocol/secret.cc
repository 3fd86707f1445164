#include "protocol/secret.h"

#include <fmt/format.h>

#include <random>

#include "adaptdl/env.h"

namespace adaptdl {

std::string make_secret() {
  std::random_device random;
  std::string secret;
  for (int i = 0; i < 4; ++i) secret += fmt::format("{:08x}", random());
  return secret;
}

std::string secret_for(const std::string& once) { return env::supervisor_token().value_or("") + ':' + once; }

bool is_same_secret(std::string_view given, std::string_view secret) {
  unsigned char difference = given.size() != secret.size();
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ (i < secret.size() ? secret[i] : '\0'));
  return difference == 0;
}

}  // namespace adaptdl
