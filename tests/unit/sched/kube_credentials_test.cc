// Tests the credentials of requests: from files, from plugins and from a kubeconfig itself.
#include "kube/api/credentials.h"

#include <doctest/doctest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "adaptdl/error.h"
#include "error_of.h"
#include "golden.h"
#include "kube/api/certificate.h"
#include "kube/api/timestamp.h"
#include "temporary_directory.h"

namespace kube_credentials_test {

using namespace adaptdl;
using namespace adaptdl::kube;
using namespace std::chrono_literals;
using ::testing::error_of;
namespace fs = std::filesystem;
using Headers = std::vector<std::string>;

namespace {

class Directory {
 public:
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path() / name) << text;
    return path() / name;
  }
  std::string read(const std::string& name) const {
    std::ifstream in(path() / name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const fs::path& path() const { return directory_.path(); }

 private:
  ::testing::TemporaryDirectory directory_;
};

Access access() {
  Access access;
  access.context = "lab";
  access.user = "ada";
  access.server = "https://host";
  return access;
}

// Returns an Access whose plugin is the shell script.
Access with_plugin(const Directory& directory, const std::string& script) {
  fs::permissions(directory.write("plugin", "#!/bin/sh\ncd '" + directory.path().string() + "'\n" + script),
                  fs::perms::owner_all);
  Access result = access();
  result.exec = ExecPlugin{};
  result.exec->api_version = "client.authentication.k8s.io/v1";
  result.exec->command = "./plugin";
  result.exec->directory = directory.path();
  return result;
}

// Returns a shell command that prints the status and expands the variables in it.
std::string answers(const std::string& status) {
  return "cat <<END\n{\"kind\": \"ExecCredential\", \"apiVersion\": \"client.authentication.k8s.io/v1\", \"status\": " +
         status + "}\nEND\n";
}

std::string refusal(const Access& access) {
  return error_of([&] { Credentials(access).current(); });
}

struct Pem {
  std::string certificate, key;
};

std::string text_of(const std::function<void(BIO*)>& write) {
  BIO* bio = ::BIO_new(::BIO_s_mem());
  write(bio);
  char* data = nullptr;
  const long size = ::BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<std::size_t>(size));
  ::BIO_free(bio);
  return text;
}

// Returns a certificate for "ada" that expires in `seconds` seconds.
Pem make_certificate(long seconds) {
  EVP_PKEY* key = ::EVP_EC_gen("P-256");
  X509* certificate = ::X509_new();
  ::X509_gmtime_adj(X509_getm_notBefore(certificate), -100000);
  ::X509_gmtime_adj(X509_getm_notAfter(certificate), seconds);
  ::X509_set_pubkey(certificate, key);
  ::X509_NAME_add_entry_by_txt(::X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("ada"), -1, -1, 0);
  ::X509_sign(certificate, key, ::EVP_sha256());
  const Pem pem{text_of([&](BIO* bio) { ::PEM_write_bio_X509(bio, certificate); }), text_of([&](BIO* bio) {
                  ::PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
                })};
  ::X509_free(certificate);
  ::EVP_PKEY_free(key);
  return pem;
}

}  // namespace

TEST_CASE("tokens, passwords and impersonation are sent as request headers") {
  Access token = access();
  token.token.value = "abc";
  token.impersonate_user = "bob";
  token.impersonate_uid = "7";
  token.impersonate_groups = {"a", "b"};
  token.impersonate_extra = {{"acme.com/scopes", {"x"}}};
  CHECK(Credentials(token).current().headers ==
        Headers{"Authorization: Bearer abc", "Impersonate-User: bob", "Impersonate-Uid: 7", "Impersonate-Group: a",
                "Impersonate-Group: b", "Impersonate-Extra-acme.com%2Fscopes: x"});
  Access basic = access();
  basic.username = "Aladdin";
  basic.password = "open sesame";
  CHECK(Credentials(basic).current().headers == Headers{"Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="});
  CHECK(Credentials(access()).current().headers.empty());
}

TEST_CASE("no secret is sent over an unencrypted connection") {
  Access open = access();
  open.server = "http://host";
  open.token.value = "abc";
  open.impersonate_user = "bob";
  CHECK(Credentials(open).current().headers == Headers{"Impersonate-User: bob"});
}

TEST_CASE("tokens and impersonated groups that contain line breaks are rejected") {
  Access token = access();
  token.token.value = "geheim\r\nX-Evil: 1";
  CHECK_GOLDEN(refusal(token));
  Access other = access();
  other.impersonate_groups = {"a\nb"};
  CHECK_GOLDEN(refusal(other));
}

TEST_CASE("a token file is read again after its token is rejected") {
  const Directory directory;
  Access rotated = access();
  rotated.token.file = directory.write("token", "first\n");
  Credentials credentials(rotated);
  const Authorization first = credentials.current();
  CHECK(first.headers == Headers{"Authorization: Bearer first"});
  directory.write("token", "second\n");
  CHECK(credentials.current().headers == first.headers);
  CHECK(credentials.refused(first.version));
  const Authorization second = credentials.current();
  CHECK(second.headers == Headers{"Authorization: Bearer second"});
  directory.write("token", "third\n");
  CHECK(credentials.refused(first.version));  // a late refusal of a token that has been replaced
  CHECK(credentials.current().version == second.version);
}

TEST_CASE("a token that is given inline is not sent again after it is rejected") {
  Access fixed = access();
  fixed.token.value = "abc";
  Credentials credentials(fixed);
  CHECK_FALSE(credentials.refused(credentials.current().version));
}

TEST_CASE("a missing token file is an error, unless a token is given inline") {
  Access missing = access();
  missing.token.file = "/nowhere/token";
  CHECK_GOLDEN(refusal(missing));
  missing.token.value = "abc";
  CHECK(Credentials(missing).current().headers == Headers{"Authorization: Bearer abc"});
}

TEST_CASE("a client certificate is sent unchanged, and an expired, invalid or missing certificate is reported") {
  const Directory directory;
  const Pem good = make_certificate(100), bad = make_certificate(-50);
  REQUIRE(read_certificate(good.certificate));
  CHECK(read_certificate(good.certificate)->name == "ada");
  Access held = access();
  held.client_certificate.file = directory.write("cert", good.certificate);
  held.client_key.value = good.key;
  const Authorization authorization = Credentials(held).current();
  CHECK(authorization.certificate == good.certificate);
  CHECK(authorization.key == good.key);
  directory.write("cert", bad.certificate);
  CHECK(refusal(held).starts_with("the client certificate of user 'ada' in context 'lab' expired at 2"));
  directory.write("cert", "nonsense");
  CHECK(refusal(held) == "the client certificate of user 'ada' is not valid PEM");
  fs::remove(directory.path() / "cert");
  CHECK(refusal(held) == "cannot read '" + directory.path().string() +
                             "/cert' (the client certificate of user 'ada'): No such file or directory");
}

TEST_CASE("a plugin runs once for all threads, with its arguments, its environment and the cluster's settings") {
  const Directory directory;
  Access plugin = with_plugin(
      directory, "echo \"$1 $MINE\" >>asked; echo \"$KUBERNETES_EXEC_INFO\" >info\n" + answers(R"({"token": "abc"})"));
  plugin.exec->arguments = {"login"};
  plugin.exec->environment = {{"MINE", "value"}};
  plugin.exec->provide_cluster_info = true;
  plugin.exec->config = R"({"audience": "a"})";
  plugin.certificate_authority.value = "pem";
  Credentials credentials(plugin);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { CHECK(credentials.current().headers == Headers{"Authorization: Bearer abc"}); });
  for (std::thread& thread : threads) thread.join();
  CHECK(directory.read("asked") == "login value\n");
  const auto info = nlohmann::json::parse(directory.read("info"));
  CHECK(info["apiVersion"] == "client.authentication.k8s.io/v1");
  CHECK(info["kind"] == "ExecCredential");
  CHECK(info["spec"]["cluster"]["server"] == "https://host");
  CHECK(info["spec"]["cluster"]["certificate-authority-data"] == "cGVt");
  CHECK(info["spec"]["cluster"]["config"]["audience"] == "a");
}

TEST_CASE("a plugin runs again when its credentials expire or are rejected") {
  const Directory directory;
  const std::string expired = to_string(std::chrono::system_clock::now() - 1s);
  const std::string later = to_string(std::chrono::system_clock::now() + 1h);
  Credentials credentials(with_plugin(directory, "echo >>asked; n=$(wc -l <asked)\n[ $n = 1 ] && at=" + expired +
                                                     " || at=" + later + "\n" +
                                                     answers(R"({"token": "t$n", "expirationTimestamp": "$at"})")));
  CHECK(credentials.current().headers == Headers{"Authorization: Bearer t1"});
  const Authorization second = credentials.current();
  CHECK(second.headers == Headers{"Authorization: Bearer t2"});
  CHECK(credentials.current().version == second.version);
  CHECK(credentials.refused(second.version));
  CHECK(credentials.current().headers == Headers{"Authorization: Bearer t3"});
}

TEST_CASE("a plugin's client certificate is used") {
  const Directory directory;
  const Pem pem = make_certificate(100);
  nlohmann::json status = {{"clientCertificateData", pem.certificate}, {"clientKeyData", pem.key}};
  Credentials credentials(with_plugin(directory, "cat <<'END'\n" +
                                                     nlohmann::json{{"kind", "ExecCredential"},
                                                                    {"apiVersion", "client.authentication.k8s.io/v1"},
                                                                    {"status", status}}
                                                         .dump() +
                                                     "\nEND\n"));
  CHECK(credentials.current().certificate == pem.certificate);
  CHECK(credentials.current().headers.empty());
}

TEST_CASE("a missing or failing plugin is reported by name, without its output") {
  const Directory directory;
  const std::string name = "the credential plugin './plugin' of user 'ada'";
  Access missing = with_plugin(directory, "");
  missing.exec->command = "adaptdl-no-such-plugin";
  missing.exec->install_hint = "get it at\nexample.org";
  CHECK_GOLDEN(refusal(missing));
  CHECK(refusal(with_plugin(directory, "echo geheim; exit 3\n")) ==
        name + " failed with exit code 3; run it by hand to see why");
  CHECK(refusal(with_plugin(directory, "kill -9 $$\n")) == name + " was killed by signal 9");
  CHECK(refusal(with_plugin(directory, "echo geheim\n")) == name + ": the output is not an ExecCredential");
  CHECK(refusal(with_plugin(directory, answers("{}"))) == name + ": the output has neither a token nor a certificate");
  CHECK(refusal(with_plugin(directory, answers(R"({"clientKeyData": "geheim"})"))) ==
        name + ": the output has only one of clientCertificateData and clientKeyData");
  CHECK(refusal(with_plugin(directory, "exec cat /dev/zero\n")) == name + " printed more than 1 MiB");
  Access old = with_plugin(directory, answers(R"({"token": "geheim"})"));
  old.exec->api_version = "client.authentication.k8s.io/v1beta1";
  CHECK(refusal(old) ==
        name + ": the output must have apiVersion client.authentication.k8s.io/v1beta1, as in the kubeconfig");
}

TEST_CASE("a plugin that does not end in time is reported") {
  const Directory directory;
  const Access slow = with_plugin(directory, "exec sleep 60\n");
  const auto begin = std::chrono::steady_clock::now();
  CHECK_GOLDEN(error_of([&] { ask_plugin(slow, 200ms); }));
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
}

TEST_CASE("the description of the credentials mentions an expired token and contains no secret") {
  Access expired = access();
  expired.token.value = "e30.eyJleHAiOjE1MDAwMDAwMDB9.geheim";  // {"exp": 1500000000}
  Credentials credentials(expired);
  credentials.current();
  CHECK_GOLDEN(credentials.in_words());
  Credentials none(access());
  none.current();
  CHECK_GOLDEN(none.in_words());
}

}  // namespace kube_credentials_test
