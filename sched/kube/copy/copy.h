// Copies between this machine and a place in a cluster that runs commands.
//
// Files are compared by a checksum (sum.h, agent.h) where the place can compute one, and take the place of what was
// there when they are complete. A connection that breaks is made again, and the copy goes on where it was: a file at
// the byte, a directory at the byte of its archive (down) or with the piece that was under way (up). Nothing is held in
// memory but some pieces.
//
// What a target stands for is cp's rule: an existing directory gets the source under its own name, anything else is the
// copy's name. A source that ends in "/." is what is in that directory.
//
// Threading: each call is one thread's; it uses threads of its own. Throws Error; Interrupted after a stop.
#pragma once

#include <string>

#include "kube/copy/events.h"
#include "kube/copy/shell.h"

namespace adaptdl::kube {

void download(Shell& shell, const std::string& source, const std::string& target, const CopyEvents& events);
void upload(Shell& shell, const std::string& source, const std::string& target, const CopyEvents& events);

// A file's bytes, or a directory as a tar archive, into a descriptor.
void download_stream(Shell& shell, const std::string& source, int to, const CopyEvents& events);
// A descriptor's bytes, to their end, into a file; into a directory that is there, as a tar archive to be unpacked.
void upload_stream(Shell& shell, int from, const std::string& target, const CopyEvents& events);

}  // namespace adaptdl::kube
