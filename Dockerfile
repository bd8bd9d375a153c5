# freshet as an image: one static program, certificates, and a directory for the embedded event log. No shell.
#
#   docker build -t freshet --build-arg VERSION=v1.2.0 .
#   docker run -v ./freshet.yaml:/etc/freshet/freshet.yaml:ro -v freshet:/var/lib/freshet freshet
#
# `run` keeps its checkpoint in ./freshet-data, so in /var/lib/freshet, which must outlive the container. With Kafka,
# `reader` and `invalidator` keep nothing here. For a health check use `/freshet status`; in Kubernetes /livez and
# /readyz on admin.metrics_listen.
FROM golang:1.26.8 AS build
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/freshet ./cmd/freshet
RUN mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/freshet /freshet
COPY --from=build --chown=65532:65532 /out/data /var/lib/freshet
USER 65532:65532
WORKDIR /var/lib/freshet
VOLUME /var/lib/freshet
# admin.listen and admin.metrics_listen, where the configuration lets them be reached
EXPOSE 8686 9090
ENTRYPOINT ["/freshet"]
CMD ["run"]
