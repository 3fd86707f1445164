// What a certificate in PEM says of itself.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace adaptdl::kube {

struct Certificate {
  std::string name;  // its subject's common name
  std::chrono::system_clock::time_point expires;
};

// Of the first certificate in the text; null if there is none.
std::optional<Certificate> read_certificate(const std::string& pem);

}  // namespace adaptdl::kube
