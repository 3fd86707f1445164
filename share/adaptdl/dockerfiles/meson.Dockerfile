# For a project with a meson.build: it is built and installed below /usr/local.
# BASE_IMAGE has all that it needs, adaptdl's trainer among it, unless the project brings that along as a subproject;
# without one it is built on Debian with LibTorch.
ARG BASE_IMAGE=debian:bookworm
FROM ${BASE_IMAGE}
RUN command -v meson g++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends \
    g++ meson ninja-build pkg-config python3 libtorch-dev && rm -rf /var/lib/apt/lists/*; }
COPY . /source
RUN meson setup /build /source --prefix=/usr/local --buildtype=release && meson install -C /build && rm -rf /build && ldconfig
WORKDIR /project
