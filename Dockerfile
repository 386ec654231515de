# A small image with nothing in it but the program. Build it in the repository's folder: docker build -t tollgate .
# No secret is copied in: hand them over as files or variables when it is run (docs/running.md).

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked -p tollgate-cli --bin tollgate

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/tollgate /usr/bin/tollgate
COPY --from=build /src/policies/demo.yaml /etc/tollgate/policy.yaml

# Inside a container other machines are the only ones there are. The admin pages stay on loopback: to reach them from
# outside, set TOLLGATE_LISTEN_ADMIN and its tokens.
ENV TOLLGATE_CONFIG=/etc/tollgate/policy.yaml \
    TOLLGATE_LISTEN=0.0.0.0:8080 \
    TOLLGATE_LISTEN_GRPC=0.0.0.0:8081 \
    TOLLGATE_LISTEN_RESP=0.0.0.0:6380 \
    TOLLGATE_LISTEN_ADMIN=127.0.0.1:8088 \
    TOLLGATE_LOG_FORMAT=json
EXPOSE 8080 8081 6380

# Asks where TOLLGATE_LISTEN_ADMIN says. With TLS, leave the admin listener out of TOLLGATE_TLS_LISTENERS.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["/usr/bin/tollgate", "health"]

# 65532 is `nonroot`; a number, so that Kubernetes can see that it is not root.
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/tollgate"]
CMD ["serve"]
