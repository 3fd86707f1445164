// Copies files with all that they are: owners, modes, times, links and attributes.
//
// Threading: plain functions.
#pragma once

#include "socket.h"

namespace adaptdl::image {

// Copies what is in an open directory into another. Devices, pipes and sockets are left out; files that are one by hard
// links become several. Throws Error.
void copy_tree(const net::Fd& from, net::Fd to);

}  // namespace adaptdl::image
