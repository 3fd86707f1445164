// What most unit tests of the trainer include, compiled once per test program.
#pragma once

#include <doctest/doctest.h>
#include <torch/torch.h>

#include <nlohmann/json.hpp>
