// The part of Delaunay that is linked with Qhull. It is a separate shared library, which is embedded in the command and
// loaded when points are first triangulated.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "simulator/delaunay.h"

// Sets `tetrahedra` to the corners of each tetrahedron, as indices into `points`. Returns Qhull's exit code: 0 if it
// succeeded, or kFlat if the points do not span a volume.
extern "C" [[gnu::visibility("default")]] int adaptdl_find_tetrahedra(const std::vector<adaptdl::sched::Point3>& points,
                                                                      std::vector<std::array<int, 4>>& tetrahedra);

namespace adaptdl::sched {

inline constexpr int kFlat = 2;                    // qh_ERRsingular
extern const std::string_view kTetrahedraLibrary;  // the library's bytes

}  // namespace adaptdl::sched
