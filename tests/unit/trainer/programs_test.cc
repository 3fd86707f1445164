// Tests the parts of the training programs below main: data formats, generated data, and nets.
#include <torch/torch.h>

#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "adaptdl/error.h"
#include "cifar_dataset.h"
#include "interactions.h"
#include "models/image_model.h"
#include "temporary_directory.h"
#include "text.h"

// Included after LibTorch, whose glog also defines CHECK.
#include <doctest/doctest.h>

#include "error_of.h"

namespace programs_test {

namespace {

using programs::CifarDataset;
using programs::Interactions;
using programs::TextLevel;
using programs::Vocabulary;
using testing::TemporaryDirectory;
using Tokens = std::vector<std::string>;
using ::testing::error_of;
using ::testing::says;

void write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

std::vector<std::size_t> first(std::size_t count) {
  std::vector<std::size_t> indices(count);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  return indices;
}

// Returns a record in CIFAR-10's binary format whose pixels encode their position: (y, x) is 7y + 1 in red, 7x + 1 in
// green and y + x in blue.
std::string record(int label) {
  std::string bytes(1, static_cast<char>(label));
  for (int pixel = 0; pixel < 32 * 32; ++pixel) bytes += static_cast<char>(7 * (pixel / 32) + 1);
  for (int pixel = 0; pixel < 32 * 32; ++pixel) bytes += static_cast<char>(7 * (pixel % 32) + 1);
  for (int pixel = 0; pixel < 32 * 32; ++pixel) bytes += static_cast<char>(pixel / 32 + pixel % 32);
  return bytes;
}

}  // namespace

TEST_CASE("CIFAR-10's binary format is read color plane by color plane, from all files in order") {
  const TemporaryDirectory directory;
  write(directory.path() / "data_batch_2.bin", record(9));
  write(directory.path() / "data_batch_1.bin", record(3) + record(4));
  write(directory.path() / "test_batch.bin", record(5));
  const auto training = CifarDataset::read(directory.path(), "train"),
             test = CifarDataset::read(directory.path(), "test");
  CHECK(training.labels().equal(torch::tensor({3, 4, 9})));
  CHECK(test.size() == 1);
  CHECK(training.images().sizes() == std::vector<std::int64_t>{3, 3, 32, 32});
  CHECK(training.images()[1][2][7][20].item<int>() == 27);
  const auto batch = training.get_batch(std::vector<std::size_t>{2, 0});
  CHECK(batch.target.equal(torch::tensor({9, 3})));
  CHECK(batch.data[1][1][7][20].item<double>() == doctest::Approx((141 / 255.0 - 0.4822) / 0.2435));
}

TEST_CASE("errors name the option for missing images and the file for damaged ones") {
  const TemporaryDirectory directory;
  const auto read = [&] { CifarDataset::read(directory.path(), "train"); };
  CHECK(says(error_of<adaptdl::UsageError>(read), "--data"));
  write(directory.path() / "data_batch_1.bin", record(3).substr(1));
  CHECK(says(error_of(read), "data_batch_1.bin' is damaged"));
  write(directory.path() / "data_batch_1.bin", record(10));
  CHECK(says(error_of(read), "a label above 9"));
}

TEST_CASE("augmentation shifts images by up to 4 pixels and mirrors them, reproducibly per index") {
  const TemporaryDirectory directory;
  constexpr std::size_t kImages = 500;
  std::string records;
  for (std::size_t i = 0; i < kImages; ++i) records += record(0);
  write(directory.path() / "data_batch_1.bin", records);
  auto dataset = CifarDataset::read(directory.path(), "train");
  const auto images = dataset.augment().get_batch(first(kImages)).data;
  CHECK(dataset.get_batch(std::vector<std::size_t>{7}).data[0].equal(images[7]));
  const auto deviations = torch::tensor({0.247, 0.2435, 0.2616}).view({3, 1, 1});
  const auto means = torch::tensor({0.4914, 0.4822, 0.4465}).view({3, 1, 1});
  const auto bytes = ((images * deviations + means) * 255).round().to(torch::kLong);
  std::set<std::int64_t> downs, rights, mirrors;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(kImages); ++i) {
    const auto at = [&](int channel, int y, int x) { return bytes[i][channel][y][x].item<std::int64_t>(); };
    const bool mirrored = at(1, 16, 17) < at(1, 16, 16);
    const auto down = (at(0, 16, 16) - 1) / 7 - 16, right = (at(1, 16, 16) - 1) / 7 - (mirrored ? 15 : 16);
    downs.insert(down), rights.insert(right), mirrors.insert(mirrored);
    CHECK((at(0, 0, 16) == 0) == (down < 0));  // black outside of the image
    CHECK((at(0, 31, 16) == 0) == (down > 0));
    CHECK(at(2, 16, 16) == 16 + down + right + (mirrored ? 15 : 16));
  }
  const std::set<std::int64_t> all = {-4, -3, -2, -1, 0, 1, 2, 3, 4};
  CHECK(downs == all);
  CHECK(rights == all);
  CHECK(mirrors.size() == 2);
}

TEST_CASE("generated images depend only on the seed, have balanced classes, and defeat a nearest-mean classifier" *
          doctest::test_suite("slow")) {
  const auto images = CifarDataset::generate(2000, 3);
  CHECK(images.images().equal(CifarDataset::generate(2000, 3).images()));
  CHECK_FALSE(images.images().equal(CifarDataset::generate(2000, 4).images()));
  CHECK(images.labels().bincount().equal(torch::full(10, 200, torch::kLong)));
  // Colours and positions do not depend on the class, so class means do not help: the shapes must be learned.
  const auto flat = images.images().to(torch::kFloat).flatten(1);
  std::vector<torch::Tensor> means;
  for (int label = 0; label < 10; ++label) means.push_back(flat.index({images.labels() == label}).mean(0));
  const auto others = CifarDataset::generate(1000, 5);
  const auto nearest = torch::cdist(others.images().to(torch::kFloat).flatten(1), torch::stack(means)).argmin(1);
  CHECK(nearest.eq(others.labels()).to(torch::kFloat).mean().item<double>() < 0.2);
}

TEST_CASE("the nets have their published sizes and ten outputs" * doctest::test_suite("slow")) {
  const std::map<std::string, std::int64_t> sizes = {
      {"lenet", 62006},         {"resnet18", 11173962},       {"resnet34", 21282122},
      {"resnet50", 23520842},   {"preactresnet18", 11172170}, {"mobilenetv2", 2236682},
      {"densenet121", 6956298}, {"vgg16", 14724042}};
  torch::NoGradGuard no_grad;
  for (const auto& name : programs::image_models()) {
    CAPTURE(name);
    const auto net = programs::make_image_model(name);
    std::int64_t parameters = 0;
    for (const auto& parameter : net->parameters()) parameters += parameter.numel();
    if (sizes.contains(name)) CHECK(parameters == sizes.at(name));
    CHECK(net->forward(torch::randn({2, 3, 32, 32})).sizes() == std::vector<std::int64_t>{2, 10});
  }
  CHECK(says(error_of<adaptdl::UsageError>([] { programs::make_image_model("alexnet"); }), "lenet, vgg16"));
}

TEST_CASE("ratings are read with either separator, and each user's latest item is held out") {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "ratings.dat";
  for (const std::string separator : {"::", "\t"}) {
    std::string text;
    for (const char* line : {"7 100 5 30", "7 200 3 50", "7 300 4 40", "9 100 1 10", "8 100 2 1", "8 400 2 2"}) {
      for (const char c : std::string(line)) c == ' ' ? text += separator : text += c;
      text += '\n';
    }
    write(path, text);
    const auto read = Interactions::read(path);
    CHECK(read.users == 2);  // a user with a single interaction is left out
    CHECK(read.items == 4);
    CHECK(read.held_out == std::vector<std::int64_t>{1, 3});
    CHECK(read.user == std::vector<std::int64_t>{0, 0, 1});
    CHECK(read.item == std::vector<std::int64_t>{0, 2, 0});
    CHECK(read.has(0, 1));
    CHECK_FALSE(read.has(0, 3));
  }
  CHECK(says(error_of<adaptdl::UsageError>([] { Interactions::read("/nowhere/ratings.dat"); }),
             "from '/nowhere/ratings.dat' (--data)"));
  write(path, "1::2::3::4\n1::2\n");
  CHECK(says(error_of([&] { Interactions::read(path); }), "ratings.dat:2"));
  for (const char* number : {"nan", "inf", "1e300"}) {
    write(path, std::string("1::") + number + "::3::4\n");
    CHECK(says(error_of([&] { Interactions::read(path); }), "ratings.dat:1"));
  }
}

TEST_CASE("negative samples exclude chosen items, and the held-out item is ranked among 99 others") {
  const auto data = std::make_shared<const Interactions>(Interactions::generate(1));
  CHECK(data->users == 800);
  CHECK(data->user.size() == 800 * 24);
  const programs::RatedPairs pairs(data, 4);
  REQUIRE(pairs.size() == 5 * data->user.size());
  const auto batch = pairs.get_batch(first(2000));
  for (std::int64_t i = 0; i < 2000; ++i) {
    const auto user = batch.data[i][0].item<std::int64_t>(), item = batch.data[i][1].item<std::int64_t>();
    CHECK(user == data->user[static_cast<std::size_t>(i / 5)]);
    CHECK(data->has(user, item) == (i % 5 == 0));
    CHECK(batch.target[i].item<float>() == (i % 5 == 0 ? 1 : 0));
  }
  const auto ranked = programs::RankedItems(data).get_batch(std::vector<std::size_t>{4, 799});
  CHECK(ranked.sizes() == std::vector<std::int64_t>{2, 100, 2});
  for (std::int64_t i = 0; i < 100; ++i) {
    const auto item = ranked[1][i][1].item<std::int64_t>();
    CHECK(ranked[1][i][0].item<std::int64_t>() == 799);
    CHECK((i == 0 ? item == data->held_out[799] : !data->has(799, item)));
  }
}

TEST_CASE("a text is split into words or whole characters") {
  const TemporaryDirectory directory;
  const auto path = directory.path() / "text";
  write(path, "Don't go,\nsaid Zoë.");
  CHECK(programs::read_tokens(path, TextLevel::kWord) ==
        Tokens{"don't", "go", ",", "<eos>", "said", "zo\xc3\xab", "."});
  const auto characters = programs::read_tokens(path, TextLevel::kCharacter);
  CHECK(characters.size() == 19);
  CHECK(characters[17] == "\xc3\xab");
  write(path, "");
  CHECK(says(error_of<adaptdl::UsageError>([&] { programs::read_tokens(path, TextLevel::kWord); }), "is empty"));
  for (const std::string missing : {"/nowhere/text", "/"}) {
    const auto error = error_of<adaptdl::UsageError>([&] { programs::read_tokens(missing, TextLevel::kWord); });
    CHECK(says(error, "'" + missing + "' (--data)"));
  }
}

TEST_CASE("a vocabulary numbers the reserved tokens first, then the most frequent tokens or the tokens of a file") {
  const Tokens tokens = {"b", "a", "c", "a", "b", "a", "d"};
  const auto vocabulary = Vocabulary::of(tokens, {"<unk>", "<mask>"}, 3);
  CHECK(vocabulary.size() == 5);
  CHECK(vocabulary.ids(tokens).equal(torch::tensor({3, 2, 4, 2, 3, 2, 0})));
  CHECK(vocabulary.token(4) == "c");
  const TemporaryDirectory directory;
  write(directory.path() / "words", "b\nc\n\nb\n");
  const auto read = Vocabulary::read(directory.path() / "words", "--vocab", {"<unk>"});
  CHECK(read.size() == 3);
  CHECK(read.id("c") == 2);
  CHECK(says(error_of<adaptdl::UsageError>([] { Vocabulary::read("/nowhere/words", "--vocab", {}); }), "--vocab"));
}

}  // namespace programs_test
