#include "command/submit/submit_image.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <thread>

#include "adaptdl/error.h"
#include "command/base/installed_data.h"
#include "http/http.h"
#include "image/build/builder.h"
#include "kube/stream/port_forward.h"
#include "terminal/print.h"
#include "view/build_screen.h"

namespace adaptdl::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "ADAPTDL_SUBMIT_REPO";
constexpr const char* kRepository = "adaptdl-submit";

// A file that identifies a kind of project without a Dockerfile, and adaptdl's own Dockerfile for such projects.
struct ProjectKind {
  const char *file, *dockerfile;
};
constexpr std::array kProjectKinds{ProjectKind{"meson.build", "meson.Dockerfile"},
                                   ProjectKind{"CMakeLists.txt", "cmake.Dockerfile"},
                                   ProjectKind{"requirements.txt", "python.Dockerfile"}};

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

image::BuildOptions submit_build_options(const fs::path& dockerfile, const SubmitImageOptions& options) {
  image::BuildOptions build;
  build.context = options.project;
  build.dockerfile = dockerfile;
  for (const std::string& argument : options.build_arguments) {
    const std::size_t equals = argument.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw UsageError(fmt::format("submit: --build-arg must be NAME=VALUE, not '{}'", argument));
    build.build_arguments[argument.substr(0, equals)] = argument.substr(equals + 1);
  }
  for (const std::string& secret : options.secrets) build.secrets.push_back(image::BuildSecret::parse(secret));
  build.target = options.target;
  build.no_cache = options.no_cache;
  build.source_date_epoch = image::environment_source_date();
  build.push = true;
  build.registry = registry_options(options.registry, "submit");
  return build;
}

// Returns the image's digest.
std::string build_on_screen(const image::BuildOptions& options, const std::stop_token& stop) {
  BuildScreen screen(false);
  try {
    return image::build(options, screen, stop).digest;
  } catch (const http::Stopped&) {
    throw;
  } catch (...) {
    screen.show_failure();
    throw;
  }
}

// Serves the cluster's registry on this machine while the object exists.
class RegistryProxy {
 public:
  RegistryProxy(kube::Client& client, const kube::ImageRegistry& registry, std::uint16_t port)
      : forward_(client, {.name_space = registry.name_space,
                          .pod = {},
                          .service = registry.service,
                          .port = registry.port,
                          .local_port = port}) {
    forward_.find();
    thread_ = std::jthread([this](const std::stop_token& stop) {
      forward_.serve(stop, [](const std::string& line) { print_notice("cluster registry: {}", line); });
    });
  }
  std::string host() const { return fmt::format("localhost:{}", forward_.local_port()); }

 private:
  kube::PortForward forward_;
  std::jthread thread_;  // last, because the thread uses the other member
};

}  // namespace

fs::path find_dockerfile(const SubmitImageOptions& options) {
  if (!options.dockerfile.empty()) {
    if (!is_file(options.dockerfile))
      throw UsageError(fmt::format("submit: Dockerfile '{}' not found", options.dockerfile.string()));
    return options.dockerfile;
  }
  if (is_file(options.project / "Dockerfile")) return options.project / "Dockerfile";
  for (const ProjectKind& kind : kProjectKinds) {
    if (!is_file(options.project / kind.file)) continue;
    const fs::path own = installed_data("dockerfiles") / kind.dockerfile;
    return is_file(own) ? own : fs::path();
  }
  return {};
}

std::string no_dockerfile(const SubmitImageOptions& options) {
  std::string files;
  for (const ProjectKind& kind : kProjectKinds) files += fmt::format("{}{}", files.empty() ? "" : ", ", kind.file);
  return fmt::format(
      "project '{}' has no Dockerfile, and none of the files for which a built-in Dockerfile exists ({}); create a "
      "Dockerfile, or use --dockerfile FILE or --image IMAGE",
      options.project.string(), files);
}

std::optional<ImageTarget> ImageTarget::of_environment() {
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return std::nullopt;
  ImageTarget target;
  try {
    target.repository_ = image::Reference::parse(text);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", kVariable, error.what()));
  }
  if (!target.repository_.digest.empty())
    throw UsageError(fmt::format("{} is '{}'; expected a repository to push to, without a digest", kVariable, text));
  return target;
}

ImageTarget ImageTarget::of_cluster(kube::Client& client) {
  ImageTarget target;
  target.client_ = &client;
  target.registry_ = kube::find_image_registry(client, client.access().name_space);
  return target;
}

std::string ImageTarget::pulled_as() const {
  if (registry_) return fmt::format("localhost:{}/{}", registry_->node_port, kRepository);
  return repository_.registry + '/' + repository_.repository;
}

std::string ImageTarget::build_and_push(const fs::path& dockerfile, const SubmitImageOptions& options,
                                        const std::stop_token& stop) const {
  image::BuildOptions build = submit_build_options(dockerfile, options);
  if (!registry_) {
    build.tags = {repository_};
    return fmt::format("{}@{}", pulled_as(), build_on_screen(build, stop));
  }
  const RegistryProxy proxy(*client_, *registry_, options.proxy_port);
  build.registry.plain_http.insert(proxy.host());
  build.tags = {image::Reference::parse(proxy.host() + '/' + kRepository)};
  return fmt::format("{}@{}", pulled_as(), build_on_screen(build, stop));
}

}  // namespace adaptdl::cli
