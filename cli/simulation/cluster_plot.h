// The picture of a cluster over time: a row a GPU, grouped by node, a hue an application, a shade a job; below it how
// many jobs run and wait. An SVG that is legible on light and dark backgrounds.
//
// What is narrower than a pixel is left out, and equal neighbours are one shape, so that long traces of large clusters
// stay small files. Pure functions.
#pragma once

#include <string>

#include "simulation/timeline.h"

namespace adaptdl::cli {

// `title`: empty for the workload's and the policy's names.
std::string cluster_plot(const Timeline& timeline, const std::string& title);

}  // namespace adaptdl::cli
