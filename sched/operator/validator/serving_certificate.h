// Creates and renews the certificate of the validator's HTTPS server. It is self-signed, and the API server trusts it
// because it is in the webhook's caBundle. Therefore, no key exists that can sign certificates for other servers.
//
// When the certificate is renewed, the API server must trust the new one before a server uses it:
//
//   1. the new certificate is stored in a Secret, which all operators read
//   2. it is added to the bundle, which keeps earlier certificates until they expire
//   3. after kTrustDelay, during which API servers read the bundle, each operator uses it
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kube/api/timestamp.h"

namespace adaptdl::sched {

struct ServingCertificate {
  std::string certificate, key;  // PEM

  friend bool operator==(const ServingCertificate&, const ServingCertificate&) = default;
};

// Creates a certificate for these DNS names, valid from 5 minutes before `now` (because clocks differ) until `now` +
// `lifetime`. REQUIRES at least one name. Throws Error if OpenSSL fails.
ServingCertificate create_serving_certificate(const std::vector<std::string>& names, kube::Time now,
                                              std::chrono::seconds lifetime);

// Returns whether the certificate must be replaced: it expires within a third of `lifetime`, is valid for longer than
// `lifetime`, is invalid, or does not match its key.
bool must_renew(const ServingCertificate& certificate, kube::Time now, std::chrono::seconds lifetime);

// Returns the first certificate of a PEM text, with a newline at its end, or an empty string if there is none.
std::string first_certificate(const std::string& pem);

class CertificateRules {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kTrustDelay{10};

  struct Step {
    std::optional<std::string> bundle;  // the new bundle; empty if it does not change
    bool serve = false;                 // whether to serve the stored certificate from now on
  };
  // Returns whether to replace the stored certificate now. An operator that serves no certificate yet keeps a trusted
  // one until it has expired, so that it can serve immediately.
  bool renew(const ServingCertificate& stored, const std::string& bundle, kube::Time wall_time,
             std::chrono::seconds lifetime) const;
  // Returns the next step. `stored` is the certificate in the Secret, as first_certificate() returns it, and `bundle`
  // is the webhook's bundle (PEM). The bundle must be written before the certificate is served.
  Step next(const ServingCertificate& stored, const std::string& bundle, Clock::time_point now, kube::Time wall_time);

  void set_served(const ServingCertificate& certificate) { served_ = certificate; }

 private:
  ServingCertificate served_, candidate_;
  Clock::time_point trusted_since_;  // when the candidate became trusted
};

}  // namespace adaptdl::sched
