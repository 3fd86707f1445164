// Gloo's transport, with connections that only the job's replicas can establish.
//
// Gloo's own device accepts the first process that connects to a pair's port as the other replica. Here, pairs use
// connections made by accept_ranks() and connect_as(). The data sent over these connections is neither authenticated
// nor encrypted.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>

namespace adaptdl {

// Creates a device that uses `address`, an IP address of this machine, for all connections, and connects only to
// replicas that have `secret`. If the machine does not have the address, throws the exception that Gloo throws.
//
// Returns Gloo's own device, which requires no secret, if the user chose a transport (GLOO_DEVICE_TRANSPORT), or if
// Gloo's TCP transport has neither of the two forms that trainer/meson.build checks for.
std::shared_ptr<::gloo::transport::Device> make_gloo_device(const std::string& address, const std::string& secret);

// Closes the context's connections to the other replicas. Operations that are waiting on them fail, at both ends. With
// Gloo's own device, a local operation whose message was partly sent or received keeps waiting.
void close_connections(::gloo::Context& context, int rank, int size);

}  // namespace adaptdl
