// Executes COPY, ADD and WORKDIR.
#include <fmt/format.h>

#include <algorithm>

#include "adaptdl/error.h"
#include "base/text_parts.h"
#include "image/build/stage_build.h"
#include "image/build/url_source.h"
#include "image/dockerfile/values.h"
#include "image/layer/user_names.h"

namespace adaptdl::image {
namespace {

using nlohmann::json;

constexpr std::uint32_t kHeredocMode = 0644;

json copy_description(const CopyStep& copy) {
  json files = json::array();
  for (const CopyStep::File& file : copy.files) files.push_back({file.name, sha256(file.content)});
  return {{"add", copy.add},
          {"sources", copy.sources},
          {"files", files},
          {"to", copy.destination},
          {"owner", copy.owner},
          {"mode", copy.mode ? copy.mode->text() : ""},
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

void StageBuild::execute_copy(const CopyStep& copy, const StepInfo& info) {
  CopyInput input{.copy = &copy, .date = built_.date};
  json content = json::array();
  std::optional<Origin> origin;
  if (!copy.from.empty()) {
    origin = origin_of(copy.from);
    content.push_back(origin->key);
  } else {
    input.tree = &work_.context;
    input.sources = work_.context_sources(copy);
    input.unpack = copy.add && copy.unpack.value_or(true);
    content.push_back(sources_key(input.sources));
    for (const std::string& source : copy.sources) {
      if (!copy.add || !is_url(source)) continue;
      UrlFile file = fetch_url(source, copy.checksum, work_.cache, work_.report, work_.stop);
      content.push_back(file.digest);
      input.given.push_back(std::move(file.file));
    }
  }
  for (const CopyStep::File& file : copy.files)
    input.given.push_back(
        {.entry = {.path = file.name, .mode = kHeredocMode, .size = file.content.size(), .mtime = built_.date},
         .content = file.content,
         .file = {}});
  // With --link and a numeric owner, the layer does not depend on the layers below.
  const bool alone = copy.link && copy.owner.find_first_not_of("0123456789:") == std::string::npos;
  const std::string key = work_.key_of({alone ? "" : built_.key, copy_description(copy), content});
  const std::string previous = built_.key;
  run_cached_step(key, info, [&] {
    if (origin) {
      input.tree = &files_of(*origin);
      input.sources = copy_sources(*input.tree, copy);
    }
    return write_files(input);
  });
  if (alone) built_.key = work_.key_of({previous, key});
}

StepRecord StageBuild::write_files(const CopyInput& input) {
  const StageFiles none;
  std::optional<PlannedCopy> plan = plan_copy(input, target_files(input.copy->link ? none : built_.files));
  if (!plan) plan = plan_copy(input, target_files(own_files()));
  StepRecord record{.layer = {}, .date = input.date, .created = {}};
  if (plan->entries.empty() && plan->archives.empty()) return record;
  if (!work_.options.source_date_epoch)
    for (const auto& [path, planned] : plan->entries) record.date = std::max(record.date, planned.entry.mtime);
  const std::optional<Owner> owner = find_owner(input.copy->owner);
  LayerWriter writer(work_.cache.blobs(), work_.layer_options(), work_.stop);
  record.created = write_copy(*plan, input, owner, writer, work_.stop);
  if (writer.entries() > 0) record.layer = built_layer(writer.finish());
  return record;
}

// Resolves --chown and USER: "user[:group]", as names or numbers; a single number is also the group.
std::optional<Owner> StageBuild::find_owner(const std::string& name) {
  if (name.empty()) return {};
  const std::string user = name.substr(0, name.find(':'));
  const bool has_group = name.find(':') != std::string::npos;
  std::string numbers = name;
  // root is always 0, so no file needs to be read.
  if (numbers == "root" || numbers == "root:root") numbers = "0:0";
  const bool look = names_users(numbers);
  const UserIds ids = find_user(numbers, look ? own_files().read("etc/passwd").value_or("") : "",
                                look ? own_files().read("etc/group").value_or("") : "");
  const bool is_number = !user.empty() && user.find_first_not_of("0123456789") == std::string::npos;
  return Owner{ids.user, !has_group && is_number ? ids.user : ids.group};
}

}  // namespace adaptdl::image
