#include "kube/stream/upgrade.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "http/http.h"

namespace adaptdl::kube {

boost::asio::local::stream_protocol::socket socket_of(boost::asio::io_context& context,
                                                      const RawConnection& connection) {
  const int fd = ::fcntl(connection.fd(), F_DUPFD_CLOEXEC, 3);
  if (fd < 0) throw Error(fmt::format("cannot duplicate a file descriptor: {}", std::strerror(errno)));
  return {context, boost::asio::local::stream_protocol(), fd};
}

std::string request_target(const RawConnection& connection, const std::string& path, const Query& query) {
  std::string target = connection.path_prefix() + path;
  char mark = '?';
  for (const auto& [key, value] : query) {
    target += fmt::format("{}{}={}", mark, http::escape(key), http::escape(value));
    mark = '&';
  }
  return target;
}

std::pair<std::string, std::string> split_header(const std::string& header) {
  const std::size_t colon = header.find(':');
  return {header.substr(0, colon), header.substr(std::min(header.find_first_not_of(' ', colon + 1), header.size()))};
}

}  // namespace adaptdl::kube
