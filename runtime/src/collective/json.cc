#include "collective/json.h"

#include <fmt/core.h>

#include <limits>

namespace adaptdl::collective {

using nlohmann::json;

namespace {

// The parser recurses once per level: without a limit, a few megabytes of brackets would overflow the stack.
constexpr int kMaxDepth = 200;

class DepthCheck final : public nlohmann::json_sax<json> {
 public:
  bool start_object(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool start_array(std::size_t) override { return ++depth_ <= kMaxDepth; }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  bool leave() {
    --depth_;
    return true;
  }
  int depth_ = 0;
};

json sum_of_integers(const json& a, const json& b) {
  __extension__ using Wide = __int128;
  const auto wide = [](const json& value) {
    return value.is_number_unsigned() ? Wide{value.get<std::uint64_t>()} : Wide{value.get<std::int64_t>()};
  };
  const Wide total = wide(a) + wide(b);
  const Wide max_unsigned = std::numeric_limits<std::uint64_t>::max();
  const Wide max_signed = std::numeric_limits<std::int64_t>::max(),
             min_signed = std::numeric_limits<std::int64_t>::min();
  if (total > max_unsigned || total < min_signed)
    throw CollectiveError(fmt::format("the sum of {} and {} exceeds the range of 64-bit integers", a.dump(), b.dump()));
  if (total <= max_signed) return static_cast<std::int64_t>(total);
  return static_cast<std::uint64_t>(total);
}

}  // namespace

Bytes to_bytes(const json& value) {
  Bytes bytes;
  json::to_msgpack(value, bytes);
  return bytes;
}

json from_bytes(const Bytes& bytes) {
  DepthCheck check;
  if (!json::sax_parse(bytes, &check, json::input_format_t::msgpack))
    throw CollectiveError(
        fmt::format("received a value that is not valid JSON or is nested more than {} levels deep ({} bytes)",
                    kMaxDepth, bytes.size()));
  return json::from_msgpack(bytes);
}

json sum(json a, const json& b) {
  if (a.is_number_integer() && b.is_number_integer()) return sum_of_integers(a, b);
  if (a.is_number() && b.is_number()) return a.get<double>() + b.get<double>();
  if (a.is_string() && b.is_string()) {
    a.get_ref<std::string&>() += b.get_ref<const std::string&>();
  } else if (a.is_array() && b.is_array()) {
    a.insert(a.end(), b.begin(), b.end());
  } else if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : b.items()) {
      const auto own = a.find(key);
      if (own == a.end())
        a[key] = value;
      else
        *own = sum(std::move(*own), value);
    }
  } else {
    throw CollectiveError(
        fmt::format("cannot add values of type {} and type {}; pass a reduction", a.type_name(), b.type_name()));
  }
  return a;
}

}  // namespace adaptdl::collective
