# CI calls test and lint as they are: what passes here passes there.

# Modules of ours besides the linters': the library, and each example in one of
# its own, as an embedder's service is.
modules := . $(patsubst %/go.mod,%,$(wildcard examples/*/go.mod))
with_redis = REDIS_SERVER=$$(scripts/redis) && export REDIS_SERVER &&
tool = tool -modfile=$(CURDIR)/tools/go.mod

.DEFAULT_GOAL := help
.PHONY: help run test chaos bench fuzz lint redis

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-6s %s\n", $$1, $$2 }' Makefile

run: ## Run a replica with everything in it, Redis included (settings: ARGS=-h)
	@go run ./cmd/ingest $(ARGS)

test: ## Run every test but the random storm with the race detector on a Redis of its own
	@for module in $(modules); do scripts/test $$module -race -timeout 5m -skip '^TestEverythingAtOnce$$' ./... || exit 1; done

chaos: ## Run the fault scenarios and the random storm, telling what happens
	@$(with_redis) go test -race -count=1 -v -timeout 10m ./chaos/

bench: ## Run the benchmarks
	@$(with_redis) go test -run '^$$' -bench . -benchmem -timeout 30m ./...

fuzz: ## Fuzz each decoder for FUZZTIME (20s)
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file func; do \
		go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(or $(FUZZTIME),20s) "$$(dirname "$$file")" || exit 1; \
	done

lint: ## Check format, vet, staticcheck, documentation, modules, file sizes
	@unformatted=$$(gofmt -l .) && test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	@for module in $(modules); do \
		go -C $$module vet ./... && \
		go -C $$module $(tool) staticcheck ./... && \
		(cd $$module && go $(tool) revive -config $(CURDIR)/tools/revive.toml -set_exit_status ./...) || exit 1; \
	done
	@for module in $(modules) tools; do go -C $$module mod tidy -diff || exit 1; done
	@long=$$(find . -name '*.go' -not -path './.cache/*' -exec awk 'END { if (NR > 500) print FILENAME ": " NR " lines" }' {} \;) && \
		test -z "$$long" || { echo "over 500 lines: $$long"; exit 1; }
	@echo "lint: clean"

redis: ## Find or fetch a redis-server for the tests, print its path
	@scripts/redis
