"""Makes the loopback interface slow and lossy, for this process and all processes that it starts from then on.

In a separate network namespace, all loopback traffic is routed into a TUN device, and a thread returns each packet from
there after a delay, or drops it. TCP thus has to cope with delay and loss as on a bad line, and no kernel module is
needed.
"""

import collections
import ctypes
import fcntl
import os
import pathlib
import random
import select
import shutil
import struct
import subprocess
import threading
import time
import unittest

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
DEVICE = "slow0"
LONGEST_PACKET = 1 << 16

# Packets that come out of the device are delivered locally; all others are sent into it. By default, the table with the
# local addresses is consulted before all others, so its rule is replaced.
ROUTES = f"""
link set lo up
link set {DEVICE} up mtu 1500
route add default dev {DEVICE} table 100 src 127.0.0.1
rule add pref 1 iif {DEVICE} lookup local
rule add pref 2 lookup 100
rule del pref 0
"""


class SlowNetwork:
    """Delays each packet by `delay` seconds, and drops the fraction `loss` of all packets.

    It must be created before other threads are started. Raises unittest.SkipTest, with the reason, if it cannot be set up.
    """

    def __init__(self, delay, loss):
        self._delay, self._loss = delay, loss
        self._random = random.Random(1)
        self._on_the_way = collections.deque()  # (arrival time, packet)
        self._ended = False
        self.packets = self.lost = 0
        if shutil.which("ip") is None:
            raise unittest.SkipTest("no slow network: iproute2's ip is not installed")
        try:
            self._enter_namespace()
            self._device = self._make_device()
            self._route()
        except OSError as error:
            raise unittest.SkipTest(f"no slow network: {error}") from None
        self._thread = threading.Thread(target=self._carry)
        self._thread.start()

    def close(self):
        self._ended = True
        self._thread.join()
        os.close(self._device)

    @staticmethod
    def _enter_namespace():
        unshare = ctypes.CDLL(None, use_errno=True).unshare
        if unshare(CLONE_NEWNET) == 0:
            return
        user, group = os.geteuid(), os.getegid()
        if unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "no permission for a network namespace")
        own = pathlib.Path("/proc/self")
        (own / "setgroups").write_text("deny")
        (own / "uid_map").write_text(f"0 {user} 1")
        (own / "gid_map").write_text(f"0 {group} 1")

    @staticmethod
    def _make_device():
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
        except OSError:
            os.close(device)
            raise
        return device

    @staticmethod
    def _route():
        settings = pathlib.Path("/proc/sys/net/ipv4/conf")
        (settings / "all" / "rp_filter").write_text("0")
        for name, value in (("accept_local", "1"), ("route_localnet", "1"), ("rp_filter", "0")):
            (settings / DEVICE / name).write_text(value)
        subprocess.run(["ip", "-batch", "-"], input=ROUTES, text=True, check=True)

    def _carry(self):
        while not self._ended:
            due = self._on_the_way[0][0] - time.monotonic() if self._on_the_way else 0.1
            if select.select([self._device], [], [], min(max(due, 0), 0.1))[0]:
                self._take(os.read(self._device, LONGEST_PACKET))
            while self._on_the_way and self._on_the_way[0][0] <= time.monotonic():
                os.write(self._device, self._on_the_way.popleft()[1])

    def _take(self, packet):
        self.packets += 1
        if self._random.random() < self._loss:
            self.lost += 1
        else:
            self._on_the_way.append((time.monotonic() + self._delay, packet))
