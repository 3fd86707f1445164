#include "command/base/installed_data.h"

#include <system_error>

namespace adaptdl::cli {

namespace fs = std::filesystem;

fs::path installed_data(const fs::path& name) {
  const fs::path wanted = "adaptdl" / name;
  std::error_code error;
  for (fs::path at = fs::read_symlink("/proc/self/exe", error).parent_path(); !error && at.has_relative_path();
       at = at.parent_path()) {
    if (fs::is_directory(at / "share" / wanted, error)) return at / "share" / wanted;
    error.clear();
  }
  const fs::path installed = ADAPTDL_DATADIR / wanted;
  return fs::is_directory(installed, error) ? installed : fs::path();
}

}  // namespace adaptdl::cli
