# Perdure. `make` without a target lists the targets. Every target is a plain command that also
# works without make. `make check` runs the same checks as CI.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Variables can be set on the command line: `make sim SEEDS=100000`, `make microbench BENCH=Commit`,
# `make test PKG=./internal/engine`.
PKG    ?= ./...
SEEDS  ?= 20000
STORM  ?= 1000000
BENCH  ?= .
COUNT  ?= 1
FAULTS ?= 60
SEED   ?= 0
FILES  ?=

GO_FILES = $$(git ls-files --cached --others --exclude-standard '*.go' ':!*.pb.go' ':!*.gen.go' | while read -r f; do [ ! -f "$$f" ] || echo "$$f"; done)

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z-]*:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile everything; the commands go to dist/
	go build ./...
	@if [ -d cmd ]; then mkdir -p dist && CGO_ENABLED=0 go build -trimpath -o dist/ ./cmd/...; fi

.PHONY: fmt
fmt: .bin/gofumpt ## format all Go files with gofumpt
	@files=$(GO_FILES); [ -z "$$files" ] || .bin/gofumpt -l -w $$files

.PHONY: vet
vet: ## go vet, including files with build tags, and perdurevet on our workflows and the examples
	go vet ./...
	go vet -tags long ./...
	@mkdir -p .bin && go build -o .bin/perdurevet ./cmd/perdurevet
	go vet -vettool=$(CURDIR)/.bin/perdurevet -tags long ./...

.PHONY: lint
lint: .bin/golangci-lint ## golangci-lint with .golangci.yml
	.bin/golangci-lint run ./...

.PHONY: test
test: ## tests with the race detector; starts its own PostgreSQL (PKG=./internal/engine: only this)
	go test -race -timeout 20m $(if $(filter ./...,$(PKG)),$$(go list ./... | grep -vE '/internal/(chaos|bench|crashwalk|e2e|txtest)$$'),$(PKG))

.PHONY: test-deep
test-deep: ## the tests that break processes, servers and connections again and again, as CI runs them
	scripts/test.sh deep

.PHONY: test-race
test-race: ## the concurrent packages with the race detector, as CI runs them
	scripts/test.sh race

.PHONY: test-long
test-long: ## crash rounds, chaos and other tests that are too slow for every change
	PERDURE_TEST_QUIET=1 go test -p 1 -timeout 60m ./internal/chaos ./internal/cli ./internal/crashwalk ./internal/e2e ./internal/flovyn ./internal/store/partitioned ./internal/store/postgres ./internal/txtest ./internal/bench
	go test -tags long -run Long -timeout 60m $(PKG)
	go test -race -timeout 30m ./examples/... ./internal/corpus ./internal/sim ./internal/store/partitioned ./internal/store/postgres
	go test -race -timeout 60m -run "$$(awk '!/^#/ && $$3 != "deep" { printf "%s%s", n++ ? "|" : "^(", $$2 } END { print ")$$" }' scripts/sequential.txt)" $$(awk '!/^#/ && $$3 != "deep" { print "./" $$1 }' scripts/sequential.txt | sort -u)
	PERDURE_TEST_DIAL=1 go test -race -count 1 -timeout 30m .

.PHONY: clients
clients: ## compile and test the clients that are generated from the OpenAPI document
	scripts/clients.sh

.PHONY: test-dial
test-dial: ## the suites of apps, and the examples, with a server between every app and its engine
	PERDURE_TEST_DIAL=all go test -count 1 -p 1 -timeout 30m . ./internal/e2e ./internal/txtest ./examples/...

.PHONY: fuzz
fuzz: ## 100,000 malformed inputs each: REST, gRPC, Flovyn, configuration, tokens, the query language, frames between nodes
	go test -count 1 -timeout 60m -run FuzzRequests ./internal/restapi -rounds=1200
	go test -count 1 -timeout 60m -run FuzzCalls ./internal/grpcapi -rounds=600
	go test -count 1 -timeout 60m -run FuzzBundle ./internal/grpcapi -rounds=600
	go test -count 1 -timeout 60m -run TestMalformedCalls ./internal/flovyn -rounds=1200
	go test -run XXX -fuzz FuzzConfig -fuzztime 100000x ./internal/cli
	go test -run XXX -fuzz FuzzToken -fuzztime 100000x ./internal/authn/jwt
	go test -run XXX -fuzz FuzzParse -fuzztime 100000x ./internal/query
	go test -run XXX -fuzz FuzzFrame -fuzztime 100000x ./internal/engine/crew

.PHONY: fuzz-rest
fuzz-rest: ## requests that schemathesis makes from the OpenAPI document; compares all answers with it (EXAMPLES=100)
	scripts/fuzz-rest.sh

.PHONY: storm
storm: ## a million timers due at the same moment, on SQLite and on PostgreSQL (STORM=1000000)
	go test -tags long -run LongTimerStorm -count 1 -v -timeout 60m ./internal/e2e -storm=$(STORM) -late=1s

.PHONY: bank
bank: ## move money between locked accounts while processes are killed, stopped, drained and cut off
	go test -tags long -run LongBank -count 1 -v -timeout 30m ./internal/chaos

.PHONY: chaos
chaos: ## three nodes, four workers and eight clients under fire (FAULTS=60 SEED=0: a random one)
	go test -tags long -run LongCluster -count 1 -v -timeout 4h ./internal/chaos -cluster-faults=$(FAULTS) -cluster-seed=$(SEED) $(CHAOSFLAGS)

.PHONY: sim
sim: ## seeded simulation of a cluster (SEEDS=20000)
	go test ./internal/sim -run Seed -count 1 -timeout 60m -seeds=$(SEEDS)

.PHONY: mutants
mutants: ## plant known bugs, one by one, and check that the suite finds each (FILES=engine/lane, hours for all)
	go test -tags mutants -count 1 -run 'TestMutantsCompile$$' ./internal/mutants
	go test -tags mutants -count 1 -timeout 12h -v -run 'TestMutants$$' ./internal/mutants -files='$(FILES)'

.PHONY: bench
bench: ## compare with DBOS, River, Restate and Temporal, and check our bars (BENCHFLAGS="-store sqlite -rounds 5")
	cd bench && go run . $(BENCHFLAGS)

.PHONY: microbench
microbench: ## Go benchmarks of this module (BENCH=regexp, COUNT=n)
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) -timeout 60m $(PKG)

.PHONY: examples
examples: ## compile, vet and test the example programs
	@if [ ! -d examples ]; then echo "no examples yet"; exit 0; fi; \
	go build -o /dev/null ./examples/... && go vet ./examples/... && go test -timeout 10m ./examples/...

.PHONY: check
check: ## everything that CI runs
	./.ci/run

.PHONY: generate
generate: ## regenerate the committed generated code
	go generate ./...

.PHONY: tools
tools: ## install the pinned tools into .bin/
	scripts/tools.sh

.bin/gofumpt .bin/golangci-lint: scripts/tools.sh
	scripts/tools.sh $(@F)
	@touch $@
