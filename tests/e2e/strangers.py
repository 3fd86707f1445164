"""Opens unauthorized connections of eight kinds to every port on which a process starts to listen on the loopback interface.

Usage: strangers.py [--uid UID] [--each N] PORT...: connects N times (default: 1000) to each port on which a process is
listening, except for the given ports, and to each one that is opened later, until its standard input ends. It prints a
port's number when it has connected N times to the port and, at the end, the number of connections to each port as JSON.
With --uid, it first switches from root to that user.
"""

import argparse
import collections
import json
import os
import resource
import select
import socket
import struct
import sys
import time

HELD = 3000  # maximum number of simultaneous connections, if the system permits that many
SPARE = 100  # descriptors for other purposes
BATCH = 40  # connections to a port before the next port gets its turn
OPENING = b"adaptdl\n" + struct.pack("<I", 2) + b"n" * 32
# This is what collective calls, state transfers and Gloo expect, except for the proof.
REQUEST = struct.pack("<IIQ", 1, 2, 64 << 20) + b"local/job"
CLAIMED = 0xFFFFFFFF

SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLM_F_DUMP, NLMSG_DONE, TCP_LISTEN = 20, 1, 0x300, 3, 10


def listening_ports():
    """Returns the ports on which TCP sockets are listening, according to the kernel's own list."""
    ports = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4) as diag:
        for family in (socket.AF_INET, socket.AF_INET6):
            request = struct.pack("=BBBxI", family, socket.IPPROTO_TCP, 0, 1 << TCP_LISTEN) + bytes(48)
            diag.send(struct.pack("=IHHII", 16 + len(request), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 0, 0) + request)
            done = False
            while not done:
                data = diag.recv(1 << 16)
                while data:
                    size, kind = struct.unpack_from("=IH", data)
                    if kind != SOCK_DIAG_BY_FAMILY:
                        done = True
                        break
                    ports.add(struct.unpack_from(">H", data, 16 + 4)[0])
                    data = data[size + 3 & ~3 :]
    return ports


def words_of(kind):
    """Returns what a stranger of this kind sends, or None if it disconnects at once."""
    return {
        "silent": b"",
        "slow": b"a",
        "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "noise": os.urandom(20000),
        "opening": OPENING,
        "without the secret": OPENING + bytes(32) + struct.pack("<I", len(REQUEST)) + REQUEST,
        "length": OPENING + bytes(32) + struct.pack("<I", CLAIMED),
        "gone": None,
    }[kind]


KINDS = ["silent", "slow", "http", "noise", "opening", "without the secret", "length", "gone"]


def visit(port, kind):
    """Connects to the port, and returns the connection, or None if it is not kept open."""
    stranger = socket.socket()
    stranger.setblocking(False)
    words = words_of(kind)
    if words is None:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # disconnects with a reset
    if stranger.connect_ex(("127.0.0.1", port)) not in (0, 115):  # connected, or in progress due to a full queue
        stranger.close()
        return None
    try:
        if words:
            stranger.send(words)
    except OSError:
        pass
    if words is None:
        stranger.close()
        return None
    return stranger


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--uid", type=int)
    arguments.add_argument("--each", type=int, default=1000)
    arguments.add_argument("spared", type=int, nargs="*")
    options = arguments.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limit = min(hard, HELD + SPARE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if options.uid is not None:
        os.setgroups([])
        os.setgid(options.uid)
        os.setuid(options.uid)
    counts, held = {}, collections.deque()
    while not select.select([sys.stdin], [], [], 0)[0]:
        ports = [port for port in listening_ports() - set(options.spared) if counts.get(port, 0) < options.each]
        for port in ports:
            for _ in range(min(BATCH, options.each - counts.get(port, 0))):
                counts[port] = counts.get(port, 0) + 1
                if counts[port] == options.each:
                    print(port, flush=True)
                if (stranger := visit(port, KINDS[counts[port] % len(KINDS)])) is not None:
                    held.append(stranger)
                if len(held) > limit - SPARE:
                    held.popleft().close()
        if not ports:
            time.sleep(0.001)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
