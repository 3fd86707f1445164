// Gloo's transport, with connections that only replicas of the job can make.
//
// Gloo's own takes whoever connects first to a pair's port for the other replica. Here, the pairs get connections that
// were made by accept_ranks() and connect_as(). What is sent over them is neither authenticated nor encrypted.
#pragma once

#include <gloo/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>

namespace adaptdl {

// A device whose connections come from and to `address`, an IP address of this machine, between replicas that have
// `secret`. Throws what Gloo throws if there is no such address.
//
// Gloo's own device, which asks for no secret, is returned if the user chose a transport (GLOO_DEVICE_TRANSPORT), and
// with a Gloo whose TCP transport is of neither of the two forms that trainer/meson.build looks for.
std::shared_ptr<::gloo::transport::Device> make_gloo_device(const std::string& address, const std::string& secret);

// Closes the context's connections to the other replicas. Operations that wait for them, here and there, fail. Where
// Gloo's own device is used, an operation here whose message was partly sent or received keeps waiting.
void close_connections(::gloo::Context& context, int rank, int size);

}  // namespace adaptdl
