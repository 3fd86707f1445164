"""Dockerfiles like those of real projects, for small base images that have the official names."""

from image_corpus_support import Case

ENTRY = ("""#!/bin/sh
set -e
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
  find . \\! -user app -exec chown app '{}' +
  exec su app -s /bin/sh -c "$*"
fi
exec "$@"
""", 0o755)

PROJECTS = [
    Case("python-with-pip", """# syntax=docker/dockerfile:1
FROM python:3.11-slim
ENV PYTHONDONTWRITEBYTECODE=1 \\
    PYTHONUNBUFFERED=1
WORKDIR /code
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
EXPOSE 8000
CMD ["python", "-m", "app"]
""", {"requirements.txt": "flask==3\n", "app/__main__.py": "print()\n", "tests/test.py": "x\n", ".dockerignore": "tests\n.git\n", ".git/HEAD": "x\n"}),
    Case("python-virtual-environment-multi-stage", """FROM python:3.11-slim AS build
RUN python -m venv /venv
ENV PATH=/venv/bin:$PATH
COPY requirements.txt /tmp/
RUN /venv/bin/pip install -r /tmp/requirements.txt
FROM python:3.11-slim
RUN adduser -D -u 2000 runner && mkdir /srv/app && chown runner /srv/app
COPY --from=build /venv /venv
COPY --from=build --chown=2000:2000 /usr/local/lib/python3 /usr/local/lib/python3
ENV PATH="/venv/bin:$PATH"
USER runner
WORKDIR /srv/app
ENTRYPOINT ["python"]
CMD ["app.py"]
""", {"requirements.txt": "torch\n"}),
    Case("c++-with-cmake-multi-stage", """ARG GCC=13
FROM gcc:${GCC} AS build
ARG BUILD_TYPE=Release
WORKDIR /src
COPY CMakeLists.txt ./
COPY src/ src/
RUN cmake -B build -DCMAKE_BUILD_TYPE=${BUILD_TYPE} && cmake --build build -j "$(nproc)"
RUN cmake --install build --prefix /opt/server
FROM alpine:3.19
LABEL org.opencontainers.image.title="server" \\
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /opt/server/ /usr/local/
EXPOSE 9000/tcp 9001/udp
ENTRYPOINT ["/usr/local/bin/server"]
""", {"CMakeLists.txt": "project(server)\n", "src/main.cc": "int main() {}\n", "src/lib.cc": "int lib;\n"}, ("--build-arg", "BUILD_TYPE=Debug")),
    Case("nginx-static-site", """FROM node:20-alpine AS site
WORKDIR /site
COPY package*.json ./
RUN npm ci
COPY . .
RUN npm run build
FROM nginx:1.25-alpine
COPY --from=site /site/dist /usr/share/nginx/html
COPY nginx.conf /etc/nginx/conf.d/default.conf
HEALTHCHECK --interval=30s --timeout=3s CMD wget -qO- http://localhost/ || exit 1
""", {"package.json": "{}\n", "package-lock.json": "{}\n", "src/index.js": "1;\n", "nginx.conf": "server { listen 80; }\n", ".dockerignore": "node_modules\nDockerfile*\n", "node_modules/x": "no\n"}),
    Case("node-multi-stage", """FROM node:20-alpine AS base
ENV NODE_ENV=production
WORKDIR /usr/src/app
FROM base AS deps
COPY package.json package-lock.json ./
RUN npm ci --omit=dev && npm cache clean --force
FROM base AS final
COPY --chown=node:node --from=deps /usr/src/app/node_modules ./node_modules
COPY --chown=node:node . .
USER node
EXPOSE 3000
CMD [ "node", "server.js" ]
""", {"package.json": "{}\n", "package-lock.json": "{}\n", "server.js": "x\n"}, differs={"usr/src": "this base lacks the directory; the program that unpacks the image creates it"}),
    Case("go-to-scratch", """FROM golang:1.22-alpine AS builder
RUN mkdir /user && echo 'nobody:x:65534:65534:nobody:/:' > /user/passwd && echo 'nobody:x:65534:' > /user/group
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY *.go .
RUN CGO_ENABLED=0 GOOS=linux go build -ldflags="-s -w" -o /app .
FROM scratch AS final
COPY --from=builder /user/group /user/passwd /etc/
COPY --from=builder /app /app
USER nobody:nobody
ENTRYPOINT ["/app"]
""", {"go.mod": "module x\n", "go.sum": "", "main.go": "package main\n", "util.go": "package main\n"}),
    Case("distroless-like", """FROM busybox:1.36 AS files
RUN mkdir -p /rootfs/home/nonroot /rootfs/tmp /rootfs/etc/ssl/certs \\
 && echo 'nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin' > /rootfs/etc/passwd \\
 && chown 65532:65532 /rootfs/home/nonroot && chmod 0700 /rootfs/home/nonroot && chmod 1777 /rootfs/tmp
COPY ca.pem /rootfs/etc/ssl/certs/ca-certificates.crt
FROM scratch
COPY --from=files /rootfs/ /
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt HOME=/home/nonroot
USER 65532:65532
WORKDIR /home/nonroot
""", {"ca.pem": "certificate\n"}),
    Case("redis-like-with-an-entrypoint", """FROM alpine:3.19
RUN set -eux; \\
# create the user first, so that its ID is always the same
	addgroup -S -g 999 redis; \\
	adduser -S -D -H -G redis -u 999 redis
ENV REDIS_VERSION 7.2.4
RUN set -eux; \\
	\\
	mkdir -p /usr/src/redis; \\
	echo "$REDIS_VERSION" > /usr/src/redis/version; \\
	cp /usr/src/redis/version /usr/local/bin/redis-server; \\
	find /usr/local/bin -type f -name 'redis*' -exec ln -s redis-server /usr/local/bin/redis-cli ';'; \\
	rm -r /usr/src/redis
RUN mkdir /data && chown redis:redis /data
VOLUME /data
WORKDIR /data
COPY docker-entrypoint.sh /usr/local/bin/
ENTRYPOINT ["docker-entrypoint.sh"]
EXPOSE 6379
CMD ["redis-server"]
""", {"docker-entrypoint.sh": ENTRY}),
    Case("postgres-like-on-debian", """FROM debian:bookworm-slim
RUN set -eux; \\
	groupadd -r postgres --gid=999; \\
	useradd -r -g postgres --uid=999 --home-dir=/var/lib/postgresql --shell=/bin/bash postgres; \\
	install --verbose --directory --owner postgres --group postgres --mode 1777 /var/lib/postgresql
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN [[ $(id -u) = 0 ]] && mkdir /docker-entrypoint-initdb.d && dpkg-query -W -f '${Package}\\n' | grep -c . > /count
ENV LANG en_US.utf8
ENV PGDATA /var/lib/postgresql/data
RUN install --directory --owner postgres --group postgres --mode 1777 "$PGDATA"
VOLUME /var/lib/postgresql/data
COPY docker-entrypoint.sh docker-ensure-initdb.sh /usr/local/bin/
RUN ln -sT docker-ensure-initdb.sh /usr/local/bin/docker-enforce-initdb.sh
ENTRYPOINT ["docker-entrypoint.sh"]
STOPSIGNAL SIGINT
EXPOSE 5432
CMD ["postgres"]
""", {"docker-entrypoint.sh": ENTRY, "docker-ensure-initdb.sh": ENTRY}),
    Case("debian-with-a-usrmerged-destination", """FROM debian:bookworm-slim
COPY --chmod=755 tool /bin/tool
COPY lib.so /lib/x86_64-linux-gnu/
RUN useradd --create-home --uid 1500 dev && su dev -c 'echo mine > ~/mine' && rm -rf /var/lib/apt/lists/* /var/cache/debconf /var/log/*
USER dev
WORKDIR /home/dev/project
COPY --chown=dev:dev . .
""", {"tool": "x\n", "lib.so": "x\n"}, buildah=False, why="buildah creates WORKDIR for root", tree={"usr/bin/tool": (0o755, 0, 0), "usr/lib/x86_64-linux-gnu/lib.so": "x\n",
         "bin": "-> usr/bin", "home/dev/mine": "mine\n", "home/dev/project": (0o755, 1500, 1500), "home/dev/project/tool": (0o644, 1500, 1500)}),
    Case("heredoc-scripts", """# syntax=docker/dockerfile:1
FROM alpine:3.19
RUN <<EOF
set -e
adduser -D web
mkdir -p /srv/www
echo built > /srv/www/index.html
EOF
COPY --chmod=0755 <<'EOF' /usr/local/bin/start
#!/bin/sh
exec httpd -f -h "${ROOT:-/srv/www}"
EOF
COPY <<robots.txt <<humans.txt /srv/www/
User-agent: *
robots.txt
nobody
humans.txt
USER web
CMD ["start"]
""", buildah=False, why="Debian 12's buildah does not support heredocs", tree={"srv/www/index.html": "built\n", "usr/local/bin/start": (0o755, 0, 0), "srv/www/robots.txt": "User-agent: *\n",
         "srv/www/humans.txt": "nobody\n"}, config={"User": "web", "Cmd": ["start"]}),
    Case("cache-mounts-of-a-language", """# syntax=docker/dockerfile:1
FROM golang:1.22-alpine AS build
WORKDIR /src
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=bind,source=go.mod,target=go.mod go mod download
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=bind,target=. ls /go/pkg/mod > /seen && go build -o /bin/server .
FROM alpine:3.19
COPY --from=build /bin/server /seen /bin/
ENTRYPOINT [ "/bin/server" ]
""", {"go.mod": "module x\n", "main.go": "package main\n"}, buildah=False, why="buildah does not accept a relative mount target",
         tree={"bin/seen": "cache\n", "bin/server": (0o755, 0, 0), "go": None}),
    Case("php-like-with-many-volumes-and-args", """ARG VERSION=3.19
FROM alpine:$VERSION
ARG VERSION
ARG UID=1001
ARG GID=1001
LABEL version="$VERSION" maintainer="web@example.org"
RUN addgroup -g $GID php && adduser -u $UID -G php -D php \\
    && mkdir -p /var/www/html /var/log/php && chown -R php:php /var/www /var/log/php
ADD --chown=1001:1001 public /var/www/html
COPY php.ini /usr/local/etc/php/conf.d/
VOLUME ["/var/www/html", "/var/log/php"]
ONBUILD ADD . /var/www/html
STOPSIGNAL SIGQUIT
CMD php-fpm --nodaemonize
""", {"public/index.php": "<?php\n", "php.ini": "memory_limit=1G\n"}),
]
