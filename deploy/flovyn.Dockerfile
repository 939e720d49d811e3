# An image that keeps the contract of a Flovyn server: the same ports, variables and file.
#
#	docker build -f deploy/flovyn.Dockerfile -t perdure-flovyn .
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -o /perdure ./cmd/perdure

FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /perdure /perdure
WORKDIR /app
EXPOSE 8000 9090
ENTRYPOINT ["/perdure", "serve", "--flovyn-contract"]
