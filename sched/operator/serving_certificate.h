// The certificate of the validator's HTTPS server: self-signed, and trusted by the API server because it is in the
// webhook's caBundle. So no key can sign certificates for others.
//
// When the certificate is renewed, the API server must trust the new one before a server uses it:
//
//   1. the new certificate is stored in a Secret, which all operators read
//   2. it is added to the bundle, which keeps earlier certificates until they expire
//   3. after kTrustDelay, in which API servers read the bundle, each operator serves it
//
// Threading: values and functions; CertificateRules is used by one thread at a time.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kube/timestamp.h"

namespace adaptdl::sched {

struct ServingCertificate {
  std::string certificate, key;  // PEM

  friend bool operator==(const ServingCertificate&, const ServingCertificate&) = default;
};

// Makes a certificate for these DNS names, valid from 5 minutes before `now`, because clocks differ, until
// now + lifetime. REQUIRES at least one name. Throws Error if OpenSSL fails.
ServingCertificate make_serving_certificate(const std::vector<std::string>& names, kube::Time now,
                                            std::chrono::seconds lifetime);

// Whether the certificate must be replaced: it expires within a third of `lifetime`, or it is invalid or does not fit
// its key.
bool must_renew(const ServingCertificate& certificate, kube::Time now, std::chrono::seconds lifetime);

class CertificateRules {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kTrustDelay{10};

  struct Step {
    std::optional<std::string> bundle;  // what the bundle must become
    bool serve = false;                 // whether to serve the stored certificate from now on
  };
  // `stored` is the certificate in the Secret, and `bundle` the webhook's bundle (PEM).
  Step next(const ServingCertificate& stored, const std::string& bundle, Clock::time_point now, kube::Time wall_time);

 private:
  ServingCertificate served_, candidate_;
  Clock::time_point trusted_since_;  // of the candidate
};

}  // namespace adaptdl::sched
