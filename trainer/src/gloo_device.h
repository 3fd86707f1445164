// Gloo's transport, with connections that only replicas of the job can establish.
//
// Gloo's own device accepts any process that connects first to a pair's port as the other replica. Here, pairs use
// connections made by accept_ranks() and connect_as(). The data sent over them is neither authenticated nor encrypted.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>

namespace adaptdl {

// Creates a device whose connections start and end at `address`, an IP address of this machine, and which connects only
// replicas that have `secret`. Throws what Gloo throws if there is no such address.
//
// Returns Gloo's own device, which requires no secret, if the user chose a transport (GLOO_DEVICE_TRANSPORT), or if
// Gloo's TCP transport has neither of the two forms that trainer/meson.build looks for.
std::shared_ptr<::gloo::transport::Device> make_gloo_device(const std::string& address, const std::string& secret);

// Closes the context's connections to the other replicas. Operations that wait on them fail, at both ends. With Gloo's
// own device, a local operation whose message was partly sent or received keeps waiting.
void close_connections(::gloo::Context& context, int rank, int size);

}  // namespace adaptdl
