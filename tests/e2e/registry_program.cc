// Performs one operation of the registry client per run.
//
//   registry_program [NAME=VALUE…] push-blob IMAGE FILE [OTHER-REPOSITORY…]   prints the outcome, digest and progress
//   registry_program [NAME=VALUE…] push IMAGE FILE…      pushes files as layers; prints the manifest's digest
//   registry_program [NAME=VALUE…] pull IMAGE DIRECTORY  stores all blobs by digest; prints the manifest
//   registry_program [NAME=VALUE…] show IMAGE            prints the manifest or index
//
// The possible names are plain (a registry without TLS), auth (a file), ca (a file), certs (a directory), mirror
// (REGISTRY=MIRROR), chunk (bytes), platform, tries, stall (s). SIGINT stops the operation; the program then prints how
// many milliseconds the stop took, and exits with 130.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>

#include "image/base/digest.h"
#include "image/base/parallel.h"
#include "image/registry/registry.h"

using namespace adaptdl;
using namespace adaptdl::image;

namespace {

using Clock = std::chrono::steady_clock;
constexpr unsigned kWorkers = 4;

std::stop_source stopper;
std::atomic<bool> interrupted = false;
Clock::time_point interrupted_at;

struct Settings {
  RegistryOptions options;
  Platform platform = Platform::of_this_machine();
  std::vector<std::string> words;
};

Settings parse(int count, char** arguments) {
  Settings settings;
  RegistryOptions& options = settings.options;
  options.certificate_directories.clear();
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const std::size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : argument.substr(equals + 1);
    if (!settings.words.empty() || equals == std::string::npos)
      settings.words.push_back(argument);
    else if (name == "plain")
      options.plain_http.insert(value);
    else if (name == "auth")
      options.auth.files.emplace_back(value);
    else if (name == "ca")
      options.authorities.emplace_back(value);
    else if (name == "certs")
      options.certificate_directories.emplace_back(value);
    else if (name == "mirror")
      options.mirrors[value.substr(0, value.find('='))].push_back(value.substr(value.find('=') + 1));
    else if (name == "chunk")
      options.chunk = std::stoull(value);
    else if (name == "platform")
      settings.platform = Platform::parse(value);
    else if (name == "tries")
      options.retry.tries = std::stoi(value);
    else if (name == "stall")
      options.stall = std::chrono::seconds(std::stoi(value));
  }
  return settings;
}

std::string digest_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  Digester digester;
  std::string buffer(1 << 20, '\0');
  while (stream.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) || stream.gcount() > 0)
    digester.update(std::string_view(buffer).substr(0, static_cast<std::size_t>(stream.gcount())));
  return digester.digest();
}

const char* text(Pushed how) {
  return how == Pushed::kWasThere ? "was there" : how == Pushed::kMounted ? "mounted" : "uploaded";
}

void push_blob(Registry& registry, const Reference& image, const std::vector<std::string>& words) {
  std::int64_t passed = 0;
  const Blob blob = file_blob(words[2], digest_of(words[2]));
  const Pushed how = registry.push_blob(image, blob, {words.begin() + 3, words.end()}, stopper.get_token(),
                                        [&](std::int64_t bytes) { passed += bytes; });
  fmt::print("{} {} {}\n", text(how), blob.digest, passed);
}

void push(Registry& registry, const Reference& image, const std::vector<std::string>& words, const Platform& platform) {
  nlohmann::json layers = nlohmann::json::array();
  std::vector<Blob> blobs;
  for (std::size_t i = 2; i < words.size(); ++i) {
    blobs.push_back(file_blob(words[i], digest_of(words[i])));
    layers.push_back({{"mediaType", "application/vnd.oci.image.layer.v1.tar"},
                      {"digest", blobs.back().digest},
                      {"size", blobs.back().size}});
  }
  nlohmann::json config = {
      {"os", platform.os}, {"architecture", platform.architecture}, {"rootfs", {{"type", "layers"}}}};
  for (const Blob& blob : blobs) config["rootfs"]["diff_ids"].push_back(blob.digest);
  blobs.push_back(memory_blob(config.dump()));
  for_each_parallel(blobs.size(), kWorkers, stopper.get_token(),
                    [&](std::size_t i, const std::stop_token& stop) { registry.push_blob(image, blobs[i], {}, stop); });
  const nlohmann::json manifest = {{"schemaVersion", 2},
                                   {"mediaType", media::kManifest},
                                   {"config",
                                    {{"mediaType", "application/vnd.oci.image.config.v1+json"},
                                     {"digest", blobs.back().digest},
                                     {"size", blobs.back().size}}},
                                   {"layers", layers}};
  fmt::print("{}\n",
             registry.push_manifest(image, std::string(media::kManifest), manifest.dump(), stopper.get_token()));
}

void pull(Registry& registry, const Reference& image, const std::string& directory, const Platform& platform) {
  const Manifest manifest = registry.pull_manifest(image, platform, stopper.get_token());
  std::vector<Descriptor> blobs = manifest.layers;
  blobs.push_back(manifest.config);
  for_each_parallel(blobs.size(), kWorkers, stopper.get_token(), [&](std::size_t i, const std::stop_token& stop) {
    std::ofstream file(std::filesystem::path(directory) / hex_of(blobs[i].digest), std::ios::binary);
    registry.pull_blob(
        image, blobs[i], [&](std::string_view data) { file << data; }, stop);
  });
  fmt::print("{}\n", manifest.bytes);
}

int run(const Settings& settings) {
  const std::vector<std::string>& words = settings.words;
  if (words.size() < 2) throw UsageError("registry_program: see its source");
  Registry registry(settings.options);
  const Reference image = Reference::parse(words[1]);
  if (words[0] == "push-blob") push_blob(registry, image, words);
  if (words[0] == "push") push(registry, image, words, settings.platform);
  if (words[0] == "pull") pull(registry, image, words.at(2), settings.platform);
  if (words[0] == "show")
    std::visit([](const auto& each) { fmt::print("{}\n", each.bytes); }, registry.pull(image, stopper.get_token()));
  // getrusage() is not used because its maximum includes the memory of the parent process before exec.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) fmt::print(stderr, "peak {} KiB\n", std::stoul(line.substr(6)));
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  std::signal(SIGINT, [](int) { interrupted = true; });
  const std::jthread watch([](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (interrupted.exchange(false)) {
        interrupted_at = Clock::now();
        stopper.request_stop();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  try {
    return run(parse(count, arguments));
  } catch (const http::Stopped&) {
    fmt::print("{}\n", std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - interrupted_at).count());
    return 130;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
