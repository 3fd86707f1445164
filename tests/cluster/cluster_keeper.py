"""Manages one real cluster that all tests of a suite share, although each test is a separate process.

Tests that need the cluster borrow it. The first borrower starts a keeper, a separate process that starts the cluster and stops it
when no test has needed it for a while. The processes coordinate only through file locks, which the kernel releases when the holder
ends. A killed test therefore leaves nothing behind, and a killed keeper is replaced by another one. The locks are:

    NAME.users   shared by all borrowers; held exclusively by the keeper while it stops the cluster
    NAME.start   held by a borrower while it checks for a keeper and starts one if there is none
    NAME.keeper  held by the keeper as long as it is running
"""

import fcntl
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
from python_peer import cache_directory  # noqa: E402

STATE = pathlib.Path(os.environ.get("KUBE_CLUSTER_STATE", "/run/adaptdl-kubernetes"))
KUBE_CLUSTER = pathlib.Path(__file__).with_name("kube-cluster")
NODES = os.environ.get("KUBE_CLUSTER_NODES", "2")
LINGER = 60  # seconds for which an unused cluster keeps running, so that the next test of a suite can use it
READY = STATE / "ready"
CACHE = cache_directory() / "kubernetes"
LOG = CACHE / "log" / f"{STATE.name}.keeper.log"


class Unavailable(Exception):
    """Raised, with the reason, if this machine cannot run a cluster."""


def obstacle():
    """Returns why this machine cannot run a cluster, or an empty string if it can."""
    check = subprocess.run([KUBE_CLUSTER, "check"], capture_output=True, text=True, timeout=60)
    return check.stderr.strip() if check.returncode else ""


def _open(name):
    return open(CACHE / f"{STATE.name}.{name}", "a+", encoding="utf-8")


def _try_lock(file, how):
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _keeper_lives():
    with _open("keeper") as file:
        return not _try_lock(file, fcntl.LOCK_SH)


def borrow():
    """Waits until the cluster is ready. Returns the paths of its kubeconfig and of the network namespace in which it
    must be used. The cluster is given back when this process ends. Raises Unavailable."""
    reason = obstacle()
    if reason:
        raise Unavailable(reason)
    LOG.parent.mkdir(parents=True, exist_ok=True)
    borrow.users = _open("users")  # keeps its lock as long as it is open
    fcntl.flock(borrow.users, fcntl.LOCK_SH)
    with _open("start") as start:
        fcntl.flock(start, fcntl.LOCK_EX)
        if not _keeper_lives():
            READY.unlink(missing_ok=True)
            with open(LOG, "w", encoding="utf-8") as log:
                subprocess.Popen(  # outlives this test
                    [sys.executable, __file__], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            while not _keeper_lives() and not LOG.read_text(encoding="utf-8"):
                time.sleep(0.05)
        while not READY.exists():
            if not _keeper_lives():
                raise RuntimeError(f"the cluster did not come up:\n{LOG.read_text(encoding='utf-8')}")
            time.sleep(0.2)
    return STATE / "admin.conf", READY.read_text(encoding="utf-8").strip()


def give_back():
    """Gives the cluster back before this process ends."""
    if hasattr(borrow, "users"):
        borrow.users.close()


def load(archive):
    """Imports the images of an archive on every node."""
    subprocess.run([KUBE_CLUSTER, "load", archive], check=True, timeout=300)


def end():
    """Stops all clusters as soon as no test uses them, without the usual delay. Returns when they have stopped."""
    waiting = []
    for path in CACHE.glob("*.keeper"):
        file = open(path, encoding="utf-8")
        if _try_lock(file, fcntl.LOCK_SH):
            file.close()
            continue
        os.kill(int(file.read()), signal.SIGTERM)
        waiting.append(file)
    for file in waiting:
        fcntl.flock(file, fcntl.LOCK_SH)
        file.close()


def keep():
    linger = LINGER

    def hurry(_number, _frame):
        nonlocal linger
        linger = 0

    signal.signal(signal.SIGTERM, hurry)
    keeper = _open("keeper")
    fcntl.flock(keeper, fcntl.LOCK_EX)
    keeper.truncate(0)
    keeper.write(str(os.getpid()))
    keeper.flush()
    with _open("users") as users:
        # Programs started here must not inherit the locks. They do not, because Python closes its files in child processes.
        if subprocess.run([KUBE_CLUSTER, "up", NODES], check=False).returncode:
            subprocess.run([KUBE_CLUSTER, "down"], check=False)
            sys.exit(1)
        network = subprocess.run([KUBE_CLUSTER, "network"], check=True, capture_output=True, text=True).stdout
        partial = READY.with_suffix(".partial")
        partial.write_text(network, encoding="utf-8")
        partial.rename(READY)
        idle_since = time.monotonic()
        while True:
            if not _try_lock(users, fcntl.LOCK_EX):
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= linger:
                READY.unlink()
                subprocess.run([KUBE_CLUSTER, "down"], check=True)
                # This lock is released before `users`. Otherwise, a waiting borrower would find this keeper alive without its cluster.
                keeper.close()
                return
            else:
                fcntl.flock(users, fcntl.LOCK_UN)
            time.sleep(1)


def build():
    """Builds the programs of the cluster. Returns an exit code, which is 77 if they are not needed or cannot run on this machine."""
    if os.environ.get("KUBECONFIG"):
        print("skipped: KUBECONFIG names a cluster")
        return 77
    reason = obstacle()
    if reason:
        print(f"skipped: this machine cannot run a cluster: {reason}")
        return 77
    return subprocess.run([KUBE_CLUSTER, "build"], check=False).returncode


if __name__ == "__main__":
    if sys.argv[1:] == ["build"]:
        sys.exit(build())
    if sys.argv[1:] == ["end"]:
        end()
    else:
        keep()
