# For projects with a meson.build. Builds the project and installs it under /usr/local.
# BASE_IMAGE must contain everything that the project needs, including adaptdl's trainer unless the project contains it as
# a subproject. By default, the project is built on Debian with LibTorch.
ARG BASE_IMAGE=debian:bookworm
FROM ${BASE_IMAGE}
RUN command -v meson g++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends \
    g++ meson ninja-build pkg-config python3 libtorch-dev && rm -rf /var/lib/apt/lists/*; }
COPY . /source
RUN meson setup /build /source --prefix=/usr/local --buildtype=release && meson install -C /build && rm -rf /build && ldconfig
WORKDIR /project
