#include "kube/api/certificate.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>

namespace adaptdl::kube {
namespace {

struct FreeBio {
  void operator()(BIO* bio) const { ::BIO_free(bio); }
};
struct FreeCertificate {
  void operator()(X509* certificate) const { ::X509_free(certificate); }
};

}  // namespace

std::optional<Certificate> read_certificate(const std::string& pem) {
  const std::unique_ptr<BIO, FreeBio> bio(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  const std::unique_ptr<X509, FreeCertificate> certificate(::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  tm expires{};
  if (!certificate || ::ASN1_TIME_to_tm(::X509_get0_notAfter(certificate.get()), &expires) != 1) {
    ::ERR_clear_error();  // so that a later call to OpenSSL does not report this error
    return {};
  }
  char name[256] = "";
  ::X509_NAME_get_text_by_NID(::X509_get_subject_name(certificate.get()), NID_commonName, name, sizeof name);
  return Certificate{name, std::chrono::system_clock::from_time_t(::timegm(&expires))};
}

}  // namespace adaptdl::kube
