#include "base/socket.h"

#include <doctest/doctest.h>

namespace socket_test {

using adaptdl::net::is_loopback;

TEST_CASE("is_loopback accepts only loopback addresses and localhost, not similar names") {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1", "[::1]"})
    CHECK_MESSAGE(is_loopback(host), host);
  for (const char* host : {"127.evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "127.0.0.1:80",
                           "128.0.0.1", "::", "::2", "[127.0.0.1", "", "0.0.0.0"})
    CHECK_FALSE_MESSAGE(is_loopback(host), host);
}

}  // namespace socket_test
