#include "operator/validator/serving_certificate.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/api/certificate.h"

namespace adaptdl::sched {
namespace {

using std::chrono::seconds;

constexpr seconds kClockDifference{300};
constexpr std::size_t kMaxBundle = 8;  // certificates
constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----", kEnd = "-----END CERTIFICATE-----";

template <auto Free>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<&::BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<&::EVP_PKEY_free>>;
using X509Certificate = std::unique_ptr<X509, Freer<&::X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<&::X509_EXTENSION_free>>;

void check(bool succeeded, const char* what) {
  if (succeeded) return;
  char text[256] = "";
  ::ERR_error_string_n(::ERR_get_error(), text, sizeof text);
  ::ERR_clear_error();
  throw Error(fmt::format("cannot create a certificate: {}: {}", what, text));
}

std::string content(const Bio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<std::size_t>(size)};
}

void add_extension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  ::X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const Extension extension(::X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  check(extension && ::X509_add_ext(certificate, extension.get(), -1) == 1, value.c_str());
}

void set_serial(X509* certificate) {
  unsigned char bytes[16];
  check(::RAND_bytes(bytes, sizeof bytes) == 1, "serial number");
  bytes[0] = static_cast<unsigned char>((bytes[0] & 0x7f) | 0x40);  // positive, and without leading zeros
  const std::unique_ptr<BIGNUM, Freer<&::BN_free>> number(::BN_bin2bn(bytes, sizeof bytes, nullptr));
  check(number && ::BN_to_ASN1_INTEGER(number.get(), ::X509_get_serialNumber(certificate)) != nullptr, "serial number");
}

void set_name(X509* certificate) {
  X509_NAME* name = ::X509_get_subject_name(certificate);
  const auto* text = reinterpret_cast<const unsigned char*>("adaptdl-validator");
  check(::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, text, -1, -1, 0) == 1 &&
            ::X509_set_issuer_name(certificate, name) == 1,
        "name");
}

// Returns the certificates of a PEM text, each ending in a newline.
std::vector<std::string> split_bundle(std::string_view pem) {
  std::vector<std::string> found;
  for (;;) {
    const std::size_t begin = pem.find(kBegin);
    const std::size_t end = begin == std::string_view::npos ? begin : pem.find(kEnd, begin);
    if (end == std::string_view::npos) return found;
    found.push_back(std::string(pem.substr(begin, end + kEnd.size() - begin)) + '\n');
    pem.remove_prefix(end + kEnd.size());
  }
}

bool fits_key(const ServingCertificate& pair) {
  const Bio certificate_bio(::BIO_new_mem_buf(pair.certificate.data(), static_cast<int>(pair.certificate.size())));
  const Bio key_bio(::BIO_new_mem_buf(pair.key.data(), static_cast<int>(pair.key.size())));
  const X509Certificate certificate(::PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr));
  // OpenSSL must not prompt on the terminal for the password of an encrypted key.
  const Key key(::PEM_read_bio_PrivateKey(
      key_bio.get(), nullptr, [](char*, int, int, void*) { return -1; }, nullptr));
  const bool fits = certificate && key && ::X509_check_private_key(certificate.get(), key.get()) == 1;
  ::ERR_clear_error();
  return fits;
}

}  // namespace

ServingCertificate create_serving_certificate(const std::vector<std::string>& names, kube::Time now, seconds lifetime) {
  const Key key(EVP_EC_gen("P-256"));
  check(key != nullptr, "key");
  const X509Certificate certificate(::X509_new());
  check(certificate && ::X509_set_version(certificate.get(), 2) == 1, "version");  // 2 means version 3
  set_serial(certificate.get());
  set_name(certificate.get());
  const auto set_time = [now](ASN1_TIME* field, seconds offset) {
    return ::ASN1_TIME_set(field, std::chrono::system_clock::to_time_t(now + offset)) != nullptr;
  };
  check(set_time(X509_getm_notBefore(certificate.get()), -kClockDifference) &&
            set_time(X509_getm_notAfter(certificate.get()), lifetime),
        "validity");
  check(::X509_set_pubkey(certificate.get(), key.get()) == 1, "public key");
  std::vector<std::string> dns_names;
  for (const std::string& name : names) dns_names.push_back("DNS:" + name);
  add_extension(certificate.get(), NID_subject_alt_name, fmt::format("{}", fmt::join(dns_names, ",")));
  add_extension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE");
  add_extension(certificate.get(), NID_key_usage, "critical,digitalSignature");
  add_extension(certificate.get(), NID_ext_key_usage, "serverAuth");
  check(::X509_sign(certificate.get(), key.get(), ::EVP_sha256()) > 0, "signature");
  const Bio certificate_bio(::BIO_new(::BIO_s_mem())), key_bio(::BIO_new(::BIO_s_mem()));
  check(::PEM_write_bio_X509(certificate_bio.get(), certificate.get()) == 1 &&
            ::PEM_write_bio_PrivateKey(key_bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) == 1,
        "PEM");
  return {content(certificate_bio), content(key_bio)};
}

bool must_renew(const ServingCertificate& certificate, kube::Time now, seconds lifetime) {
  const auto parsed = kube::read_certificate(certificate.certificate);
  if (!parsed || !fits_key(certificate)) return true;
  const auto left = parsed->expires - now;
  return left <= lifetime / 3 || left > lifetime + kClockDifference;
}

std::string first_certificate(const std::string& pem) {
  const std::vector<std::string> all = split_bundle(pem);
  return all.empty() ? std::string() : all.front();
}

bool CertificateRules::renew(const ServingCertificate& stored, const std::string& bundle, kube::Time wall_time,
                             seconds lifetime) const {
  if (!must_renew(stored, wall_time, lifetime)) return false;
  if (served_ != ServingCertificate()) return true;
  const auto parsed = kube::read_certificate(stored.certificate);
  const std::vector<std::string> trusted = split_bundle(bundle);
  const bool usable = parsed && parsed->expires > wall_time && fits_key(stored) &&
                      std::ranges::find(trusted, stored.certificate) != trusted.end();
  return !usable;
}

CertificateRules::Step CertificateRules::next(const ServingCertificate& stored, const std::string& bundle,
                                              Clock::time_point now, kube::Time wall_time) {
  const std::vector<std::string> trusted = split_bundle(bundle);
  std::vector<std::string> wanted = split_bundle(stored.certificate);
  for (const std::string& pem : trusted) {
    const auto parsed = kube::read_certificate(pem);
    const bool known = std::ranges::find(wanted, pem) != wanted.end();
    if (!known && parsed && parsed->expires > wall_time && wanted.size() < kMaxBundle) wanted.push_back(pem);
  }
  Step step;
  const bool is_trusted = std::ranges::find(trusted, stored.certificate) != trusted.end();
  if (!is_trusted || trusted.size() != wanted.size()) step.bundle = fmt::format("{}", fmt::join(wanted, ""));
  if (!is_trusted) {
    candidate_ = {};
  } else if (candidate_ != stored) {
    candidate_ = stored;
    trusted_since_ = now;
  }
  // Without a certificate, requests fail in any case.
  const bool may_serve = served_ == ServingCertificate() || (is_trusted && now >= trusted_since_ + kTrustDelay);
  step.serve = may_serve && served_ != stored;
  return step;
}

}  // namespace adaptdl::sched
