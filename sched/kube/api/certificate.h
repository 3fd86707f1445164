// Reads the name and the expiry date of a PEM certificate.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace adaptdl::kube {

struct Certificate {
  std::string name;  // the subject's common name
  std::chrono::system_clock::time_point expires;
};

// Reads the first certificate in `pem`; returns null if there is none.
std::optional<Certificate> read_certificate(const std::string& pem);

}  // namespace adaptdl::kube
