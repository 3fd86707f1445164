// Draws a cluster over time as an SVG that is legible on light and dark backgrounds: one row per GPU, grouped by node,
// with one hue per application and one shade per job. A panel below shows how many jobs are running and how many are
// waiting.
//
// Shapes narrower than a pixel are left out, and equal adjacent shapes are merged, so that files for long traces of
// large clusters stay small.
#pragma once

#include <string>

#include "simulation/timeline.h"

namespace adaptdl::cli {

// If `title` is empty, the names of the workload and the policy are used.
std::string cluster_plot(const Timeline& timeline, const std::string& title);

}  // namespace adaptdl::cli
