// Copies files and directories between this machine and a shell in a cluster.
//
// Each copied file is verified with a checksum (sum.h, copier.h) if the remote end can compute one. A copied file
// replaces an existing file only when the copy is complete. If the connection breaks, the copy reconnects and
// continues: a file at the next byte, a directory at the next byte of its archive (download) or with the interrupted
// pack (upload). Only a few pieces of the data are in memory at any time.
//
// Targets follow cp's rules: if the target is an existing directory, the source is copied into it under its own name;
// any other target is the name of the copy. A source that ends in "/." stands for the directory's contents.
//
// All functions throw Error, and Interrupted after a stop request. They use threads of their own.
#pragma once

#include <string>

#include "kube/copy/events.h"
#include "kube/copy/shell.h"

namespace adaptdl::kube {

void download(Shell& shell, const std::string& source, const std::string& target, const CopyEvents& events);
void upload(Shell& shell, const std::string& source, const std::string& target, const CopyEvents& events);

// An open file descriptor of this machine, which the caller closes.
struct Stream {
  int descriptor;
  std::string name;  // in errors, such as "standard output"
};

// Writes a file's bytes, or a directory as a tar archive, to a stream.
void download_stream(Shell& shell, const std::string& source, const Stream& to, const CopyEvents& events);
// Writes a stream's bytes to a file, or unpacks them as a tar archive if the target is an existing directory.
void upload_stream(Shell& shell, const Stream& from, const std::string& target, const CopyEvents& events);

}  // namespace adaptdl::kube
