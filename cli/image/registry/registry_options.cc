#include "image/registry/registry_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "adaptdl/error.h"
#include "image/base/small_file.h"

namespace adaptdl::image {
namespace {

namespace fs = std::filesystem;

std::string read_pem(const fs::path& file, const char* what) {
  std::optional<std::string> text = read_small_file(file, what);
  if (!text) throw Error(fmt::format("cannot read '{}' ({}): no such file", file.string(), what));
  if (text->find("-----BEGIN ") == std::string::npos)
    throw Error(fmt::format("'{}' ({}) contains no PEM data", file.string(), what));
  return *text;
}

void add_directory(const fs::path& directory, http::Tls& tls) {
  std::error_code none;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory, none)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    if (file.extension() == ".crt") tls.authority += read_pem(file, "certificate authority") + "\n";
    if (file.extension() != ".cert" || !tls.certificate.empty()) continue;
    tls.certificate = read_pem(file, "client certificate");
    tls.key = read_pem(fs::path(file).replace_extension(".key"), "client key");
  }
}

}  // namespace

std::shared_ptr<const http::Tls> tls_for(const std::string& host, const RegistryOptions& options) {
  auto tls = std::make_shared<http::Tls>();
  tls->system_authorities = true;
  for (const fs::path& file : options.authorities) tls->authority += read_pem(file, "certificate authority") + "\n";
  for (const fs::path& directory : options.certificate_directories) add_directory(directory / host, *tls);
  if (tls->authority.empty() && tls->certificate.empty()) return nullptr;
  return tls;
}

}  // namespace adaptdl::image
