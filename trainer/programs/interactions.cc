#include "interactions.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "adaptdl/error.h"
#include "adaptdl/torch/sample_generator.h"

namespace programs {

namespace {

struct Rating {
  std::int64_t user = 0, item = 0, time = 0;
};

constexpr double kMaxInteger = 9007199254740992;  // 2^53: larger numbers are not exact

std::optional<Rating> parse(std::string_view line) {
  std::array<double, 4> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), numbers[i]);
    if (error != std::errc()) return {};
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    while (!line.empty() && (line.front() == ':' || line.front() == '\t')) line.remove_prefix(1);
  }
  if (!line.empty() && line != "\r") return {};
  if (!std::ranges::all_of(numbers, [](double number) { return std::abs(number) <= kMaxInteger; })) return {};
  const auto whole = [](double number) { return static_cast<std::int64_t>(number); };
  return Rating{whole(numbers[0]), whole(numbers[1]), whole(numbers[3])};
}

std::vector<Rating> read_ratings(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || (!std::getline(file, line) && !file.eof())) {
    throw adaptdl::UsageError(
        fmt::format("cannot read ratings from '{}' (--data): {}", path, std::strerror(file ? EISDIR : errno)));
  }
  std::vector<Rating> ratings;
  do {
    const auto rating = parse(line);
    if (!rating) {
      throw adaptdl::Error(
          fmt::format("{}:{}: invalid rating: expected user, item, rating and time, separated by :: or a tab", path,
                      ratings.size() + 1));
    }
    ratings.push_back(*rating);
  } while (std::getline(file, line));
  return ratings;
}

// Numbers users and items, and holds out each user's latest choice.
Interactions index(const std::vector<Rating>& ratings) {
  std::map<std::int64_t, std::size_t> choices, latest;  // by user in the file: number of choices, index of the latest
  for (std::size_t i = 0; i < ratings.size(); ++i) {
    ++choices[ratings[i].user];
    const auto [last, first] = latest.try_emplace(ratings[i].user, i);
    if (!first && ratings[i].time >= ratings[last->second].time) last->second = i;
  }
  Interactions result;
  std::map<std::int64_t, std::int64_t> users, items;
  for (const auto& rating : ratings) {
    if (choices.at(rating.user) < 2) continue;
    users.try_emplace(rating.user, static_cast<std::int64_t>(users.size()));
    items.try_emplace(rating.item, static_cast<std::int64_t>(items.size()));
  }
  result.users = static_cast<std::int64_t>(users.size());
  result.items = static_cast<std::int64_t>(items.size());
  result.held_out.resize(users.size());
  for (std::size_t i = 0; i < ratings.size(); ++i) {
    const auto known = users.find(ratings[i].user);
    if (known == users.end()) continue;
    const auto user = known->second, item = items.at(ratings[i].item);
    result.chosen.insert(user * result.items + item);
    if (latest.at(ratings[i].user) == i) {
      result.held_out[static_cast<std::size_t>(user)] = item;
    } else {
      result.user.push_back(user);
      result.item.push_back(item);
    }
  }
  return result;
}

// Draws items that `user` did not choose.
class Negatives {
 public:
  Negatives(const Interactions& interactions, std::int64_t user, at::Generator generator)
      : interactions_(interactions), user_(user), generator_(std::move(generator)) {}
  std::int64_t next() {
    for (;;) {
      if (at_ == 0) drawn_ = torch::randint(interactions_.items, {kDraws}, generator_, torch::kLong);
      const auto item = drawn_.data_ptr<std::int64_t>()[at_];
      at_ = (at_ + 1) % kDraws;
      if (!interactions_.has(user_, item)) return item;
    }
  }

 private:
  static constexpr std::int64_t kDraws = 8;
  const Interactions& interactions_;
  std::int64_t user_;
  at::Generator generator_;
  torch::Tensor drawn_;
  std::int64_t at_ = 0;
};

}  // namespace

Interactions Interactions::read(const std::string& path) {
  auto result = index(read_ratings(path));
  std::vector<std::int64_t> choices(static_cast<std::size_t>(result.users), 1);
  for (const auto user : result.user) ++choices[static_cast<std::size_t>(user)];
  for (const auto count : choices) {
    if (count >= result.items)
      throw adaptdl::Error(
          fmt::format("--data '{}': a user chose every item, so no item is left as a negative example", path));
  }
  if (result.users == 0) throw adaptdl::Error(fmt::format("--data '{}': no user chose two items", path));
  return result;
}

Interactions Interactions::generate(std::uint64_t seed) {
  constexpr std::int64_t kUsers = 800, kItems = 400, kTastes = 6, kChoices = 25;
  auto generator = at::detail::createCPUGenerator(seed);
  const auto users = torch::randn({kUsers, kTastes}, generator), items = torch::randn({kItems, kTastes}, generator);
  // After Gumbel noise is added to the affinities, the top items are a sample without replacement.
  const auto noise = -(-torch::rand({kUsers, kItems}, generator).clamp_min(1e-12).log()).log();
  const auto choices = std::get<1>((1.5 * users.mm(items.t()) + noise).topk(kChoices, 1));
  const auto order = torch::randperm(kChoices, generator);
  std::vector<Rating> ratings;
  for (std::int64_t user = 0; user < kUsers; ++user) {
    for (std::int64_t time = 0; time < kChoices; ++time) {
      const auto choice = order[(time + user) % kChoices];
      ratings.push_back({user, choices[user][choice].item<std::int64_t>(), time});
    }
  }
  return index(ratings);
}

torch::data::Example<> RatedPairs::get_batch(c10::ArrayRef<std::size_t> indices) const {
  const auto count = static_cast<std::int64_t>(indices.size());
  auto data = torch::empty({count, 2}, torch::kLong), target = torch::zeros({count});
  auto* out = data.data_ptr<std::int64_t>();
  const auto group = static_cast<std::size_t>(negatives_ + 1);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = indices[static_cast<std::size_t>(i)];
    const auto user = interactions_->user[index / group];
    *out++ = user;
    if (index % group == 0) {
      *out++ = interactions_->item[index / group];
      target[i] = 1;
    } else {
      *out++ = Negatives(*interactions_, user, adaptdl::sample_generator(index)).next();
    }
  }
  return {data, target};
}

torch::Tensor RankedItems::get_batch(c10::ArrayRef<std::size_t> users) const {
  auto data = torch::empty({static_cast<std::int64_t>(users.size()), kCandidates, 2}, torch::kLong);
  auto* out = data.data_ptr<std::int64_t>();
  for (const auto index : users) {
    const auto user = static_cast<std::int64_t>(index);
    Negatives negatives(*interactions_, user, at::detail::createCPUGenerator(index));
    for (std::int64_t candidate = 0; candidate < kCandidates; ++candidate) {
      *out++ = user;
      *out++ = candidate == 0 ? interactions_->held_out[index] : negatives.next();
    }
  }
  return data;
}

}  // namespace programs
