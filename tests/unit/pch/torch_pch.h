// The headers that most unit tests of the trainer include, compiled once per test program. LibTorch also defines CHECK;
// doctest is included last, so that its definition replaces LibTorch's.
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include <doctest/doctest.h>
