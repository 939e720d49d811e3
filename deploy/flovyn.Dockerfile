# An image that can replace a Flovyn server: it uses the same ports, environment variables and
# configuration file.
#
#	docker build -f deploy/flovyn.Dockerfile -t perdure-flovyn .
FROM golang:1.26.8 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w -buildid=' -o /out/perdure ./cmd/perdure \
 && mkdir -p /out/app

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/perdure /perdure
COPY --from=build --chown=65532:65532 /out/app /app
USER 65532:65532
WORKDIR /app
EXPOSE 8000 9090
ENTRYPOINT ["/perdure", "serve", "--flovyn-contract"]
