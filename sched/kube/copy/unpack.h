// Unpacks a tar archive that nobody vouches for into a directory of this machine.
//
// Nothing is written outside that directory, whatever the archive says: a name that is absolute or has "..", a way
// through a link that is not a directory of the target, and a hard link to what the archive did not bring are errors;
// devices, pipes and sockets are left out. Each part of a name is opened below the last and never through a link, so
// this holds too while others change the directory. Links are kept as they are and never followed.
//
// A file takes its name when it is complete, so one that was there is whole at any time. Modes (but the bits that lend
// rights), times, links, hard links and empty directories are kept; owners are not.
//
// Threading: used by one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// The next piece of the archive; nothing: its end.
using Pull = std::function<std::string_view()>;

// Throws Error that names the entry, and what `pull` throws. `notice` gets a line for each entry that is left out.
// Returns how many entries there were.
std::uint64_t unpack(const Pull& pull, const std::filesystem::path& directory,
                     const std::function<void(const std::string&)>& notice);

}  // namespace adaptdl::kube
