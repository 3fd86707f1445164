#include "image/dockerfile/run_mount.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <vector>

#include "adaptdl/error.h"
#include "image/base/text_parts.h"
#include "image/dockerfile/values.h"

namespace adaptdl::image {
namespace {

constexpr std::string_view kOptions =
    "type, from, source, target, id, sharing, required, env, mode, uid, gid, size, readonly or readwrite";

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

class MountReader {
 public:
  explicit MountReader(const Expand& expand) : expand_(expand) {}

  Mount read(std::string_view text) {
    for (const std::string& field : csv_fields(text)) read_option(field);
    // Values that are not known yet, perhaps even the type, are checked after the expansion.
    if (complete_) finish();
    return mount_;
  }

 private:
  void read_option(const std::string& field);
  void set(const std::string& key, const std::string& value);
  void set_type(const std::string& value);
  void set_sharing(const std::string& value);
  void finish();
  void allow(bool allowed, std::string_view option) const {
    if (!allowed) throw Error(fmt::format("--mount: type {} does not accept '{}'", type_, option));
  }

  const Expand& expand_;
  Mount mount_;
  std::string type_ = "bind";
  std::optional<bool> read_only_;
  bool has_size_ = false, has_sharing_ = false, has_required_ = false;
  bool complete_ = true;
};

void MountReader::read_option(const std::string& field) {
  const std::size_t equals = field.find('=');
  const std::string key = lower(field.substr(0, equals));
  if (equals == std::string::npos) {
    if (key != "readonly" && key != "ro" && key != "readwrite" && key != "rw" && key != "required")
      throw Error(fmt::format("--mount: '{}' needs a value: {}=…", field, field));
    return set(key, "true");
  }
  std::string value = field.substr(equals + 1);
  if (key == "from" && value.find('$') != std::string::npos)
    throw Error(
        "--mount: from= must not contain a variable; use the name of a stage instead, defined with "
        "'FROM $VARIABLE AS NAME'");
  if (expand_ != nullptr) {
    value = expand_(value);
  } else if (value.find_first_of("$\"'\\`") != std::string::npos) {
    complete_ = false;
    value = "";
  }
  if (complete_ || !value.empty()) set(key, value);
}

void MountReader::set_type(const std::string& value) {
  type_ = lower(value);
  if (type_ == "ssh")
    throw Error("--mount=type=ssh is not supported; pass the key as a secret: --mount=type=secret,id=NAME");
  if (type_ == "bind")
    mount_.type = Mount::Type::kBind;
  else if (type_ == "cache")
    mount_.type = Mount::Type::kCache;
  else if (type_ == "tmpfs")
    mount_.type = Mount::Type::kTmpfs;
  else if (type_ == "secret")
    mount_.type = Mount::Type::kSecret;
  else
    throw Error(fmt::format("--mount: unknown type '{}'; expected bind, cache, tmpfs or secret", value));
}

void MountReader::set_sharing(const std::string& value) {
  has_sharing_ = true;
  const std::string sharing = lower(value);
  if (sharing == "shared")
    mount_.sharing = Mount::Sharing::kShared;
  else if (sharing == "private")
    mount_.sharing = Mount::Sharing::kPrivate;
  else if (sharing == "locked")
    mount_.sharing = Mount::Sharing::kLocked;
  else
    throw Error(fmt::format("--mount: invalid sharing '{}': expected shared, private or locked", value));
}

void MountReader::set(const std::string& key, const std::string& value) {
  constexpr unsigned kMaxId = std::numeric_limits<unsigned>::max();
  if (key == "type") {
    set_type(value);
  } else if (key == "from") {
    mount_.from = value;
  } else if (key == "source" || key == "src") {
    mount_.source = value;
  } else if (key == "target" || key == "dst" || key == "destination") {
    mount_.target = value;
  } else if (key == "readonly" || key == "ro") {
    read_only_ = parse_bool(value);
  } else if (key == "readwrite" || key == "rw") {
    read_only_ = !parse_bool(value);
  } else if (key == "required") {
    mount_.required = parse_bool(value);
    has_required_ = true;
  } else if (key == "size") {
    mount_.size = parse_size(value);
    has_size_ = true;
  } else if (key == "id") {
    mount_.id = value;
  } else if (key == "sharing") {
    set_sharing(value);
  } else if (key == "mode") {
    mount_.mode = parse_number(value, 8, 07777);
  } else if (key == "uid") {
    mount_.user = parse_number(value, 10, kMaxId);
  } else if (key == "gid") {
    mount_.group = parse_number(value, 10, kMaxId);
  } else if (key == "env") {
    mount_.environment = value;
  } else {
    throw Error(fmt::format("--mount: unknown option '{}'; expected {}", key, kOptions));
  }
}

void MountReader::finish() {
  const bool secret = mount_.type == Mount::Type::kSecret, cache = mount_.type == Mount::Type::kCache;
  allow(secret || !has_required_, "required");
  allow(secret || !mount_.environment, "env");
  allow(secret || cache || mount_.id.empty(), "id");
  allow(cache || !has_sharing_, "sharing");
  allow(mount_.type == Mount::Type::kTmpfs || !has_size_, "size");
  allow(secret || cache || !mount_.mode, "mode");
  allow(secret || cache || !mount_.user, "uid");
  allow(secret || cache || !mount_.group, "gid");
  allow((!secret && mount_.type != Mount::Type::kTmpfs) || mount_.from.empty(), "from");
  if (!mount_.from.empty() && mount_.from.find_first_not_of("0123456789") == std::string::npos)
    throw Error(fmt::format("--mount: from={} must be the name of a stage or an image, not a number", mount_.from));
  mount_.read_only = read_only_.value_or(secret || mount_.type == Mount::Type::kBind);
  if (secret) {
    if (!mount_.source.empty() && !mount_.id.empty())
      throw Error("--mount: type secret accepts only one of 'id' and 'source'");
    if (mount_.id.empty()) mount_.id = mount_.source;
    if (mount_.id.empty()) mount_.id = mount_.target.substr(mount_.target.rfind('/') + 1);
    if (mount_.id.empty()) throw Error("--mount: type secret needs an id");
    if (mount_.target.empty() && !mount_.environment)
      mount_.target = "/run/secrets/" + mount_.id.substr(mount_.id.rfind('/') + 1);
  } else if (mount_.target.empty()) {
    throw Error(fmt::format("--mount: type {} needs a target", type_));
  } else if (mount_.target.find_first_not_of("/.") == std::string::npos && mount_.target.starts_with('/')) {
    throw Error(fmt::format("--mount: target '{}' must not be the root directory", mount_.target));
  }
}

}  // namespace

Mount parse_mount(std::string_view text, const Expand& expand) { return MountReader(expand).read(text); }

}  // namespace adaptdl::image
