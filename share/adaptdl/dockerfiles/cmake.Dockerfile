# For projects with a CMakeLists.txt. Builds the project and installs it under /usr/local.
# BASE_IMAGE must contain everything that the project needs, including adaptdl's trainer unless the project contains it.
# By default, the project is built on Debian with LibTorch.
ARG BASE_IMAGE=debian:bookworm
FROM ${BASE_IMAGE}
RUN command -v cmake g++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends \
    g++ cmake make pkg-config libtorch-dev && rm -rf /var/lib/apt/lists/*; }
COPY . /source
RUN cmake -S /source -B /build -DCMAKE_BUILD_TYPE=Release && cmake --build /build --parallel && cmake --install /build \
    && rm -rf /build && ldconfig
WORKDIR /project
