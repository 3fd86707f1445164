"""Supports the corpus of Dockerfiles: writes build contexts and base images with official names, and reads images as trees."""

import dataclasses
import gzip
import hashlib
import io
import json
import os
import pathlib
import shutil
import subprocess
import tarfile

from python_peer import cache_directory

ADAPTDL = os.environ["ADAPTDL_BIN"]
BUSYBOX = shutil.which("busybox", path="/bin:/usr/bin")
PATIENCE = 600
DATE = 1_700_000_000
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# The keys of an image's configuration that are compared between the two builders.
CONFIG_KEYS = ("Env", "Entrypoint", "Cmd", "User", "WorkingDir", "Labels", "ExposedPorts", "Volumes", "StopSignal", "Healthcheck", "Shell", "OnBuild")


@dataclasses.dataclass
class Case:
    """A Dockerfile, the other files of its build context, and the options for both builders.

    The content of a file is text or bytes, or a pair of the content and the file's mode. "-> TARGET" is a symbolic link,
    and a name that ends with a slash is a directory. `buildah` is False if buildah cannot build the same image, and
    `why` gives the reason. `tree` and `config` then list files and configuration keys that our image must have.
    """

    name: str
    dockerfile: str
    files: dict = dataclasses.field(default_factory=dict)
    options: tuple = ()
    environment: dict = dataclasses.field(default_factory=dict)
    buildah: bool = True
    why: str = ""
    tree: dict = dataclasses.field(default_factory=dict)
    config: dict = dataclasses.field(default_factory=dict)
    # The paths and configuration keys in which buildah is known to differ from Docker's documentation, and why.
    differs: dict = dataclasses.field(default_factory=dict)
    # The line and the reason that the error for a broken Dockerfile must name.
    line: int = 0
    reason: str = ""

    def __post_init__(self):
        # buildah cannot store these instructions in an OCI configuration.
        self.docker_format = any(word in self.dockerfile for word in ("HEALTHCHECK", "SHELL", "ONBUILD", "onbuild"))


def write_context(directory, case):
    for name, content in {"Dockerfile": case.dockerfile, **case.files}.items():
        content, mode = content if isinstance(content, tuple) else (content, 0o644)
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
            path.chmod(mode | 0o111 if mode == 0o644 else mode)
        elif isinstance(content, str) and content.startswith("-> "):
            path.symlink_to(content[3:])
            continue
        else:
            path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
            path.chmod(mode)
    for path in [*directory.rglob("*"), directory]:
        os.utime(path, (DATE, DATE), follow_symlinks=False)


def archive(entries, mode="w", kind=tarfile.PAX_FORMAT):
    """Returns an archive of {name: content or (content, mode, uid)}. A name that ends with a slash is a directory, and
    the contents "-> TARGET" and "=> TARGET" denote a symbolic link and a hard link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=kind) as tar:
        for name, content in entries.items():
            content, bits, uid = content if isinstance(content, tuple) else (content, None, 0)
            info = tarfile.TarInfo(name.rstrip("/"))
            info.mtime, info.uid, info.gid = DATE, uid, uid
            info.mode = bits if bits is not None else 0o755 if name.endswith("/") else 0o644
            data = b""
            if name.endswith("/"):
                info.type = tarfile.DIRTYPE
            elif isinstance(content, str) and content.startswith("-> "):
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, content[3:], 0o777
            elif isinstance(content, str) and content.startswith("=> "):
                info.type, info.linkname = tarfile.LNKTYPE, content[3:]
            else:
                data = content if isinstance(content, bytes) else content.encode()
                info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def oci_layout(directory, layers, config):
    """Writes an OCI directory with an image tagged 1, from layers (tar archives) and the "config" of its configuration."""
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"digest": f"sha256:{digest}", "size": len(data)}

    described = [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **put(gzip.compress(layer, 1, mtime=0))} for layer in layers]
    whole = {"created": "2023-11-14T00:00:00Z", "architecture": "amd64", "os": "linux", "config": config,
             "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]},
             "history": [{"created": "2023-11-14T00:00:00Z", "created_by": "/bin/sh -c #(nop) ADD file:0 in / "} for _ in layers]}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **put(json.dumps(whole).encode())}, "layers": described}
    (directory / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [
        {"mediaType": manifest["mediaType"], **put(json.dumps(manifest).encode()), "annotations": {"org.opencontainers.image.ref.name": "1"}}]}))


PASSWD = """root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
www-data:x:33:33:www-data:/var/www:/bin/false
node:x:1000:1000::/home/node:/bin/sh
app:x:1234:567:App:/home/app:/bin/sh
nobody:x:65534:65534:nobody:/home:/bin/false
"""
GROUP = "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nstaff:x:50:app\napps:x:567:\nnode:x:1000:\nnogroup:x:65534:\n"


# Debian's busybox has neither addgroup nor adduser, so the base images get these scripts.
ADDGROUP = """while [ $# -gt 1 ]; do [ "$1" != -g ] || id=$2; shift; done
echo "$1:x:$id:" >> /etc/group
"""
ADDUSER = """while [ $# -gt 1 ]; do [ "$1" != -u ] || id=$2; shift; done
id=${id:-1500}
grep -q "^$1:" /etc/group || echo "$1:x:$id:" >> /etc/group
echo "$1:x:$id:$(grep "^$1:" /etc/group | cut -d: -f3)::/home/$1:/bin/sh" >> /etc/passwd
"""


def script(text):
    return ("#!/bin/sh\nset -e\n" + text, 0o755, 0)


def base_tree(**extra):
    """Returns the files of a distribution that consists of busybox only. It has symbolic and hard links, such as /var/run,
    like other distributions. `extra` adds files, with "__" for each slash in their names."""
    names = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True).stdout.split()
    tree = {f"{name}/": b"" for name in ("bin", "dev", "etc", "home", "home/app", "home/node", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr", "usr/bin",
                                         "usr/local", "usr/local/bin", "usr/local/lib", "usr/share", "var", "var/lib", "var/log", "var/old")}
    tree.update({"tmp/": (b"", 0o1777, 0), "root/": (b"", 0o700, 0), "home/node/": (b"", 0o755, 1000), "etc/passwd": PASSWD, "etc/group": GROUP,
                 "etc/hostname": "", "etc/hosts": "", "etc/resolv.conf": "", "var/run": "-> ../run", "var/current": "-> old", "var/old/file": "old\n",
                 "var/old/sub/": b"", "var/old/sub/deep": "deep\n", "usr/share/twin": "twin\n", "usr/share/twin2": "=> usr/share/twin",
                 "usr/local/bin/addgroup": script(ADDGROUP), "usr/local/bin/adduser": script(ADDUSER), "bin/busybox": (pathlib.Path(BUSYBOX).read_bytes(), 0o755, 0)})
    tree.update({f"bin/{name}": "-> busybox" for name in names if name != "busybox"})
    tree.update({name.replace("__", "/"): content for name, content in extra.items()})
    return tree


# Stand-ins for language tools, which leave files as the real tools do. The Dockerfiles need nothing else from them.
TOOLS = {
    "python": {"usr/local/bin/pip": script('mkdir -p /usr/local/lib/python3/site-packages\nfor each; do case $each in -r) ;; *.txt) cp "$each" '
                                           '/usr/local/lib/python3/site-packages/installed;; esac; done\n'),
               "usr/local/bin/python": script('[ "$1" != -m ] || { mkdir -p "$3/bin"; cp /usr/local/bin/pip "$3/bin/pip"; }\n')},
    "node": {"usr/local/bin/npm": script('case $1 in ci|install) test -f package-lock.json; mkdir -p node_modules/left-pad; echo $* > node_modules/left-pad/why; '
                                         'ln -sf ../left-pad node_modules/left-pad/self;; run) mkdir -p dist; cat src/* > dist/index.js;; esac\n')},
    "go": {"usr/local/bin/go": script('case $1 in mod) mkdir -p /go/pkg/mod/cache; cp go.mod /go/pkg/mod/cache;; build) while [ "$1" != -o ]; do shift; done; '
                                      'cat *.go > "$2"; chmod 755 "$2"; echo "$CGO_ENABLED" >> "$2";; esac\n')},
    "cmake": {"usr/local/bin/cmake": script('case "$*" in *--build*) mkdir -p build; cat src/*.cc > build/server; chmod 755 build/server;; *--install*) mkdir -p '
                                            '/opt/server/bin /opt/server/lib; cp build/server /opt/server/bin; echo so > /opt/server/lib/libserver.so.1; ln -sf '
                                            'libserver.so.1 /opt/server/lib/libserver.so;; *) mkdir -p build; echo "$*" > build/CMakeCache.txt;; esac\n')},
}
# Maps each image to its configuration and its layers, without the layer of base_tree(), which all images share.
OFFICIAL = {
    "library/busybox:1.36": ([], {"Env": [PATH], "Cmd": ["sh"]}),
    "library/alpine:3.19": ([{"etc/alpine-release": "3.19.0\n"}], {"Env": [PATH], "Cmd": ["/bin/sh"]}),
    "library/python:3.11-slim": ([TOOLS["python"]], {"Env": [PATH, "LANG=C.UTF-8"], "Cmd": ["python3"]}),
    "library/node:20-alpine": ([TOOLS["node"]], {"Env": [PATH, "NODE_VERSION=20.1.0"], "Entrypoint": ["docker-entrypoint.sh"], "Cmd": ["node"]}),
    "library/golang:1.22-alpine": ([TOOLS["go"], {"go/": (b"", 0o777, 0)}],
                                   {"Env": [PATH, "GOPATH=/go"], "WorkingDir": "/go", "Cmd": ["bash"]}),
    "library/gcc:13": ([TOOLS["cmake"]], {"Env": [PATH], "Cmd": ["bash"]}),
    "library/nginx:1.25-alpine": ([{"usr/share/nginx/": b"", "usr/share/nginx/html/": b"", "usr/share/nginx/html/index.html": "welcome\n", "etc/nginx/": b"",
                                    "etc/nginx/conf.d/": b"", "etc/nginx/conf.d/default.conf": "server {}\n"}],
                                  {"Env": [PATH, "NGINX_VERSION=1.25"], "Entrypoint": ["/docker-entrypoint.sh"], "Cmd": ["nginx", "-g", "daemon off;"],
                                   "ExposedPorts": {"80/tcp": {}}, "StopSignal": "SIGQUIT", "Labels": {"maintainer": "nginx"}}),
    # This image has triggers, a user, a volume, and files that a later layer removes.
    "library/onbuild:1": ([{"gone": "gone\n", "hidden/": b"", "hidden/a": "a\n"}, {".wh.gone": b"", "hidden/.wh..wh..opq": b"", "hidden/b": "b\n"}],
                          {"Env": [PATH, "FROM_BASE=yes"], "WorkingDir": "/usr/src/app", "OnBuild": ["COPY . /usr/src/app", "RUN ls /usr/src/app > /tmp/listed"],
                           "Volumes": {"/data": {}}, "Entrypoint": ["/entry"], "Cmd": ["serve"], "User": "app", "Healthcheck": {"Test": ["CMD", "/check"]}}),
}


def push_bases(root, server, debian):
    distribution = archive(base_tree())
    for number, (name, (layers, config)) in enumerate(OFFICIAL.items()):
        oci_layout(root / f"base{number}", [distribution, *map(archive, layers)], config)
    if debian:
        oci_layout(root / "debian", [debian.read_bytes()], {"Env": [PATH], "Cmd": ["bash"]})
    sources = {name: root / f"base{number}" for number, name in enumerate(OFFICIAL)} | ({"library/debian:bookworm-slim": root / "debian"} if debian else {})
    for name, source in sources.items():
        subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "--dest-tls-verify=false", f"oci:{source}:1", f"docker://{server.host}/{name}"], check=True,
                       capture_output=True, timeout=PATIENCE)


def debian():
    """Returns the archive of a small Debian system, which mmdebstrap creates only once. Returns None if mmdebstrap
    fails, for example because there is no network."""
    kept = cache_directory() / "debian-bookworm-usr-is-merged.tar"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(f".{os.getpid()}.tar")
        left_out = [f"--dpkgopt=path-exclude=/usr/{name}/*" for name in ("share/doc", "share/man", "share/locale", "lib/*/gconv")]
        # Debian's own images have usr-is-merged, too. The alternative, usrmerge, would require all of Perl.
        made = subprocess.run(["mmdebstrap", "--variant=essential", "--include=passwd,login,usr-is-merged", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", *left_out,
                               "bookworm", draft], capture_output=True)
        if made.returncode != 0:
            draft.unlink(missing_ok=True)
            return None
        draft.rename(kept)
    return kept


def merged(directory):
    """Reads an image from an OCI directory or a dir: directory. Returns the "config" of its configuration and its files as
    {path: (type, mode, uid, gid, content or link target, first path of the same hard link, time)}. The time is None except
    for files of the context, since other files have the time of the build."""
    if (directory / "index.json").exists():
        blobs = directory / "blobs/sha256"
        manifest = json.loads((directory / "index.json").read_text())["manifests"][0]["digest"][7:]
    else:
        blobs, manifest = directory, "manifest.json"
    manifest = json.loads((blobs / manifest).read_text())
    config = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
    tree = {}

    def remove(path):
        for each in [each for each in tree if each == path or each.startswith(path + "/")]:
            del tree[each]

    for number, layer in enumerate(manifest["layers"]):
        with tarfile.open(blobs / layer["digest"][7:]) as tar:
            members = [(member, os.path.normpath("/" + member.name)[1:]) for member in tar]
            for member, path in members:  # whiteouts hide files of the layers below, wherever they are in the archive
                parent, name = os.path.split(path)
                if name == ".wh..wh..opq":
                    for each in [each for each in tree if each.startswith(parent + "/")]:
                        del tree[each]
                elif name.startswith(".wh."):
                    remove(os.path.join(parent, name[4:]))
            new = {}
            for member, path in members:
                if os.path.basename(path).startswith(".wh.") or path == "":
                    continue
                if path in tree and not (member.isdir() and tree[path][0] == tarfile.DIRTYPE):
                    remove(path)
                content = member.linkname if member.issym() else None
                if member.isfile():
                    content = hashlib.sha256(tar.extractfile(member).read()).hexdigest() if member.size > 4000 else tar.extractfile(member).read()
                if member.islnk():
                    new[path] = new[os.path.normpath("/" + member.linkname)[1:]]
                else:
                    mode = 0o777 if member.issym() else member.mode & 0o7777
                    new[path] = (tarfile.REGTYPE if member.isfile() else member.type, mode, member.uid, member.gid, content, (number, member.offset),
                                 member.mtime if member.isfile() and member.mtime == DATE else None)
                tree[path] = new[path]
    twins = {}
    for path, each in sorted(tree.items()):
        twins.setdefault(each[5], []).append(path)
    return config["config"], {path: (*each[:5], twins[each[5]][0], each[6]) for path, each in tree.items()}
