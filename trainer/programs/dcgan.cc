// Learns to draw images like those of a dataset, with a DCGAN (Radford et al., 2016,
// https://arxiv.org/abs/1511.06434): two networks that are trained against each other, each with its own
// AdaptiveDataParallel.
#include <adaptdl/error.h>
#include <adaptdl/torch.h>
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cifar_dataset.h"
#include "idx_dataset.h"
#include "training.h"

namespace nn = torch::nn;

constexpr int64_t kLatent = 64;

struct DcganOptions {
  int64_t size = 16;   // side of an image in pixels
  int64_t width = 32;  // channels in the layers with the largest images
  std::string sheet = "dcgan-samples.pgm";
};

// Images in [-1, 1], each with the noise that the generator turns into an image. The noise differs in each pass.
class ImagesAndNoise {
 public:
  ImagesAndNoise(const torch::Tensor& images, int64_t size)
      : images_(nn::functional::interpolate(images, nn::functional::InterpolateFuncOptions()
                                                        .size(std::vector<int64_t>{size, size})
                                                        .mode(torch::kBilinear)
                                                        .align_corners(false)) *
                    2 -
                1) {}

  torch::data::Example<> get_batch(c10::ArrayRef<std::size_t> indices) const {
    std::vector<torch::Tensor> images, noise;
    for (const auto index : indices) {
      images.push_back(images_[static_cast<int64_t>(index)]);
      noise.push_back(torch::randn({kLatent, 1, 1}, adaptdl::sample_generator(index)));
    }
    return {torch::stack(images), torch::stack(noise)};
  }
  std::size_t size() const { return static_cast<std::size_t>(images_.size(0)); }
  int64_t channels() const { return images_.size(1); }

 private:
  torch::Tensor images_;
};

ImagesAndNoise read_images(const std::string& directory, int64_t size) {
  if (std::filesystem::exists(directory + "/data_batch_1.bin"))
    return {programs::CifarDataset::read(directory, "train").images().to(torch::kFloat) / 255, size};
  return {programs::IdxDataset(directory, "train").images(), size};
}

void normal_weights(const nn::Sequential& net) {
  torch::NoGradGuard no_grad;
  for (auto& parameter : net->parameters()) {
    if (parameter.dim() == 4) parameter.normal_(0, 0.02);
  }
}

// Creates a network that expands noise from 1 x 1 to 4 x 4 pixels, and then doubles the size with each layer.
nn::Sequential make_generator(int64_t channels, const DcganOptions& own) {
  nn::Sequential net;
  const auto grow = [&](int64_t in, int64_t out, int64_t stride, int64_t padding) {
    net->push_back(
        nn::ConvTranspose2d(nn::ConvTranspose2dOptions(in, out, 4).stride(stride).padding(padding).bias(false)));
  };
  auto width = own.width * own.size / 8;
  grow(kLatent, width, 1, 0);
  for (int64_t side = 4; side < own.size; side *= 2, width /= 2) {
    net->push_back(nn::BatchNorm2d(width));
    net->push_back(nn::ReLU());
    grow(width, 2 * side == own.size ? channels : width / 2, 2, 1);
  }
  net->push_back(nn::Tanh());
  normal_weights(net);
  return net;
}

// Creates a network that reduces an image to one number, the log-odds that the image is real.
nn::Sequential make_discriminator(int64_t channels, const DcganOptions& own) {
  nn::Sequential net;
  auto in = channels, width = own.width;
  for (auto side = own.size; side > 4; side /= 2, in = width, width *= 2) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(in, width, 4).stride(2).padding(1).bias(false)));
    if (side < own.size) net->push_back(nn::BatchNorm2d(width));
    net->push_back(nn::LeakyReLU(nn::LeakyReLUOptions().negative_slope(0.2)));
  }
  net->push_back(nn::Conv2d(nn::Conv2dOptions(in, 1, 4).bias(false)));
  net->push_back(nn::Flatten(nn::FlattenOptions().start_dim(0)));
  normal_weights(net);
  return net;
}

// Writes a grid of 8 x 8 images to a file in PGM or PPM format.
void write_sheet(const std::string& path, nn::Sequential& generator, torch::Device device) {
  generator->eval();
  torch::NoGradGuard no_grad;
  const auto noise = torch::randn({64, kLatent, 1, 1}, adaptdl::sample_generator(0)).to(device);
  const auto images = ((generator->forward(noise).cpu() + 1) * 127.5).to(torch::kByte);
  const auto channels = images.size(1), side = 8 * images.size(2);
  const auto sheet = images.view({8, 8, channels, side / 8, side / 8}).permute({0, 3, 1, 4, 2}).contiguous();
  std::ofstream file(path, std::ios::binary);
  file << fmt::format("P{}\n{} {}\n255\n", channels == 1 ? 5 : 6, side, side);
  file.write(static_cast<const char*>(sheet.data_ptr()), sheet.numel());
  if (!file.flush())
    throw adaptdl::Error(fmt::format("cannot write to '{}' (--sheet): {}", path, std::strerror(errno)));
}

void train_dcgan(const programs::Options& options, const DcganOptions& own) {
  torch::manual_seed(options.seed);
  const auto device = adaptdl::replica_device();
  const auto images = read_images(options.data, own.size);
  auto g_net = make_generator(images.channels(), own), d_net = make_discriminator(images.channels(), own);
  g_net->to(device), d_net->to(device);
  const programs::OptimizerSettings settings{.betas = {0.5, 0.999}};
  auto g_optimizer = programs::make_optimizer(g_net->parameters(), options, settings);
  auto d_optimizer = programs::make_optimizer(d_net->parameters(), options, settings);

  adaptdl::init_process_group();
  adaptdl::AdaptiveDataParallel generator(g_net, *g_optimizer,
                                          {.name = "generator", .stop_on_nan = options.stop_on_nan});
  adaptdl::AdaptiveDataParallel discriminator(d_net, *d_optimizer,
                                              {.name = "discriminator", .stop_on_nan = options.stop_on_nan});
  adaptdl::AdaptiveDataLoader loader(
      images, {.batch_size = options.batch_size, .shuffle = true, .drop_last = true, .seed = options.seed});
  programs::autoscale(loader, options);
  programs::Reporter reporter(options);

  for (int epoch : adaptdl::remaining_epochs_until(options.epochs)) {
    programs::Timer timer;
    adaptdl::Accumulator stats;
    for (auto& batch : loader) {
      const auto real = batch.data.to(device), noise = batch.target.to(device);
      const auto yes = torch::ones({real.size(0)}, device), no = torch::zeros({real.size(0)}, device);

      // The generator must create images that the discriminator considers real. The discriminator's own gradients are
      // not needed here, so it is called without its wrapper. It is called on the same mixture as below, because it
      // normalizes over the batch.
      g_optimizer->zero_grad();
      const auto fake = generator(noise);
      auto g_loss =
          torch::binary_cross_entropy_with_logits(d_net->forward(torch::cat({real, fake})).slice(0, real.size(0)), yes);
      g_loss.backward();
      g_optimizer->step();

      d_optimizer->zero_grad();
      auto d_loss = torch::binary_cross_entropy_with_logits(discriminator(torch::cat({real, fake.detach()})),
                                                            torch::cat({yes, no}));
      d_loss.backward();
      d_optimizer->step();

      stats += {{"g_loss", g_loss.item<double>()}, {"d_loss", d_loss.item<double>()}, {"steps", 1}};
    }
    auto synchronized = stats.synchronized();
    reporter.report(epoch, loader, discriminator,
                    {{"g_loss", stats["g_loss"] / stats["steps"]},
                     {"d_loss", stats["d_loss"] / stats["steps"]},
                     {"seconds", timer.seconds()}});
  }
  if (adaptdl::env::replica_rank() == 0) write_sheet(own.sheet, g_net, device);
  adaptdl::destroy_process_group();
}

int main(int argc, char** argv) {
  DcganOptions own;
  return programs::run_main(
      argc, argv,
      {.data = programs::sample_data("digits"), .epochs = 10, .batch_size = 64, .optimizer = "adam", .lr = 0.0005},
      [&](const programs::Options& options) { train_dcgan(options, own); },
      [&](CLI::App& app) {
        app.add_option("--size", own.size, "Width and height of an image in pixels")
            ->check(CLI::IsMember({8, 16, 32, 64}))
            ->capture_default_str();
        app.add_option("--width", own.width, "Number of channels in the layers with the largest images")
            ->check(programs::positive())
            ->capture_default_str();
        app.add_option("--sheet", own.sheet, "Output file for 64 generated images, in PGM or PPM format")
            ->capture_default_str();
      });
}
