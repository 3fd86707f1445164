#include "image/dockerfile/run_mount.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "adaptdl/error.h"
#include "base/text_parts.h"
#include "image/dockerfile/values.h"

namespace adaptdl::image {
namespace {

// The format is CSV: commas inside double quotes are literal, and "" is an escaped quote.
std::vector<std::string> csv_fields(std::string_view text) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool doubled = quoted && c == '"' && text.substr(at + 1).starts_with('"');
    if (doubled) {
      fields.back() += text[++at];
    } else if (c == '"') {
      if (!quoted && !fields.back().empty()) throw Error("--mount: quotes must enclose a whole option");
      quoted = !quoted;
      if (!quoted && at + 1 < text.size() && text[at + 1] != ',')
        throw Error("--mount: quotes must enclose a whole option");
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  if (quoted) throw Error("--mount: unclosed quote");
  return fields;
}

// The names of Mount::Type and Mount::Sharing, in the order of their values.
constexpr std::array<std::string_view, 4> kMountTypes{"bind", "cache", "tmpfs", "secret"};
constexpr std::array<std::string_view, 3> kSharings{"shared", "private", "locked"};

// Returns the number of names if none is equal.
std::size_t index_of(const auto& names, const std::string& value) {
  return static_cast<std::size_t>(std::find(names.begin(), names.end(), lower(value)) - names.begin());
}

Mount::Type mount_type(const std::string& value) {
  if (lower(value) == "ssh")
    throw Error("--mount=type=ssh is not supported; pass the key as a secret: --mount=type=secret,id=NAME");
  const std::size_t index = index_of(kMountTypes, value);
  if (index == kMountTypes.size())
    throw Error(fmt::format("--mount: unknown type '{}': expected bind, cache, tmpfs or secret", value));
  return static_cast<Mount::Type>(index);
}

Mount::Sharing mount_sharing(const std::string& value) {
  const std::size_t index = index_of(kSharings, value);
  if (index == kSharings.size())
    throw Error(fmt::format("--mount: invalid sharing '{}': expected shared, private or locked", value));
  return static_cast<Mount::Sharing>(index);
}

struct MountOption {
  std::string_view name, types;  // the types that accept the option
  void (*set)(Mount& mount, const std::string& value);
};

constexpr std::string_view kAllTypes = "bind cache tmpfs secret";
constexpr unsigned kMaxId = std::numeric_limits<unsigned>::max();
constexpr std::array<MountOption, 14> kMountOptions{
    {{"type", kAllTypes, [](auto& mount, auto& value) { mount.type = mount_type(value); }},
     {"from", "bind cache", [](auto& mount, auto& value) { mount.from = value; }},
     {"source", kAllTypes, [](auto& mount, auto& value) { mount.source = value; }},
     {"target", kAllTypes, [](auto& mount, auto& value) { mount.target = value; }},
     {"id", "cache secret", [](auto& mount, auto& value) { mount.id = value; }},
     {"sharing", "cache", [](auto& mount, auto& value) { mount.sharing = mount_sharing(value); }},
     {"required", "secret", [](auto& mount, auto& value) { mount.required = parse_bool(value); }},
     {"env", "secret", [](auto& mount, auto& value) { mount.environment = value; }},
     {"mode", "cache secret", [](auto& mount, auto& value) { mount.mode = parse_number(value, 8, 07777); }},
     {"uid", "cache secret", [](auto& mount, auto& value) { mount.user = parse_number(value, 10, kMaxId); }},
     {"gid", "cache secret", [](auto& mount, auto& value) { mount.group = parse_number(value, 10, kMaxId); }},
     {"size", "tmpfs", [](auto& mount, auto& value) { mount.size = parse_size(value); }},
     {"readonly", kAllTypes, [](auto& mount, auto& value) { mount.read_only = parse_bool(value); }},
     {"readwrite", kAllTypes, [](auto& mount, auto& value) { mount.read_only = !parse_bool(value); }}}};

const MountOption& mount_option(std::string_view name) {
  std::string names;
  for (const MountOption& option : kMountOptions) {
    if (option.name == name) return option;
    names += fmt::format("{}{}", names.empty() ? "" : &option == &kMountOptions.back() ? " or " : ", ", option.name);
  }
  throw Error(fmt::format("--mount: unknown option '{}': expected {}", name, names));
}

std::string full_name(const std::string& name) {
  return name == "src"                            ? "source"
         : name == "dst" || name == "destination" ? "target"
         : name == "ro"                           ? "readonly"
         : name == "rw"                           ? "readwrite"
                                                  : name;
}

}  // namespace

std::vector<Pair> mount_options(std::string_view text) {
  std::vector<Pair> options;
  for (const std::string& field : csv_fields(text)) {
    const std::size_t equals = field.find('=');
    const std::string name = full_name(lower(field.substr(0, equals)));
    if (equals == std::string::npos && name != "readonly" && name != "readwrite" && name != "required")
      throw Error(fmt::format("--mount: '{}' needs a value: {}=…", field, field));
    const std::string value = equals == std::string::npos ? "true" : field.substr(equals + 1);
    static_cast<void>(mount_option(name));
    if (name == "from" && !is_plain(value))
      throw Error(
          "--mount: from= must not contain a variable or quotes; use the name of a stage instead, defined with "
          "'FROM $VARIABLE AS NAME'");
    if (name == "from" && !value.empty() && value.find_first_not_of("0123456789") == std::string::npos)
      throw Error(fmt::format("--mount: from={} must be the name of a stage or an image, not a number", value));
    options.push_back({name, value});
  }
  return options;
}

Mount parse_mount(const std::vector<Pair>& options) {
  Mount mount;
  // The other options depend on the type, which may come last.
  for (const Pair& option : options)
    if (option.name == "type") mount.type = mount_type(option.value);
  const bool secret = mount.type == Mount::Type::kSecret;
  mount.read_only = secret || mount.type == Mount::Type::kBind;
  const std::string_view type = kMountTypes[static_cast<std::size_t>(mount.type)];
  for (const Pair& option : options) {
    const MountOption& known = mount_option(option.name);
    if (known.types.find(type) == std::string_view::npos)
      throw Error(fmt::format("--mount: type {} does not accept '{}'", type, option.name));
    known.set(mount, option.value);
  }
  if (secret) {
    if (!mount.source.empty() && !mount.id.empty())
      throw Error("--mount: type secret accepts only one of 'id' and 'source'");
    if (mount.id.empty()) mount.id = mount.source;
    if (mount.id.empty()) mount.id = mount.target.substr(mount.target.rfind('/') + 1);
    if (mount.id.empty()) throw Error("--mount: type secret needs an id");
    if (mount.target.empty() && !mount.environment)
      mount.target = "/run/secrets/" + mount.id.substr(mount.id.rfind('/') + 1);
  } else if (mount.target.empty()) {
    throw Error(fmt::format("--mount: type {} needs a target", type));
  } else if (mount.target.find_first_not_of("/.") == std::string::npos && mount.target.starts_with('/')) {
    throw Error(fmt::format("--mount: target '{}' must not be the root directory", mount.target));
  }
  return mount;
}

}  // namespace adaptdl::image
