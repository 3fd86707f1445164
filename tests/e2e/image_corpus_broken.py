"""Dockerfiles whose faults are found only when they are built, with the line and the reason that the error must name."""

from image_corpus_support import Case, archive

BUSYBOX = "FROM busybox:1.36\n"
A = {"a": "a\n"}
NO_SUM = "sha256:" + "0" * 64


def broken(name, dockerfile, line, reason, files=A, options=()):
    return Case("broken-" + name, dockerfile, files, options, line=line, reason=reason)


BROKEN = [
    # Bases and stages
    broken("no-base-image", "FROM nothing:1\nRUN true\n", 1, "nothing"),
    broken("no-tag-of-the-base", "FROM busybox:none\n", 1, "busybox"),
    broken("no-digest-of-the-base", f"FROM busybox@{NO_SUM}\n", 1, "busybox"),
    broken("no-registry", "FROM 127.0.0.1:1/x:1\n", 1, "127.0.0.1:1"),
    broken("no-base-of-a-later-stage", "FROM busybox:1.36 AS one\nFROM scratch\nCOPY --from=one /etc/group /\nFROM nothing:2\n", 4, "nothing"),
    broken("no-image-to-copy-from", BUSYBOX + "COPY --from=nothing:3 /a /a\n", 2, "nothing"),
    broken("no-image-to-mount", BUSYBOX + "RUN --mount=type=bind,from=nothing:4,target=/x true\n", 2, "nothing"),
    broken("no-value-for-the-base", "ARG BASE\nFROM ${BASE}\n", 2, "no value for BASE"),
    broken("no-tag-for-the-base", "ARG TAG\nFROM busybox:$TAG\n", 2, "no value for TAG"),
    broken("not-a-reference", "FROM Busybox:1.36\n", 1, "Busybox"),
    broken("no-platform-of-the-base", "FROM --platform=frob/9 busybox:1.36\n", 1, "frob"),
    broken("trigger-fails", "FROM busybox:1.36 AS base\nONBUILD RUN exit 9\nFROM base\n", 3, "exit code 9"),
    broken("trigger-has-no-source", "FROM busybox:1.36 AS base\nONBUILD COPY none /\n\nFROM base\n", 4, "'none' not found in"),
    # COPY
    broken("no-source", "FROM scratch\nCOPY a /a\nCOPY b /b\n", 3, "'b' not found in"),
    broken("no-source-of-several", "FROM scratch\nCOPY a b /d/\n", 2, "'b' not found in"),
    broken("source-is-ignored", "FROM scratch\nCOPY a /a\n", 2, "excluded by an ignore file", {**A, ".dockerignore": "a\n"}),
    broken("source-above-the-context", "FROM scratch\nCOPY ../secret /s\n", 2, "'../secret' not found in"),
    broken("source-is-no-directory", "FROM scratch\nCOPY a/ /d\n", 2, "'a/' is not a directory"),
    broken("source-below-a-file", "FROM scratch\nCOPY a/b /d\n", 2, "'a/b' not found in"),
    broken("link-out-of-the-context", "FROM scratch\nCOPY link /l\n", 2, "'link' not found in", {"link": "-> /etc/passwd"}),
    broken("link-to-nothing", "FROM scratch\nCOPY link /l\n", 2, "'link' not found in", {"link": "-> none"}),
    broken("link-in-a-circle", "FROM scratch\nCOPY one/x /l\n", 2, "one/x", {"one": "-> two", "two": "-> one"}),
    broken("pattern-is-broken", "FROM scratch\nCOPY [a- /\n", 2, "invalid pattern '[a-'"),
    broken("no-source-in-a-stage", "FROM busybox:1.36 AS s\nFROM scratch\nCOPY --from=s /none /\n", 3, "'/none' not found in"),
    broken("no-source-in-an-image", "FROM scratch\n\nCOPY --from=busybox:1.36 /none /\n", 3, "'/none' not found in"),
    broken("link-out-of-a-stage", "FROM busybox:1.36 AS s\nRUN ln -s /../../../none /out\nFROM scratch\nCOPY --from=s /out /x\n", 4, "'/out' not found in"),
    broken("unknown-user", BUSYBOX + "COPY --chown=mallory a /a\n", 2, "user 'mallory' not found in the image's /etc/passwd"),
    broken("unknown-group", BUSYBOX + "COPY --chown=app:mallory a /a\n", 2, "group 'mallory' not found in the image's /etc/group"),
    broken("user-without-passwd", "FROM scratch\nCOPY --chown=app a /a\n", 2, "user 'app' not found in the image's /etc/passwd"),
    broken("destination-below-a-file", BUSYBOX + "COPY a /etc/passwd/a\n", 2, "/etc/passwd"),
    broken("destination-below-a-copied-file", "FROM scratch\nCOPY a /x\nCOPY a /x/y\n", 3, "cannot create the directory '/x'"),
    broken("file-is-a-directory", BUSYBOX + "RUN true\nCOPY d /var/\n", 3, "/var/old", {"d/old": "x\n"}),
    broken("directory-is-a-file", BUSYBOX + "COPY d /etc/\n", 2, "/etc/passwd", {"d/passwd/x": "x\n"}),
    broken("whiteout-by-name", "FROM scratch\nCOPY d /\n", 2, ".wh.", {"d/.wh.x": "x\n"}),
    broken("mode-from-outside", "FROM scratch\nARG M\nCOPY --chmod=$M a /\n", 3, "expected an octal mode", options=("--build-arg", "M=rwx")),
    # ADD
    broken("archive-links-to-what-it-has-not", "FROM scratch\nADD a.tar /x/\n", 2, "entry 'h' is a hard link to 'etc/passwd', which is not an earlier entry",
           {"a.tar": archive({"h": "=> etc/passwd"})}),
    broken("archive-behind-its-own-link", "FROM scratch\nADD a.tar /x/\n", 2, "entry 'l/x' traverses a link from the same archive",
           {"a.tar": archive({"l": "-> /etc", "l/x": "y"})}),
    broken("archive-cut-off", "FROM scratch\nADD a.tar.gz /\n", 2, "a.tar.gz", {"a.tar.gz": archive({"f": bytes(range(256)) * 400, "g": "g" * 99999}, "w:gz")[:600]}),
    broken("nothing-listens-at-the-url", "FROM scratch\nADD http://127.0.0.1:1/file /f\n", 2, "127.0.0.1:1"),
    broken("url-is-not-there", "FROM scratch\nADD http://{server}/file /f\n", 2, "404"),
    broken("checksum-does-not-match", f"FROM scratch\nADD --checksum={NO_SUM} http://{{server}}/v2/ /f\n", 2, "--checksum"),
    # RUN
    broken("run-fails", BUSYBOX + "RUN true\nRUN echo why >&2; exit 42\n", 3, "exit code 42"),
    broken("run-fails-in-exec-form", BUSYBOX + "RUN [\"false\"]\n", 2, "exit code 1"),
    broken("run-is-killed", BUSYBOX + "RUN kill -9 $$\n", 2, "killed by signal 9"),
    broken("run-has-no-program", BUSYBOX + "RUN frobnicate --all\n", 2, "exit code 127"),
    broken("run-has-no-program-in-exec-form", BUSYBOX + "RUN [\"frobnicate\"]\n", 2, "frobnicate"),
    broken("run-is-not-executable", BUSYBOX + "RUN [\"/etc/passwd\"]\n", 2, "/etc/passwd"),
    broken("run-without-a-shell", "FROM scratch\nCOPY a /a\nRUN true\n", 3, "/bin/sh"),
    broken("run-in-a-shell-that-is-not-there", BUSYBOX + "SHELL [\"/bin/fish\", \"-c\"]\nRUN true\n", 3, "/bin/fish"),
    broken("run-as-an-unknown-user", BUSYBOX + "USER mallory\nRUN true\n", 3, "mallory"),
    broken("workdir-is-a-file", BUSYBOX + "WORKDIR /etc/passwd\nRUN true\n", 2, "/etc/passwd"),
    broken("a-later-line-of-a-script", BUSYBOX + "RUN set -e; \\\n  true; \\\n  exit 5\n", 2, "exit code 5"),
    broken("heredoc-fails", BUSYBOX + "RUN <<EOF\nexit 6\nEOF\n", 2, "exit code 6"),
    broken("heredoc-has-no-interpreter", BUSYBOX + "RUN <<EOF\n#!/usr/bin/frob\nEOF\n", 2, "its interpreter is not in the image"),
    broken("secret-is-not-given", BUSYBOX + "RUN --mount=type=secret,id=token,required=true true\n", 2, "--secret id=token"),
    broken("secret-has-no-file", BUSYBOX + "RUN --mount=type=secret,id=t true\n", 2, "/nonexistent", options=("--secret", "id=t,src=/nonexistent")),
    broken("mount-has-no-source", BUSYBOX + "RUN --mount=type=bind,source=none,target=/x true\n", 2, "none"),
    broken("mount-has-no-source-in-a-stage", "FROM busybox:1.36 AS s\nFROM busybox:1.36\nRUN --mount=type=bind,from=s,source=/none,target=/x true\n", 3, "none"),
    broken("mount-is-read-only", BUSYBOX + "RUN --mount=type=bind,target=/x touch /x/y\n", 2, "exit code 1"),
    broken("no-network", BUSYBOX + "RUN --network=none ping -c 1 -W 1 192.0.2.1\n", 2, "exit code 1"),
]
