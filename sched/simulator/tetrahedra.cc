#include "simulator/tetrahedra.h"

#include <cstdio>
#include <cstdlib>
#include <new>

extern "C" {
#include <libqhull_r/qhull_ra.h>
}

namespace adaptdl::sched {
namespace {

// Collects Qhull's messages in memory, to keep them off the user's terminal.
class Messages {
 public:
  Messages() : file_(open_memstream(&text_, &size_)) {
    if (!file_) throw std::bad_alloc();
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  ~Messages() {
    std::fclose(file_);
    std::free(text_);
  }
  std::FILE* file() const { return file_; }

 private:
  char* text_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

class Qhull {
 public:
  Qhull(std::vector<Point3>& points, std::FILE* messages) {
    QHULL_LIB_CHECK
    qh_zero(&state_, messages);
    // Points on a grid are cospherical, which requires triangulated output (Qt) with a point at infinity (Qz). The
    // other options are the ones that SciPy's interpolation uses, so that the tetrahedra are the same.
    char command[] = "qhull d Qt Qbb Qc Qz Q12";
    exit_code_ = qh_new_qhull(&state_, 3, static_cast<int>(points.size()), points.front().data(), False, command,
                              nullptr, messages);
  }
  Qhull(const Qhull&) = delete;
  Qhull& operator=(const Qhull&) = delete;
  ~Qhull() {
    qh_freeqhull(&state_, !qh_ALL);
    int remaining_bytes = 0, remaining_blocks = 0;
    qh_memfreeshort(&state_, &remaining_bytes, &remaining_blocks);
  }
  int exit_code() const { return exit_code_; }

  // Returns the corners of each facet of the lower hull of the points lifted to a paraboloid.
  std::vector<std::array<int, 4>> tetrahedra() {
    std::vector<std::array<int, 4>> result;
    for (const facetT* facet = state_.facet_list; facet && facet->next; facet = facet->next) {
      if (facet->upperdelaunay) continue;
      std::array<int, 4> corners{};
      for (std::size_t i = 0; i < corners.size(); ++i) {
        const auto* vertex = static_cast<const vertexT*>(facet->vertices->e[i].p);
        corners[i] = qh_pointid(&state_, vertex->point);
      }
      result.push_back(corners);
    }
    return result;
  }

 private:
  qhT state_;
  int exit_code_ = 0;
};

}  // namespace
}  // namespace adaptdl::sched

int adaptdl_find_tetrahedra(const std::vector<adaptdl::sched::Point3>& points,
                            std::vector<std::array<int, 4>>& tetrahedra) {
  using namespace adaptdl::sched;
  static_assert(kFlat == qh_ERRsingular && qh_ERRnone == 0);
  std::vector<Point3> copy = points;
  const Messages messages;
  Qhull qhull(copy, messages.file());
  if (qhull.exit_code() == qh_ERRnone) tetrahedra = qhull.tetrahedra();
  return qhull.exit_code();
}
