# The commands of this project. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

GO      ?= go
BIN     := bin
TOOL    := $(GO) tool -modfile=tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 20s
BENCH   ?= .
SOAK    ?= 10m
TOPOLOGY ?= standalone
SEED    ?= 0

.PHONY: help build gen test race integration bench bench-guard fuzz lint verify demo soak

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

build: ## build every command into bin/
	@mkdir -p $(BIN)
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

gen: ## regenerate gen/ from proto/
	$(TOOL) buf generate

test: ## all tests with the race detector, on the embedded store and a real Redis
	@.ci/with-redis-notice sh -c '$(GO) test -race -timeout 20m ./... && $(GO) -C deploy test ./...'

race: test ## the same as test: the race detector is always on

integration: ## only the tests that start real processes
	@.ci/with-redis-notice $(GO) test -race -count=1 -timeout 20m ./integration/...

soak: ## faults of every kind under traffic on real processes: SOAK=10m TOPOLOGY=standalone|cluster SEED=n
	$(GO) test ./integration/soak -run TheTierSurvives -count=1 -v -timeout 0 -soak $(SOAK) -topology $(TOPOLOGY) -seed $(SEED)

bench: ## the benchmarks, each beside its baseline; BENCH=Ingest picks some
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -p 1 -timeout 30m ./...

bench-guard: ## fails if a ratio or an allocation count that the design rests on is lost
	$(GO) test -run 'Alloc' -bench '^BenchmarkGuard$$' -benchtime 1x -p 1 ./ranking ./store/... ./lookupsvc/...

fuzz: ## every fuzz target for FUZZTIME each
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$pkg; \
	  done; done

lint: ## golangci-lint (with the arrows between packages), buf lint and buf breaking
	$(TOOL) golangci-lint run ./...
	cd deploy && $(GO) tool -modfile=../tools/go.mod golangci-lint run --config ../.golangci.yml ./...
	$(TOOL) buf lint
	$(TOOL) buf breaking --against proto/baseline/v1alpha1.binpb

verify: ## regenerate and diff, check module files, lint, manifests and alert rules
	$(MAKE) gen
	$(GO) mod tidy -diff
	$(GO) -C deploy mod tidy -diff
	@git diff --exit-code -- gen || { echo "gen/ is stale: run 'make gen' and commit"; exit 1; }
	$(MAKE) lint
	$(GO) -C deploy test -run 'Overlay|PrometheusRule|Fire' ./...

demo: build ## a pod on the embedded store plays the bundled trace and answers lookups
	@examples/demo
