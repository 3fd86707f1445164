// Unpacks an untrusted tar archive into a directory of this machine.
//
// Nothing is written outside that directory, whatever the archive contains. Absolute names, names with "..", paths
// through a link, and hard links to files that the archive did not contain are errors; devices, pipes and sockets are
// left out. Each part of a name is opened below the previous one and never through a link, so this holds even while
// others change the directory. Links are kept as they are and never followed.
//
// A file gets its name when it is complete, so an existing one is whole at any time. Modes (except set-user-ID and
// set-group-ID), times, links, hard links and empty directories are kept; owners are not.
//
// Threading: used by one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// Returns the next piece of the archive; empty at its end.
using Pull = std::function<std::string_view()>;

// Returns the number of entries. `notice` receives a line for each entry that is left out. Throws an Error that names
// the entry, and what `pull` throws.
std::uint64_t unpack(const Pull& pull, const std::filesystem::path& directory,
                     const std::function<void(const std::string&)>& notice);

}  // namespace adaptdl::kube
