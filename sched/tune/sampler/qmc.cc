#include "tune/sampler/qmc.h"

#include <array>
#include <bit>

#include "tune/sampler/parameter_draw.h"
#include "tune/sampler/sobol_directions.h"
#include "tune/study/random_bits.h"

namespace adaptdl::sched::tune {
namespace {

static_assert(kSobolDirections.size() == QmcSampler::kDimensions);
constexpr int kBits = 32;

// Returns the first 32 binary digits of a coordinate. The recurrence of the direction numbers, and the order of the
// points by Gray code, are those of Bratley and Fox, "Algorithm 659", ACM Transactions on Mathematical Software 14,
// 1988.
std::uint32_t digits(const SobolDirections& row, std::uint32_t point) {
  const int degree = std::bit_width(row.polynomial) - 1;
  std::array<std::uint32_t, kBits> directions{};
  for (int i = 0; i < kBits; ++i) {
    std::uint32_t& direction = directions[static_cast<std::size_t>(i)];
    if (degree == 0 || i < degree) {
      const std::uint32_t initial = degree == 0 ? 1 : row.initial[static_cast<std::size_t>(i)];
      direction = initial << (kBits - 1 - i);
      continue;
    }
    const auto before = [&](int distance) { return directions[static_cast<std::size_t>(i - distance)]; };
    direction = before(degree) ^ (before(degree) >> degree);
    for (int k = 1; k < degree; ++k)
      if ((row.polynomial >> (degree - k)) & 1) direction ^= before(k);
  }
  const std::uint32_t gray = point ^ (point >> 1);
  std::uint32_t sum = 0;
  for (int i = 0; i < kBits; ++i)
    if ((gray >> i) & 1) sum ^= directions[static_cast<std::size_t>(i)];
  return sum;
}

}  // namespace

double sobol(std::size_t dimension, std::uint32_t point) {
  return static_cast<double>(digits(kSobolDirections.at(dimension), point)) * 0x1p-32;
}

// Each digit becomes a random linear function of itself and the digits before it, and is then flipped at random (Jiri
// Matousek, "On the L2-discrepancy for anchored boxes", 1998); SciPy does the same. The digits after the 32nd, which
// are zeros, become random in this way.
double scrambled_sobol(std::size_t dimension, std::uint32_t point, std::uint64_t seed) {
  const std::uint64_t plain = std::uint64_t{digits(kSobolDirections.at(dimension), point)} << (53 - kBits);
  std::uint64_t scrambled = 0;
  for (int bit = 52; bit >= 0; --bit) {
    RandomBits random({seed, dimension, static_cast<std::uint64_t>(bit)});
    const std::uint64_t before = random.next() & (plain >> bit >> 1), shift = random.next() & 1;
    const auto flip = (static_cast<std::uint64_t>(std::popcount(before)) & 1) ^ shift;
    scrambled = scrambled << 1 | (((plain >> bit) & 1) ^ flip);
  }
  return static_cast<double>(scrambled) * 0x1p-53;
}

std::optional<Values> QmcSampler::sample(const Space& space, const Study&, int number, const Values& given) {
  const auto point = static_cast<std::uint32_t>(number);
  RandomBits random({seed_, point});
  return draw_parameters(space, given, [&](const Parameter& parameter, std::size_t index) {
    return value_at(parameter.distribution, index < kDimensions ? scrambled_sobol(index, point, seed_) : random.unit());
  });
}

}  // namespace adaptdl::sched::tune
