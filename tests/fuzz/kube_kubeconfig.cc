// Reads any text as a kubeconfig: it yields a usable Access, or a one-line error that names the kubeconfig.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "adaptdl/error.h"
#include "kube/api/kubeconfig.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const adaptdl::kube::Access access = adaptdl::kube::parse_kubeconfig(text, "/directory", {});
    if (access.server.empty() || access.name_space.empty() ||
        access.client_certificate.empty() != access.client_key.empty())
      std::abort();
  } catch (const adaptdl::Error& error) {
    const std::string message = error.what();
    const auto is_control = [](unsigned char c) { return c < ' ' || c == 0x7f; };
    if (!message.starts_with("kubeconfig:") || std::any_of(message.begin(), message.end(), is_control)) std::abort();
  }
  return 0;
}
