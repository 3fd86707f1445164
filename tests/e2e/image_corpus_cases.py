"""Dockerfiles that exercise every instruction and flag. A case has its own expectations if buildah cannot be the reference."""

import tarfile

from image_corpus_support import Case, archive

BUSYBOX = "FROM busybox:1.36\n"
TEXTS = {"a.txt": "a\n", "b.txt": "b\n", "c.md": "c\n", "dir/x": "x\n", "dir/sub/y": ("y\n", 0o600), "dir/sub/run": ("#!/bin/sh\n", 0o755), "dir/link": "-> sub/y"}
HEREDOC = "Debian 12's buildah does not support heredocs"
MAKES_VOLUMES = "buildah creates the directories of volumes; BuildKit does not"
FLAG = "Debian 12's buildah does not support the flag"

CASES = [
    # FROM, ARG, ENV
    Case("from-scratch-copies-alone", "FROM scratch\nCOPY . /\n", TEXTS),
    Case("arg-before-from", "ARG TAG=1.36\nARG NAME=busybox\nFROM ${NAME}:$TAG\nARG TAG\nRUN echo \"tag=$TAG name=$NAME\" > /seen\n"),
    Case("arg-before-from-from-outside", "ARG TAG=0\nFROM busybox:${TAG}\nARG TAG=2\nRUN echo $TAG > /seen\n", options=("--build-arg", "TAG=1.36")),
    Case("arg-with-fallbacks", "FROM busybox:1.36\nARG A\nARG B=b\nARG C=${A:-none}-${B:+given}\nENV A2=${A:-x} B2=$B C2=$C D=\\$B E='$B'\nRUN env | grep -E '^[A-E]2?=' | sort > /env\n"),
    Case("arg-of-a-stage-is-not-the-next-ones", "FROM busybox:1.36 AS one\nARG X=1\nRUN echo \"$X\" > /x\nFROM busybox:1.36\nRUN echo \"[$X]\" > /y\nCOPY --from=one /x /x\n"),
    Case("env-wins-over-arg", "FROM busybox:1.36\nARG V=arg\nENV V=env\nRUN echo $V > /v\nLABEL v=$V\n", options=("--build-arg", "V=outside")),
    Case("arg-after-env-of-that-name", "FROM busybox:1.36\nENV V=env\nARG V=arg\nRUN echo $V > /v\n",
         buildah=False, why="in buildah, an ARG overrides an earlier ENV, contrary to the Dockerfile reference", tree={"v": "env\n"}),
    Case("env-in-both-forms", BUSYBOX + "ENV a b c\nENV A=1 B=\"two words\" C=three\\ words D='$A'\nENV E=$A-${B}\nENV A=2 F=$A\n"),
    Case("env-is-seen-by-what-follows", BUSYBOX + "ENV DIR=/srv/x FILE=a.txt WHO=12:13\nWORKDIR $DIR\nCOPY --chown=$WHO ${FILE} ./$FILE.copy\nUSER ${WHO}\nEXPOSE ${PORT:-8080}\n"
         "VOLUME $DIR/data\nSTOPSIGNAL ${SIGNAL:-SIGINT}\nLABEL dir=$DIR\n", TEXTS),
    Case("predefined-platform-arguments", "FROM --platform=$TARGETPLATFORM busybox:1.36\nARG TARGETOS\nARG TARGETARCH\nARG BUILDPLATFORM\nRUN echo $TARGETOS $TARGETARCH $BUILDPLATFORM > /p\n",
         options=("--platform", "linux/amd64")),
    Case("proxies-need-no-arg-and-are-not-kept", BUSYBOX + "RUN echo $HTTP_PROXY > /proxy\n", options=("--build-arg", "HTTP_PROXY=http://p:1")),
    # Stages
    Case("stage-on-a-stage", "FROM busybox:1.36 AS base\nRUN mkdir /one && echo 1 > /one/f\nENV IN=base\nFROM base AS next\nRUN echo 2 > /one/g; rm /one/f\nFROM next\nLABEL in=$IN\n"),
    Case("stages-by-number-and-name", "FROM busybox:1.36\nRUN echo zero > /f\nFROM busybox:1.36 as named\nRUN echo one > /f\nFROM scratch\nCOPY --from=0 /f /zero\nCOPY --from=named /f /one\n"),
    Case("copy-from-an-image", "FROM scratch\nCOPY --from=busybox:1.36 /etc/passwd /bin/busybox /taken/\nCOPY --from=busybox:1.36 /var/old /old\n"),
    Case("target-in-the-middle", "FROM busybox:1.36 AS first\nRUN echo f > /f\nFROM first AS second\nRUN echo s > /s\nCMD [\"/s\"]\nFROM nothing:at-all\nRUN false\n", options=("--target", "second")),
    Case("a-stage-nobody-needs-is-not-built", "FROM busybox:1.36 AS unused\nRUN exit 3\nFROM busybox:1.36\nRUN echo ok > /ok\n"),
    Case("copy-from-a-stage-keeps-owners-and-links", "FROM busybox:1.36 AS s\nRUN mkdir -p /d/e && echo f > /d/f && ln -s f /d/l && ln -s /nowhere /d/dangling && chown -R 7:8 /d && chmod 750 /d && chmod 4711 /d/f\n"
         "FROM scratch\nCOPY --from=s /d /d\nCOPY --from=s /d/f /f\n",
         differs={"d": "COPY keeps the mode and owner of a directory in BuildKit; buildah creates it with mode 755"}),
    Case("copy-from-a-stage-through-a-link", "FROM busybox:1.36\nRUN ln -s /var/old /short\nFROM scratch\nCOPY --from=0 /short/file /var/current/sub/deep /got/\n"),
    # COPY
    Case("copy-file-to-file-and-directory", "FROM scratch\nCOPY a.txt /new\nCOPY a.txt /d/\nCOPY a.txt /deep/er/name\n", TEXTS),
    Case("copy-patterns", "FROM scratch\nCOPY *.txt /t/\nCOPY ?.md dir/s*/r* /u/\nCOPY [ab].txt /v/\n", TEXTS),
    Case("copy-directory-is-its-content", "FROM scratch\nCOPY dir /d1\nCOPY dir/ /d2/\nCOPY dir/sub dir/x /d3/\n", TEXTS),
    Case("copy-several-without-a-slash", BUSYBOX + "WORKDIR /app\nCOPY a.txt b.txt /app\nCOPY a.txt b.txt /made\nCOPY a.txt b.txt .\n", TEXTS),
    Case("copy-of-a-pattern-that-matches-nothing", "FROM scratch\nCOPY none* a.txt /d/\nCOPY *.none /e/\n", TEXTS, buildah=False, why="this is an error in buildah, but not in BuildKit",
         tree={"d/a.txt": "a\n", "d/b.txt": None}),
    Case("copy-relative-to-workdir", BUSYBOX + "WORKDIR /w\nCOPY a.txt .\nCOPY a.txt sub/\nCOPY b.txt ../up\nWORKDIR sub\nCOPY c.md ./\n", TEXTS),
    Case("copy-in-json-with-spaces", "FROM scratch\nCOPY [\"with space\", \"other file\", \"/to here/\"]\n", {"with space": "1\n", "other file": "2\n"}),
    Case("copy-chown-numbers", "FROM scratch\nCOPY --chown=10 a.txt /a\nCOPY --chown=10:20 dir /d/\nCOPY --chown=:30 b.txt /b\n", TEXTS,
         buildah=False, why="if only a user or only a group is given, buildah fails or uses 0", tree={"a": (0o644, 10, 10), "d": (0o755, 10, 20), "d/sub/y": (0o600, 10, 20)}),
    Case("copy-chown-pairs", "FROM scratch\nCOPY --chown=10:20 dir /d/\nCOPY --chown=3:4 a.txt /new/dir/a\n", TEXTS),
    Case("copy-chown-names", BUSYBOX + "COPY --chown=app a.txt /a\nCOPY --chown=app:staff dir /d\nCOPY --chown=nobody:567 b.txt /b\nCOPY --chown=77:apps b.txt /c\n", TEXTS),
    Case("copy-chmod", "FROM scratch\nCOPY --chmod=755 a.txt /a\nCOPY --chmod=0600 dir/x /x\nCOPY --chmod=4711 --chown=1:2 b.txt /b\n", TEXTS),
    Case("copy-chmod-in-words", "FROM scratch\nCOPY --chmod=u=rwX,go=rX dir /d\nCOPY --chmod=a+x,o-r a.txt /a\n", TEXTS, buildah=False, why=FLAG,
         tree={"d/x": (0o644, 0, 0), "d/sub": (0o755, 0, 0), "d/sub/run": (0o755, 0, 0), "d/sub/y": (0o644, 0, 0), "a": (0o751, 0, 0)}),
    Case("copy-exclude", "FROM scratch\nCOPY --exclude=*.md --exclude=b.* . /d/\nCOPY --exclude=**/y dir /e\n", TEXTS, buildah=False, why=FLAG,
         tree={"d/a.txt": "a\n", "d/b.txt": None, "d/c.md": None, "d/dir/x": "x\n", "e/x": "x\n", "e/sub/y": None, "e/sub/run": (0o755, 0, 0)}),
    Case("copy-parents", "FROM scratch\nCOPY --parents dir/sub/y a.txt /p/\nCOPY --parents dir/./sub/run /q/\nCOPY --parents **/x /r/\n", TEXTS, buildah=False, why=FLAG,
         tree={"p/dir/sub/y": "y\n", "p/a.txt": "a\n", "p/dir/x": None, "q/sub/run": (0o755, 0, 0), "q/dir": None, "r/dir/x": "x\n"}),
    Case("copy-link", BUSYBOX + "COPY --link a.txt /l/a\nCOPY --link --chown=5:6 dir /l/d/\n", TEXTS, buildah=False, why=FLAG,
         tree={"l/a": "a\n", "l/d/x": (0o644, 5, 6), "l": (0o755, 5, 6)}),
    Case("copy-onto-files-that-are-there", BUSYBOX + "COPY a.txt /etc/passwd\nCOPY b.txt /etc/\nCOPY dir /var/old/\n", TEXTS),
    Case("what-copy-leaves-of-directories-that-are-there", BUSYBOX + "RUN chown app:apps /srv && chmod 2770 /srv\nCOPY a.txt /tmp/a\nCOPY a.txt /srv/a\nCOPY b.txt /root/deep/b\n"
         "USER app\nRUN echo x > /tmp/of-app && echo y > /srv/y && test ! -e /root/deep && stat -c '%a %u' /tmp /srv /root > /tmp/seen\nUSER root\nRUN touch /root/x\n", TEXTS),
    Case("copy-below-a-link-of-the-base", BUSYBOX + "COPY a.txt /var/run/a\nCOPY b.txt /var/current/b\nCOPY dir /var/current/\n", TEXTS),
    Case("copy-dotfiles-and-empty-directories", "FROM scratch\nCOPY . /d/\n", {".env": "x\n", "empty/": b"", ".hidden/f": "f\n", "e/e/e/": b""}),
    Case("copy-modes-of-the-context", "FROM scratch\nCOPY . /d/\n", {"run": ("x\n", 0o755), "secret": ("x\n", 0o400), "shared": ("x\n", 0o664), "closed/": (b"", 0o700), "closed/f": "f\n"}),
    Case("copy-after-user-belongs-to-root", BUSYBOX + "USER app\nCOPY a.txt /a\nCOPY dir /made/by/copy/\n", TEXTS),
    Case("ignore-file", "FROM scratch\nCOPY . /\n", {".dockerignore": "# comment\n*.md\n!keep.md\nnode_modules\n**/*.pyc\ndist/*\n!dist/keep\n/top\n", "x.md": "1", "keep.md": "2",
         "sub/z.md": "3", "node_modules/a/b": "4", "sub/m.pyc": "5", "dist/x": "6", "dist/keep": "7", "top": "8", "sub/top": "9"}),
    Case("ignore-file-of-the-dockerfile", "FROM scratch\nCOPY . /\n", {"Dockerfile.dockerignore": "b*\n", ".dockerignore": "a*\n", "a": "a\n", "b": "b\n"}),
    # ADD
    Case("add-unpacks-archives", "FROM scratch\nADD a.tar /t/\nADD a.tgz /g\nADD a.tbz2 a.txz /many/\n",
         {f"a.{suffix}": archive({"in/": b"", "in/f": (suffix, 0o640, 9), "in/l": "-> f", f"of-{suffix}": "x"}, mode)
          for suffix, mode in (("tar", "w"), ("tgz", "w:gz"), ("tbz2", "w:bz2"), ("txz", "w:xz"))}),
    Case("add-copies-what-is-no-archive", "FROM scratch\nADD a.txt dir /d/\nADD not.tar.gz /n/\n", {**TEXTS, "not.tar.gz": "text\n"}),
    Case("add-over-a-tree-with-owners", BUSYBOX + "ADD --chown=app:apps over.tar /var/old/\nADD over.tar /over/\n",
         {"over.tar": archive({"file": ("new\n", 0o600, 42), "sub/": (b"", 0o711, 42), "sub/more": ("m\n", None, 42)}, kind=tarfile.GNU_FORMAT)}, buildah=False,
         why="buildah keeps the owners that an archive contains in spite of --chown; BuildKit does not",
         tree={"var/old/sub/more": (0o644, 1234, 567), "var/old/file": (0o600, 1234, 567), "over/file": (0o600, 42, 42), "over/sub": (0o711, 42, 42)}),
    Case("add-with-hard-links", "FROM scratch\nADD h.tar /h/\n", {"h.tar": archive({"one": "same\n", "two": "=> one", "d/": b"", "d/three": "=> one"})}),
    Case("add-copies-what-only-looks-like-an-archive", "FROM scratch\nADD a.tar.xz /d/\n", {"a.tar.xz": b"\xfd7zXZ\0" + b"nonsense" * 9}, buildah=False,
         why="buildah treats the file as a damaged archive", tree={"d/a.tar.xz": (0o644, 0, 0)}),
    Case("copy-does-not-unpack", "FROM scratch\nCOPY a.tar /a.tar\n", {"a.tar": archive({"f": "f"})}),
    Case("add-unpack-with-a-value", "FROM scratch\nADD --unpack=false a.tar /a.tar\nADD --unpack=true a.tar /b/\n", {"a.tar": archive({"f": "f"})}, buildah=False, why=FLAG,
         tree={"b/f": "f", "a.tar": (0o644, 0, 0)}),
    Case("add-a-url-with-a-slash-at-its-end", "FROM scratch\nADD http://{server}/v2/ /u/\n", buildah=False, why="buildah does not create the file with mode 600, as BuildKit does", tree={"u/v2": "{}", "u/download": None}),
    Case("add-below-a-link-of-the-base", "FROM debian:bookworm-slim\nADD t.tar /\nRUN test ! -L /lib/foo && cat /usr/lib/foo > /seen && test -x /bin/sh\n", {"t.tar": archive({"lib/foo": "f\n"})},
         buildah=False, why="RUN follows the link, regardless of the path that the layer contains", tree={"seen": "f\n", "lib": "-> usr/lib"}),
    # RUN
    Case("run-forms", BUSYBOX + "RUN echo shell $((1 + 1)) > /shell\nRUN [\"sh\", \"-c\", \"echo $((2 + 2)) exec > /exec\"]\nRUN echo a \\\n  b\\\n  # comment\n  c > /joined\n"),
    Case("run-changes-and-removes", BUSYBOX + "RUN rm -r /var/old/sub && mkdir /var/old/sub && echo n > /var/old/sub/new\nRUN rm -r /usr/share && echo file > /usr/share\n"
         "RUN chmod 700 /home/app && chown app:apps /home/app && rm /etc/group\nRUN mv /opt /moved && ln -s moved /opt\n"),
    Case("run-makes-links-and-modes", BUSYBOX + "RUN echo x > /x && ln /x /y && ln -s x /z && mkfifo /fifo && chmod 2755 /srv && chmod 1777 /opt && chmod 4755 /x && mkdir -m 700 /closed\n"),
    Case("run-as-users", BUSYBOX + "RUN chown app:apps /home/app\nUSER app\nRUN id -u > ~/uid; id -g > /home/app/gid; umask > ~/umask\nUSER 1000:50\nRUN id > /tmp/id\nUSER app:staff\nRUN touch /tmp/staff\nUSER root\nRUN id -un > /who\n"),
    Case("run-mount-bind-and-cache-leave-nothing", BUSYBOX + "RUN --mount=type=bind,source=dir,target=/mnt cp /mnt/x /got\n"
         "RUN --mount=type=cache,target=/cache,id=corpus echo x > /cache/x\nRUN --mount=type=tmpfs,target=/t touch /t/x\nRUN --mount=type=bind,from=busybox:1.36,source=/etc,target=/e cat /e/group > /group\n", TEXTS,
         differs={"mnt": "buildah keeps the mount point", "cache": "buildah keeps the mount point", "t": "buildah keeps the mount point", "e": "buildah keeps the mount point"}),
    Case("run-mount-secret", BUSYBOX + "RUN --mount=type=secret,id=token wc -c < /run/secrets/token > /length\nRUN --mount=type=secret,id=token,target=/key,mode=0444 cut -c 1 /key > /first\n",
         {"token": "12345\n"}, ("--secret", "id=token,src={context}/token"), differs={"key": "buildah keeps the mount point"}),
    Case("run-mount-secret-as-variable", BUSYBOX + "RUN --mount=type=secret,id=token,env=TOKEN echo ${#TOKEN} > /length\nRUN --mount=type=secret,id=none echo optional > /optional\n",
         {"token": "12345"}, ("--secret", "id=token,src={context}/token"), buildah=False, why=FLAG, tree={"length": "5\n", "optional": "optional\n", "run/secrets": None}),
    Case("run-network-none", BUSYBOX + "RUN --network=none tail -n +3 /proc/net/dev | cut -d: -f1 > /net\n", tree={"net": "    lo\n"}, buildah=False, why="buildah's chroot isolation uses the machine's network"),
    Case("run-security-sandbox", BUSYBOX + "RUN --security=sandbox echo s > /s\n", tree={"s": "s\n"}, buildah=False, why=FLAG),
    Case("run-heredocs", "# syntax=docker/dockerfile:1.4\n" + BUSYBOX + "ENV V=v\nRUN <<EOF\necho 1 $V > /one\necho 2 > /two\nEOF\nRUN cat > /three <<'EOF' && cat /three > /four\n$V\nEOF\n"
         "RUN <<-EOT sh -e\n\techo five > /five\n\tEOT\nRUN <<EOF\n#!/bin/awk -f\nBEGIN { print \"six\" > \"/six\" }\nEOF\n", buildah=False, why=HEREDOC,
         tree={"one": "1 v\n", "two": "2\n", "three": "$V\n", "four": "$V\n", "five": "five\n", "six": "six\n"}),
    Case("copy-heredocs", "FROM busybox:1.36\nARG WHO=you\nCOPY --chmod=755 <<run.sh <<'raw' /h/\necho $WHO\nrun.sh\necho $WHO\nraw\nCOPY <<-EOF /named\n\ttabs ${WHO}\n\tEOF\nADD --chown=app <<f /x\nf\n", buildah=False,
         why=HEREDOC, tree={"h/run.sh": "echo you\n", "h/raw": "echo $WHO\n", "named": "tabs you\n", "x": (0o644, 1234, 567)}),
    Case("shell-of-another-kind", BUSYBOX + "SHELL [\"/bin/sh\", \"-e\", \"-x\", \"-c\"]\nRUN echo $- > /flags\nCMD echo cmd\nENTRYPOINT echo entry\n", buildah=False, why="buildah uses /bin/sh for CMD and ENTRYPOINT in spite of SHELL",
         config={"Shell": ["/bin/sh", "-e", "-x", "-c"], "Cmd": ["/bin/sh", "-e", "-x", "-c", "echo cmd"], "Entrypoint": ["/bin/sh", "-e", "-x", "-c", "echo entry"]}),
    Case("workdir-made-and-relative", BUSYBOX + "WORKDIR /a\nWORKDIR b\nWORKDIR ../c/./d\nRUN pwd > pwd\nWORKDIR /home/app\n"),
    Case("workdir-after-user", BUSYBOX + "USER app\nWORKDIR /home/app/work/deep\n", tree={"home/app/work": (0o755, 1234, 567), "home/app/work/deep": (0o755, 1234, 567)},
         buildah=False, why="buildah creates the directory for root; BuildKit creates it for the user"),
    # Instructions that change only the configuration
    Case("labels", BUSYBOX + "LABEL a=1 \"b c\"=\"d e\" f='g' h=\"line\\\n on\"\nLABEL old form here\nLABEL a=2\nMAINTAINER Me <me@example.org>\n"),
    Case("expose-and-volumes", BUSYBOX + "EXPOSE 80 443/tcp 53/udp\nVOLUME /one /two\nVOLUME [\"/three\", \"/with space\"]\n", differs={"three": MAKES_VOLUMES, "with space": MAKES_VOLUMES}),
    Case("expose-a-range", BUSYBOX + "EXPOSE 8000-8002/udp\n", buildah=False, why="buildah does not split the range into ports", config={"ExposedPorts": {f"{port}/udp": {} for port in (8000, 8001, 8002)}}),
    Case("commands", BUSYBOX + "ENTRYPOINT [\"/bin/echo\", \"$HOME\"]\nCMD one && two $X\n"),
    Case("entrypoint-drops-the-bases-cmd", "FROM nginx:1.25-alpine\nENTRYPOINT [\"/mine\"]\n"),
    Case("cmd-keeps-the-bases-entrypoint", "FROM nginx:1.25-alpine\nCMD [\"nginx-debug\"]\n"),
    Case("healthchecks", BUSYBOX + "HEALTHCHECK --interval=5m --timeout=3s --start-period=1m30s --retries=4 CMD wget -q localhost || exit 1\n"),
    Case("healthcheck-in-exec-form", BUSYBOX + "HEALTHCHECK CMD [\"/check\", \"a b\"]\n"),
    Case("healthcheck-none-and-start-interval", "FROM onbuild:1\nHEALTHCHECK NONE\n", {"f": "f\n"}, differs={"data": MAKES_VOLUMES}),
    Case("healthcheck-start-interval", BUSYBOX + "HEALTHCHECK --start-interval=2s CMD x\n", buildah=False, why=FLAG,
         config={"Healthcheck": {"Test": ["CMD-SHELL", "x"], "StartInterval": 2_000_000_000}}),
    Case("stop-signals", BUSYBOX + "STOPSIGNAL 9\nSTOPSIGNAL SIGRTMIN+3\n"),
    Case("onbuild-is-kept", BUSYBOX + "ONBUILD COPY . /app\nONBUILD RUN make -C /app \\\n  all\nONBUILD USER app\n"),
    Case("onbuild-of-a-base-is-run", "FROM onbuild:1\nUSER root\nRUN echo $FROM_BASE > /from-base\n", {"f": "f\n"}, differs={"data": MAKES_VOLUMES}),
    Case("onbuild-of-a-stage-is-run", "FROM busybox:1.36 AS base\nONBUILD RUN echo triggered > /triggered\nFROM base\nRUN cat /triggered > /after\n", buildah=False,
         why="buildah does not run a stage's triggers", tree={"triggered": "triggered\n", "after": "triggered\n"}),
    # Syntax
    Case("lower-case-comments-and-empty-lines", "# a comment\n\nfrom busybox:1.36\n  # another\nrun echo 1 \\\n\n  2 \\\n# within\n  3 > /f\nenv A=1 \\\n    # c\n    B=2\nlabel x=y\n"),
    Case("escape-directive", "# escape=`\nFROM busybox:1.36\nRUN echo a `\n  b > /f\nENV P=C:\\dir\n", buildah=False, why="buildah treats the backslash as an escape character in spite of the directive",
         tree={"f": "a b\n"}, config={"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "P=C:\\dir"]}),
    Case("syntax-directive", "# syntax=docker/dockerfile:1.7-labs\n# check=skip=all\nFROM scratch\nCOPY a.txt /\n", TEXTS),
    Case("windows-line-ends", "FROM busybox:1.36\r\nRUN echo x > /f\r\nENV A=1 \\\r\n  B=2\r\n", buildah=False, why="buildah leaves the carriage return in the command", tree={"f": "x\n"},
         config={"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "A=1", "B=2"]}),
    Case("names-beyond-ascii", "FROM scratch\nCOPY héllo.txt /grüße/\nLABEL größe=ü\n", {"héllo.txt": "ü\n"}),
    Case("label-from-the-command-line", BUSYBOX + "LABEL a=1\n", options=("--label", "a=2", "--label", "b=3")),
    Case("whiteouts-of-the-base", "FROM onbuild:1\nRUN ls /hidden > /seen; test ! -e /gone\n", {"f": "f\n"}, differs={"data": MAKES_VOLUMES}),
]
