#include "supervisor/socket_owner.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

#include "base/socket.h"

namespace adaptdl::sched {
namespace {

using boost::asio::ip::tcp;

constexpr int kAnswerTime = 1;  // seconds; the kernel normally answers during the request

struct Owner {
  uid_t uid = 0;
  unsigned long inode = 0;
};

void put_address(const boost::asio::ip::address& address, __be32 (&to)[4]) {
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    std::memcpy(to, bytes.data(), bytes.size());
  } else {
    const auto bytes = address.to_v6().to_bytes();
    std::memcpy(to, bytes.data(), bytes.size());
  }
}

// Queries the kernel through netlink. Returns nullopt if the kernel does not support that or does not find the
// connection.
std::optional<Owner> ask_kernel(const ConnectionEnds& ends) {
  const Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd) return {};
  const timeval patience{kAnswerTime, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);

  struct {
    nlmsghdr header{};
    inet_diag_req_v2 body{};
  } request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = ends.client.address().is_v4() ? AF_INET : AF_INET6;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = 1U << TCP_ESTABLISHED;
  request.body.id.idiag_sport = htons(ends.client.port());
  request.body.id.idiag_dport = htons(ends.server.port());
  put_address(ends.client.address(), request.body.id.idiag_src);
  put_address(ends.server.address(), request.body.id.idiag_dst);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(fd.get(), &request, sizeof request, 0, reinterpret_cast<sockaddr*>(&kernel), sizeof kernel) < 0)
    return {};

  alignas(nlmsghdr) char buffer[8192];
  const ssize_t size = ::recv(fd.get(), buffer, sizeof buffer, 0);
  const auto* const header = reinterpret_cast<const nlmsghdr*>(buffer);
  if (size < 0 || !NLMSG_OK(header, static_cast<unsigned>(size)) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)))
    return {};
  inet_diag_msg answer{};
  std::memcpy(&answer, NLMSG_DATA(header), sizeof answer);
  // If there is no connection with these ends, the kernel returns a listener at the client's end.
  if (answer.idiag_state != TCP_ESTABLISHED || answer.id.idiag_sport != request.body.id.idiag_sport ||
      answer.id.idiag_dport != request.body.id.idiag_dport)
    return {};
  return Owner{answer.idiag_uid, answer.idiag_inode};
}

// Formats an end in the same way as /proc/net/tcp: the address as a 32-bit number in this machine's byte order, and the
// port.
std::string end_in_table(const tcp::endpoint& end) {
  const auto bytes = end.address().to_v4().to_bytes();
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data(), sizeof word);
  char text[16];
  std::snprintf(text, sizeof text, "%08X:%04X", word, static_cast<unsigned>(end.port()));
  return text;
}

// Looks up the connection in the table of IPv4 sockets. Used with kernels and sandboxes that do not support netlink.
std::optional<Owner> find_in_table(const ConnectionEnds& ends) {
  if (!ends.client.address().is_v4() || !ends.server.address().is_v4()) return {};
  const std::string client = end_in_table(ends.client), server = end_in_table(ends.server);
  std::ifstream table("/proc/net/tcp");
  for (std::string line; std::getline(table, line);) {
    std::istringstream fields(line);
    std::string number, local, remote, state, queues, timer, retransmits, timeout;
    Owner owner;
    if (!(fields >> number >> local >> remote >> state >> queues >> timer >> retransmits >> owner.uid >> timeout >>
          owner.inode))
      continue;
    if (local == client && remote == server && state == "01") return owner;
  }
  return {};
}

}  // namespace

std::optional<uid_t> client_owner(const ConnectionEnds& ends) {
  if (const auto owner = ask_kernel(ends)) {
    // The kernel reads the user before the inode. If the socket has an inode, it was not yet closed when the user was
    // read.
    if (owner->inode == 0) return {};
    return owner->uid;
  }
  // The table does not guarantee this order, but a socket that is open in the second lookup was also open in the first.
  const auto first = find_in_table(ends), second = find_in_table(ends);
  if (!first || !second || second->inode == 0 || first->uid != second->uid) return {};
  return first->uid;
}

}  // namespace adaptdl::sched
