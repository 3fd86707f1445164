// Copies files and directories between this machine and a shell in a cluster.
//
// Files are compared by a checksum (sum.h, agent.h) if the remote end can compute one, and replace existing ones only
// when they are complete. After a broken connection the copy reconnects and continues: a file at the byte, a directory
// at the byte of its archive (download) or with the interrupted pack (upload). Only some pieces are held in memory.
//
// Targets follow cp's rule: an existing directory receives the source under its own name, anything else is the copy's
// name. A source that ends in "/." means the contents of that directory.
//
// Threading: each call belongs to one thread and uses threads of its own. Throws Error; Interrupted after a stop.
#pragma once

#include <string>

#include "kube/copy/events.h"
#include "kube/copy/shell.h"

namespace adaptdl::kube {

void download(Shell& shell, const std::string& source, const std::string& target, const CopyEvents& events);
void upload(Shell& shell, const std::string& source, const std::string& target, const CopyEvents& events);

// Writes a file's bytes, or a directory as a tar archive, to a descriptor.
void download_stream(Shell& shell, const std::string& source, int to, const CopyEvents& events);
// Writes a descriptor's bytes to a file, or unpacks them as a tar archive if the target is an existing directory.
void upload_stream(Shell& shell, int from, const std::string& target, const CopyEvents& events);

}  // namespace adaptdl::kube
