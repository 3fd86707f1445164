// Unpacks an untrusted tar archive into a local directory.
//
// Nothing is written outside that directory, whatever the archive contains. Absolute names, names with "..", paths
// through a link, and hard links to files that the archive did not contain are errors; devices, pipes and sockets are
// skipped. Each part of a name is opened below the previous one and never through a link, so nothing is written outside
// the directory even while other processes change it. Symbolic links are created as they are and never followed.
//
// A file receives its name only when it is complete, so no name ever refers to an incomplete file. Modes (except
// set-user-ID and set-group-ID), times, links, hard links and empty directories are preserved; owners are not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace adaptdl::kube {

// Returns the next piece of the archive; empty at its end.
using Pull = std::function<std::string_view()>;

// Returns the number of entries. `notice` receives a line for each entry that is skipped. Throws an Error if
// an entry is invalid or cannot be written; the message names that entry. Rethrows what `pull` throws.
std::uint64_t unpack(const Pull& pull, const std::filesystem::path& directory,
                     const std::function<void(const std::string&)>& notice);

}  // namespace adaptdl::kube
