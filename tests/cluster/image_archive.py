#!/usr/bin/env python3
"""Writes an archive for `ctr images import` with a container image of busybox and other files, without Docker or a registry.

    image_archive.py ARCHIVE NAME [TARGET=SOURCE...]

TARGET is a path in the image, SOURCE a static program or another file. The image's command sleeps, so that a pod's sandbox can
use the image, too. The programs of busybox (sh, sleep, tar, sha256sum, ...) are in /bin.
"""

import hashlib
import io
import json
import pathlib
import platform
import subprocess
import sys
import tarfile

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
BUSYBOX = "/bin/busybox"  # Debian's busybox-static


def _layer(files):
    """Returns the tar archive of a layer. The same files yield the same archive, so nodes that already have it import
    nothing."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:

        def add(path, data=None, mode=0o755, link=None):
            entry = tarfile.TarInfo(path)
            entry.mode = mode
            if link:
                entry.type, entry.linkname = tarfile.SYMTYPE, link
            elif data is None:
                entry.type = tarfile.DIRTYPE
            else:
                entry.size = len(data)
            tar.addfile(entry, None if data is None else io.BytesIO(data))

        for directory in ("bin", "etc", "root", "usr", "usr/bin"):
            add(directory)
        add("tmp", mode=0o1777)
        add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n", 0o644)
        add("etc/group", b"root:x:0:\nnogroup:x:65534:\n", 0o644)
        add("bin/busybox", pathlib.Path(BUSYBOX).read_bytes())
        applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True, timeout=30).stdout.split()
        for applet in applets:
            if applet != "busybox":
                add(f"bin/{applet}", link="busybox")
        for target, source in files.items():
            source = pathlib.Path(source)
            add(target.lstrip("/"), source.read_bytes(), source.stat().st_mode & 0o777)
    return buffer.getvalue()


def write(archive, name, files=None, command=("/bin/sleep", "infinity"), entrypoint=None):
    """Writes the archive of an image. `files` maps paths in the image to local files."""
    layer = _layer(files or {})
    config = json.dumps(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {
                **({"Entrypoint": list(entrypoint)} if entrypoint else {"Cmd": list(command)}),
                "Env": ["PATH=/bin:/usr/bin"], "WorkingDir": "/",
            },
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        }
    ).encode()  # fmt: skip
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for path, data in (("config.json", config), ("layer.tar", layer), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2], dict(pair.split("=", 1) for pair in sys.argv[3:]))
