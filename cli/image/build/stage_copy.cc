// Executes COPY and ADD.
#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "image/base/text_parts.h"
#include "image/build/stage_build.h"
#include "image/build/url_source.h"
#include "image/dockerfile/values.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

constexpr std::uint32_t kHeredocMode = 0644;

json copy_description(const Copy& copy) {
  json files = json::array();
  for (const Heredoc& file : copy.files) files.push_back({file.name, sha256(file.content)});
  return {{"add", copy.add},
          {"sources", copy.sources},
          {"files", files},
          {"to", copy.destination},
          {"owner", copy.owner},
          {"mode", copy.mode},
          {"link", copy.link},
          {"parents", copy.parents},
          {"excludes", copy.excludes},
          {"unpack", copy.unpack ? json(*copy.unpack) : json()}};
}

}  // namespace

std::string sources_key(const std::vector<CopySource>& sources) {
  Digester digester;
  for (const CopySource& source : sources) {
    digester.update(fmt::format("{}\n", source.directory ? "directory" : "file"));
    for (const CopyItem& item : source.items) {
      const Entry& entry = item.file.entry;
      const json all = {item.target, static_cast<int>(entry.type), entry.mode,         entry.size,        entry.link,
                        item.digest, entry.device_major,           entry.device_minor, entry.path.empty()};
      digester.update(all.dump(-1, ' ', false, json::error_handler_t::ignore) + "\n");
      digester.update(item.target + '\0' + entry.link + '\0');
    }
  }
  return digester.digest();
}

void StageBuild::copy(const Step& step, const Copy& copy, const StepInfo& info) {
  static_cast<void>(step);
  CopyInput input;
  input.copy = &copy;
  json content = json::array();
  std::optional<From> from;
  if (!copy.from.empty()) {
    from = this->from(copy.from);
    content.push_back(from->key);
  } else {
    input.tree = &work_.context;
    input.sources = copy_sources(work_.context, copy);
    work_.digests.fill(input.sources, work_.stop);
    input.unpack = copy.add && copy.unpack.value_or(true);
    content.push_back(sources_key(input.sources));
    for (const std::string& source : copy.sources) {
      if (!copy.add || !is_url(source)) continue;
      UrlFile file = fetch_url(source, copy.checksum, work_.cache, work_.report, work_.stop);
      content.push_back(file.digest);
      input.given.push_back(std::move(file.file));
    }
  }
  // With --link and a numeric owner, the layer does not depend on the layers below.
  const bool alone = copy.link && copy.owner.find_first_not_of("0123456789:") == std::string::npos;
  const std::string layer_key = key_of({alone ? "" : built_.key, copy_description(copy), content});
  const std::string previous = built_.key;
  finish(layer_key, info, [&] {
    input.date = built_.date;
    if (from) {
      input.tree = &view_of(*from);
      input.sources = copy_sources(*input.tree, copy);
    }
    input.owner = owner(copy.owner);
    for (const Heredoc& file : copy.files) {
      GivenFile given{.entry = {}, .content = file.content, .file = {}};
      given.entry = {.path = file.name, .mode = kHeredocMode, .size = file.content.size(), .mtime = built_.date};
      input.given.push_back(std::move(given));
    }
    return write(input, copy.link);
  });
  if (alone) built_.key = key_of({previous, layer_key});
}

}  // namespace adaptdl::image
