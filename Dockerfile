# The image of every stage: one executable. Build: docker build -t tidemark .
# Three stages of the build, so that a change of our own code compiles our own code only.
FROM rust:1.95.0-bookworm AS chef
WORKDIR /src
# The image's compiler is the one of rust-toolchain.toml, which would ask for more components.
ENV RUSTUP_TOOLCHAIN=1.95.0
RUN cargo install cargo-chef --version 0.1.78 --locked

FROM chef AS recipe
COPY . .
RUN cargo chef prepare --bin tidemark --recipe-path recipe.json

FROM chef AS build
COPY --from=recipe /src/recipe.json recipe.json
RUN cargo chef cook --release --locked --package tidemark --recipe-path recipe.json
COPY . .
RUN cargo build --release --locked --package tidemark

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates libssl3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /var/lib/tidemark tidemark \
    && install --directory --owner=tidemark --mode=0700 /var/lib/tidemark/data
COPY --from=build /src/target/release/tidemark /usr/local/bin/tidemark
USER tidemark
# The embedded back ends, where they are used, keep their data here: it is a volume's place, wherever the configuration
# file is. A volume takes its owner from the folder: without one it would be root's.
ENV TIDEMARK__DATA__DIR=/var/lib/tidemark/data
WORKDIR /var/lib/tidemark
# The API, and metrics with readiness.
EXPOSE 8080 9464
ENTRYPOINT ["tidemark"]
CMD ["run"]
