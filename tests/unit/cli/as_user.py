#!/usr/bin/env python3
"""Runs a program as a temporary user with or without subordinate IDs: as_user.py with-ids|without-ids PROGRAM…

The user exists only in copies of /etc/passwd and similar files, which the program sees instead of the machine's files.
The script exits with code 77, which skips the test, unless it runs as root and newuidmap and /etc/subuid exist.
"""
import os
import shutil
import subprocess
import sys
import tempfile

NAME, NUMBER = "adaptdl-test", 61234


def run(kind, command):
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        # The build directory may be inaccessible to other users.
        program = shutil.copy(command[0], directory)
        home = os.path.join(directory, "home")
        os.mkdir(home)
        os.chown(home, NUMBER, NUMBER)
        lines = {
            "passwd": f"{NAME}:x:{NUMBER}:{NUMBER}::{home}:/bin/sh\n",
            "group": f"{NAME}:x:{NUMBER}:\n",
            "subuid": f"{NAME}:200000:65536\n" if kind == "with-ids" else "",
            "subgid": f"{NAME}:300000:65536\n" if kind == "with-ids" else "",
        }
        script = "set -e\n"
        for name, line in lines.items():
            file = os.path.join(directory, name)
            real = f"/etc/{name}"
            text = open(real).read() if os.path.exists(real) else ""
            with open(file, "w") as stream:
                stream.write(line + text)
            script += f"mount --bind {file} {real}\n"
        script += f'exec setpriv --reuid={NUMBER} --regid={NUMBER} --clear-groups --inh-caps=-all -- "$@"'
        environment = dict(os.environ, HOME=home, TMPDIR=home)
        return subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", program, *command[1:]], env=environment).returncode


def main():
    kind, *command = sys.argv[1:]
    if os.geteuid() != 0 or not (shutil.which("newuidmap") and os.path.exists("/etc/subuid")):
        print("requires root, newuidmap and /etc/subuid")
        return 77
    return run(kind, command)


if __name__ == "__main__":
    sys.exit(main())
