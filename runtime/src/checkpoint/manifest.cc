#include "checkpoint/manifest.h"

#include <fmt/core.h>

#include <charconv>
#include <limits>
#include <set>

#include "base/utf8.h"
#include "checkpoint/json_text.h"

namespace adaptdl::checkpoint {

using nlohmann::json;

namespace {

constexpr std::size_t kMaxStem = 180;  // leaves room for the ending within the limit of 255 bytes for a file name
constexpr std::size_t kMaxStateName = 100;
constexpr std::uint64_t kMaxManifest = std::uint64_t{64} << 20;
constexpr std::string_view kChecksumKey = "\"checksum\": \"";
constexpr std::string_view kEnd = "\"\n}\n";
constexpr std::string_view kJsonEnding = ".json";
constexpr std::string_view kTensorsEnding = ".safetensors";

template <typename T>
T member(const json& object, const char* key, bool (json::*is_type)() const noexcept, const std::string& file) {
  const auto found = object.find(key);
  if (found == object.end() || !((*found).*is_type)())
    throw Damage(fmt::format("{}: '{}' is missing or has the wrong type", file, key));
  return found->get<T>();
}

FileInfo parse_file(const json& entry, const std::string& state, const std::string& file) {
  if (!entry.is_object())
    throw Damage(fmt::format("{}: an entry in 'files' of state '{}' is not a JSON object", file, state));
  FileInfo info;
  info.name = member<std::string>(entry, "name", &json::is_string, file);
  info.size = member<std::uint64_t>(entry, "size", &json::is_number_unsigned, file);
  info.checksum = member<std::string>(entry, "checksum", &json::is_string, file);
  if (!file_role(state, info.name))
    throw Damage(fmt::format("{0}: invalid file name '{2}' for state '{1}'", file, state, info.name));
  if (!is_checksum(info.checksum)) throw Damage(fmt::format("{}: the checksum of '{}' is invalid", file, info.name));
  return info;
}

StateInfo parse_state(const json& entry, std::set<std::string>& files, const std::string& file) {
  if (!entry.is_object()) throw Damage(fmt::format("{}: a state is not a JSON object", file));
  StateInfo state;
  state.name = member<std::string>(entry, "name", &json::is_string, file);
  check_state_name<Damage>(state.name, file);
  for (const json& item : member<json>(entry, "files", &json::is_array, file)) {
    state.files.push_back(parse_file(item, state.name, file));
    if (!files.insert(state.files.back().name).second)
      throw Damage(fmt::format("{}: duplicate file '{}'", file, state.files.back().name));
  }
  return state;
}

Manifest parse_manifest(const json& object, const std::string& file) {
  Manifest manifest;
  manifest.format = kFormat;
  manifest.number = member<std::uint64_t>(object, "number", &json::is_number_unsigned, file);
  manifest.created = member<std::string>(object, "created", &json::is_string, file);
  manifest.version = member<std::string>(object, "version", &json::is_string, file);
  manifest.job = member<std::string>(object, "job", &json::is_string, file);
  manifest.progress = member<json>(object, "progress", &json::is_object, file);
  const auto replicas = member<std::uint64_t>(object, "replicas", &json::is_number_unsigned, file);
  if (replicas < 1 || replicas > std::numeric_limits<int>::max())
    throw Damage(fmt::format("{}: 'replicas' is out of range", file));
  manifest.replicas = static_cast<int>(replicas);
  std::set<std::string> states, files;
  for (const json& item : member<json>(object, "states", &json::is_array, file)) {
    manifest.states.push_back(parse_state(item, files, file));
    if (!states.insert(manifest.states.back().name).second)
      throw Damage(fmt::format("{}: duplicate state '{}'", file, manifest.states.back().name));
  }
  return manifest;
}

// Returns the offset of the final checksum's key, or nullopt if `text` does not end with a correct checksum.
std::optional<std::size_t> checked_end(std::string_view text) {
  constexpr std::size_t kLength = kChecksumKey.size() + 32 + kEnd.size();
  if (text.size() < kLength || !text.ends_with(kEnd)) return {};
  const std::size_t begin = text.size() - kLength;
  if (text.substr(begin, kChecksumKey.size()) != kChecksumKey) return {};
  if (text.substr(begin + kChecksumKey.size(), 32) != checksum_of(text.substr(0, begin))) return {};
  return begin;
}

}  // namespace

std::string file_stem(const std::string& name) {
  std::string stem;
  const auto encode = [&](char c) { stem += fmt::format("%{:02X}", static_cast<unsigned char>(c)); };
  for (const char c : name) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_')
      stem += c;
    else
      encode(c);
  }
  if (stem == "manifest") {
    stem.clear();
    encode('m');
    return stem + "anifest";
  }
  if (stem.size() <= kMaxStem) return stem;
  // "%~" is not an encoded byte, so a shortened stem never equals the full stem of another name.
  return fmt::format("{}%~{}", stem.substr(0, kMaxStem - 40), checksum_of(name));
}

std::string file_name(const std::string& state, const FileRole& role) {
  const std::string part = role.rank ? fmt::format(".rank{}", *role.rank) : "";
  return fmt::format("{}{}{}", file_stem(state), part, role.tensors ? kTensorsEnding : kJsonEnding);
}

std::optional<FileRole> file_role(const std::string& state, const std::string& file) {
  FileRole role;
  role.tensors = file.ends_with(kTensorsEnding);
  const std::string begin = file_stem(state) + ".rank";
  if (file.starts_with(begin)) {
    int rank = 0;
    const char* first = file.data() + begin.size();
    const auto [next, error] = std::from_chars(first, file.data() + file.size(), rank);
    if (error != std::errc() || rank < 0) return {};
    role.rank = rank;
  }
  if (file_name(state, role) != file) return {};
  return role;
}

template <typename E>
void check_state_name(std::string_view name, const std::string& what) {
  if (name.empty()) throw E(fmt::format("{}: the name of a state must not be empty", what));
  if (name.size() > kMaxStateName)
    throw E(fmt::format("{0}: the name of a state must be at most {2} bytes long, got {1}", what, name.size(),
                        kMaxStateName));
  if (!is_utf8(name)) throw E(fmt::format("{}: the name of a state must be valid UTF-8", what));
}
template void check_state_name<UsageError>(std::string_view, const std::string&);
template void check_state_name<Damage>(std::string_view, const std::string&);

std::string manifest_text(const Manifest& manifest) {
  nlohmann::ordered_json object;
  object["format"] = kFormat;
  object["number"] = manifest.number;
  object["created"] = manifest.created;
  object["version"] = manifest.version;
  object["job"] = manifest.job;
  object["replicas"] = manifest.replicas;
  object["progress"] = manifest.progress;
  object["states"] = nlohmann::ordered_json::array();
  for (const StateInfo& state : manifest.states) {
    auto files = nlohmann::ordered_json::array();
    for (const FileInfo& file : state.files)
      files.push_back({{"name", file.name}, {"size", file.size}, {"checksum", file.checksum}});
    object["states"].push_back({{"name", state.name}, {"files", files}});
  }
  // Progress is informational: text in it that is not UTF-8 must not prevent saving.
  std::string text = object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize(text.size() - std::string_view("\n}").size());
  text += ",\n  ";
  const std::string checksum = checksum_of(text);
  text += kChecksumKey;
  text += checksum;
  text += kEnd;
  return text;
}

ManifestFile read_manifest(const Fd& directory, const std::filesystem::path& path) {
  const InputFile input(directory, path, kManifestName);
  const std::string file = input.path().string();
  if (input.size() > kMaxManifest) throw Damage(fmt::format("'{}' is too large for a manifest", file));
  const std::string text = input.read_all();
  const auto end = checked_end(text);
  json object;
  try {
    object = parse_json(text, file);
  } catch (const Damage&) {
    if (end) throw;
    throw Damage(fmt::format("'{}' is damaged: its checksum does not match", file));
  }
  const auto format = object.is_object() ? object.find("format") : object.end();
  if (object.is_object() && format != object.end() && format->is_number_unsigned() &&
      format->get<std::uint64_t>() > kFormat)
    throw NewerFormat(fmt::format(
        "'{}' has format {}, but adaptdl {} supports only formats up to {}{}; upgrade, or move '{}' away to continue "
        "from an older checkpoint",
        file, format->get<std::uint64_t>(), ADAPTDL_VERSION, kFormat,
        end ? ": it was written by a newer adaptdl"
            : ", and its checksum does not match: it was written by a newer adaptdl, or is damaged",
        path.string()));
  if (!end) throw Damage(fmt::format("'{}' is damaged: its checksum does not match", file));
  if (!object.is_object() || member<std::uint64_t>(object, "format", &json::is_number_unsigned, file) != kFormat)
    throw Damage(fmt::format("'{}' has an unknown format", file));
  return {parse_manifest(object, file), text.substr(*end + kChecksumKey.size(), 32)};
}

}  // namespace adaptdl::checkpoint
