#include "kube/api/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/printable.h"

namespace adaptdl::kube {
namespace {

constexpr std::size_t kMaxLabelLength = 63;
constexpr std::size_t kMaxJobNameLength = kMaxLabelLength - std::string_view("-999-99").size();
// The API server's alphabet for generated names; it has no vowels, so that names contain no words.
constexpr std::string_view kAlphabet = "bcdfghjklmnpqrstvwxz2456789";
constexpr std::size_t kDrawn = 5;

bool is_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

std::string why_not(std::string_view name, std::size_t max_length, bool whole) {
  const bool characters = std::ranges::all_of(name, [](char c) { return is_alphanumeric(c) || c == '-'; });
  if (!name.empty() && name.size() <= max_length && characters && name.front() != '-' && (!whole || name.back() != '-'))
    return "";
  return fmt::format(
      "is '{}', but must consist of at most {} lowercase letters, digits and '-', {} with a letter or digit",
      one_line(name, 100), max_length, whole ? "beginning and ending" : "beginning");
}

}  // namespace

std::string not_a_label(std::string_view name) { return why_not(name, kMaxLabelLength, true); }

std::string not_a_job_name(std::string_view name) { return why_not(name, kMaxJobNameLength, true); }

std::string not_a_job_prefix(std::string_view prefix) { return why_not(prefix, kMaxJobNameLength - kDrawn, false); }

std::string generate_name(std::string_view prefix) {
  std::random_device random;
  std::uniform_int_distribution<std::size_t> any(0, kAlphabet.size() - 1);
  std::string name(prefix);
  for (std::size_t i = 0; i < kDrawn; ++i) name += kAlphabet[any(random)];
  return name;
}

std::string make_uuid() {
  std::random_device random;
  std::uniform_int_distribution<int> any(0, 255);
  std::string uuid;
  for (int i = 0; i < 16; ++i) {
    int byte = any(random);
    if (i == 6) byte = (byte & 0x0f) | 0x40;
    if (i == 8) byte = (byte & 0x3f) | 0x80;
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    uuid += fmt::format("{:02x}", byte);
  }
  return uuid;
}

}  // namespace adaptdl::kube
