# A small image that contains only the program, licences and the demonstration policy. Build it in the root of the repository:
#     docker build -t tollgate .
# The image contains no secrets. Pass them as files or variables to `docker run` (docs/running.md).

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# The same program as in the archive of a release. It is static, so the image needs no C library.
RUN cargo xtask dist

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /src/target/dist/root/bin/tollgate /usr/bin/tollgate
COPY --from=build /src/target/dist/root/share/doc/tollgate /usr/share/doc/tollgate
COPY --from=build /src/policies/demo.yaml /etc/tollgate/policy.yaml

# All clients are outside the container, so the listeners use 0.0.0.0. The admin listener stays on loopback: to reach it from
# outside, set TOLLGATE_LISTEN_ADMIN and its tokens.
ENV TOLLGATE_CONFIG=/etc/tollgate/policy.yaml \
    TOLLGATE_LISTEN=0.0.0.0:8080 \
    TOLLGATE_LISTEN_GRPC=0.0.0.0:8081 \
    TOLLGATE_LISTEN_RESP=0.0.0.0:6380 \
    TOLLGATE_LISTEN_ADMIN=127.0.0.1:8088 \
    TOLLGATE_LOG_FORMAT=json
EXPOSE 8080 8081 6380

# `tollgate health` connects to TOLLGATE_LISTEN_ADMIN without TLS. With TLS, leave `admin` out of TOLLGATE_TLS_LISTENERS.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5s CMD ["/usr/bin/tollgate", "health"]

# 65532 is the user `nonroot`. Kubernetes can check `runAsNonRoot` only for a numeric user.
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/bin/tollgate"]
CMD ["serve"]
