// What most unit tests of the trainer include, compiled once per test program. LibTorch defines a CHECK of its own, which
// doctest's, being last, replaces.
#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include <doctest/doctest.h>
