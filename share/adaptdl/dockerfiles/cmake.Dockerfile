# For a project with a CMakeLists.txt: it is built and installed below /usr/local.
# BASE_IMAGE has all that it needs, adaptdl's trainer among it, unless the project brings that along; without one it is
# built on Debian with LibTorch.
ARG BASE_IMAGE=debian:bookworm
FROM ${BASE_IMAGE}
RUN command -v cmake g++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends \
    g++ cmake make pkg-config libtorch-dev && rm -rf /var/lib/apt/lists/*; }
COPY . /source
RUN cmake -S /source -B /build -DCMAKE_BUILD_TYPE=Release && cmake --build /build --parallel && cmake --install /build \
    && rm -rf /build && ldconfig
WORKDIR /project
