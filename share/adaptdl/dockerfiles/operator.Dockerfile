# Image of AdaptDL's operator. The build context must be the root of the source tree.
FROM debian:bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    g++ meson ninja-build pkg-config coinor-libcbc-dev doctest-dev libarchive-dev libboost-dev libbz2-dev libcli11-dev \
    libcurl4-openssl-dev libdeflate-dev libfmt-dev liblzma-dev libnlopt-dev libprotozero-dev libqhull-dev libseccomp-dev \
    libssl-dev libxxhash-dev libyaml-cpp-dev libzstd-dev nlohmann-json3-dev zlib1g-dev
# The cache mount keeps compiled objects between builds.
RUN --mount=type=bind,target=/source --mount=type=cache,id=adaptdl-operator,target=/build,sharing=locked \
    meson setup /build /source -Dtrainer=disabled && ninja -C /build cli/adaptdl && cp /build/cli/adaptdl /usr/local/bin

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends coinor-libcbc3 libcurl4 libfmt9 libnlopt0 libqhull-r8.0 \
    libseccomp2 libssl3 libxxhash0 libyaml-cpp0.7 && rm -rf /var/lib/apt/lists/*
COPY --from=build /usr/local/bin/adaptdl /usr/local/bin/
COPY share/adaptdl /usr/local/share/adaptdl
USER 65532
ENTRYPOINT ["adaptdl"]
