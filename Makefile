# CI calls these as they are, all but test-packs of test-all: what passes here passes there.

# Modules of ours, which go.work ties: the library alone is in the root's, so that an embedder takes
# over no dependency of anything else.
modules := . orphan/mongodb availability cmd chaos bench test tools deploy test/browser $(patsubst %/go.mod,%,$(wildcard examples/*/go.mod))
# Those that take longest begin first.
quick := $(patsubst %,./%/...,chaos cmd availability orphan/mongodb $(patsubst %/go.mod,%,$(wildcard examples/*/go.mod))) ./...
# Of the measuring code, of real Prometheus and of real browsers nobody needs to hear in five minutes.
slow := ./bench/... ./deploy/... ./test/browser/...
# The race detector is for what is shared: the libraries, and the programs' own parts.
raced := $$(go list ./... | grep -v /internal/docs) ./orphan/mongodb/... ./availability/... \
	./cmd/internal/... ./cmd/ingest/internal/... ./cmd/availability/internal/...
# It has no tests: those of the library run it.
linted = $(modules) internal/testservers/ferret
# Tests and chaos run on Redis 7.0 or newer; SERVER=8 or SERVER=valkey: on another.
with_redis = REDIS_SERVER=$$(scripts/redis $(SERVER)) && export REDIS_SERVER &&
with_servers = $(with_redis) FERRET_SERVER=$$(scripts/ferret) && export FERRET_SERVER && \
	POSTGRES_BIN=$$(scripts/postgres) && export POSTGRES_BIN &&
chaos = $(with_servers) ROLLCALL_REPORT=$(CURDIR)/.cache/chaos/$@
chaos_suites = ./chaos/ ./chaos/orphans/ ./chaos/availability/ ./chaos/cluster/
# Minutes each: everything at random, and each alert beside its fault on a real Prometheus.
every_alert = ^TestEveryAlertFiresAlone$$
minutes = ^TestEverythingAt|$(every_alert)
# Of a real server, value after value, key after key.
poisons = ^TestAnyValueInAnyKey|^TestWhatAnEnemyWritesByHand
search = ^TestSearch(OfPoisonedKeys)?$$
searched = ./internal/guard/doubt/ ./chaos/search/ ./chaos/orphans/search/ ./chaos/availability/search/
lint = $(CURDIR)/.cache/lint
revive = -config $(CURDIR)/tools/revive.toml -set_exit_status
comma := ,
tags = failpoints,mutants,colyseus,mixed,owners,packs
tagged = $$(git grep -lE '^//go:build .*\b($(subst $(comma),|,$(tags)))\b' '*.go' | xargs -n1 dirname | sort -u | sed 's|^|./|')

.DEFAULT_GOAL := help
.PHONY: help run demo cleanup-demo availability fleet alerts image reproducible vulncheck test test-all test-race test-slow test-colyseus test-packs test-node test-owner mixed chaos chaos-short chaos-soak chaos-mutants search model bench bench-micro fuzz lint redis

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

# On a terminal the program is in a group of its own: Ctrl-C stops it alone, and make ends with its status.
run: ## Run a replica for this machine alone, on REDIS_URL or on a Redis inside it (settings: ARGS=-h)
	@[ -x .cache/ingest ] || echo 'compiling; the first time takes some minutes' >&2
	@go build -o .cache/ingest ./cmd/ingest
	@export REDIS_URL="$${REDIS_URL:-embedded}" INGEST_ADDR="$${INGEST_ADDR:-127.0.0.1:5027}"; \
		if [ -t 0 ]; then set -m; .cache/ingest $(ARGS); else exec .cache/ingest $(ARGS); fi

demo: ## Watch replicas die, join and stop under 300 simulated devices, for half a minute
	@cd cmd/ingest && exec go test -count=1 -run '^TestShow$$' -watched

cleanup-demo: ## Watch the clean-up worker beside a made-up shop that leaks, for a quarter of a minute
	@cd cmd/cleanup && exec go test -count=1 -run '^TestShow$$' -watched

availability: ## Watch who can take work while apps, a replica, Redis and Postgres die, for half a minute (on a private Postgres and Redis)
	@REDIS_SERVER=$$(scripts/redis) POSTGRES_BIN=$$(scripts/postgres) && export REDIS_SERVER POSTGRES_BIN && \
		cd cmd/availability && exec go test -count=1 -run '^TestShow$$' -watched

fleet: ## Bring up a small fleet with simulated devices and a Prometheus with all alerts, to look at; Ctrl-C ends it
	@$(with_redis) go -C deploy test -c -o ../.cache/fleet ./live && cd deploy/live && \
		{ if [ -t 0 ]; then set -m; fi; ../../.cache/fleet -test.run '^TestShow$$' -watched; }

alerts: ## Cause each fault that an alert is about, and see that it fires alone, on a real Prometheus (minutes; RUN=name of an alert)
	@$(with_servers) go -C deploy test -count=1 -v -timeout 40m -parallel 6 \
		-run '$(every_alert)$(if $(RUN),/^scenes$$/^$(RUN)$$)' ./live/

image: ## Build the image twice, compare, and run each program out of it (needs root and buildah)
	@deploy/container/check

reproducible: ## Build a program from two folders, once with an empty cache, and compare (PROGRAM=rollcall)
	@scripts/reproducible $(PROGRAM)

vulncheck: ## Look for known vulnerabilities in what is called (says so where the database cannot be reached)
	@scripts/vulncheck $(modules)

test: ## Run the tests of every package on a Redis, a FerretDB and a PostgreSQL of their own (five minutes on two cores)
	@echo 'every package on servers of its own: five minutes on two cores, twelve the first time; make test-all has the rest'
	@scripts/test $@ -short -timeout 8m -skip '$(minutes)|$(poisons)' $(quick)

test-all: test-race test-slow test-colyseus test-packs test-node mixed ## Run what make test leaves out: a quarter of an hour with -j2 -O

test-race: ## Run the libraries, and the quick rows of chaos, with the race detector
	@scripts/test $@ -race -short -timeout 8m -skip '$(search)' $(raced)
	@scripts/test $@ -race -short -timeout 8m -run '^TestMatrix$$' $(chaos_suites)
	@scripts/test $@ -race -tags failpoints ./internal/failpoint/

test-slow: ## Run the searches in full, and the tests of measurements, alerts, manifests and pages
	@scripts/test $@ -timeout 8m -run '$(search)|$(poisons)' $(searched)
	@scripts/test $@ -short -timeout 8m -skip '$(minutes)' $(slow)

test-colyseus: ## Run the sweeps beside real Colyseus servers, three versions (needs Node 20 and npm; VERSION=0.16 RUN=name of a test)
	@COLYSEUS=$$(scripts/colyseus) && export COLYSEUS && { test -z "$$COLYSEUS" || \
		scripts/test $@ -race -tags colyseus -parallel 8 -timeout 8m -run '$(RUN)$(if $(VERSION),/^$(VERSION)$$)' ./test/colyseus/; }

test-packs: ## Run the packs of rules beside the libraries they are for (needs Node 20 and npm, and Debian for some; RUN=name of a test)
	@PACKS=$$(scripts/packs) && export PACKS && { test -z "$$PACKS" || { $(with_redis) \
		go test -race -count=1 -vet=off -tags packs -parallel 4 -timeout 15m -run '$(RUN)' ./test/packs/; }; }

test-node: ## Run the tests of clients/node, what every owner has to pass, and the rows of chaos with Node owners (needs Node 20 and npm; SERVER=8, SERVER=valkey)
	@NODE=$$(scripts/node) && export NODE && { test -z "$$NODE" || { $(with_redis) (cd "$$NODE" && node --test test/*.test.js) && \
		go test -race -count=1 -vet=off -tags owners -parallel 6 -timeout 15m ./test/owners/ && \
		go test -race -count=1 -vet=off -tags owners -timeout 15m -run '^TestMatrixWithNodeOwners$$' ./chaos/; }; }

test-owner: ## Run what every owner has to pass on yours, in any language, from this folder: OWNER='python3 mine.py' RUN=name of a case (docs/protocol.md)
	@test -n "$(OWNER)" || { echo "make test-owner OWNER='python3 mine.py': see docs/protocol.md" >&2; exit 2; }
	@$(with_redis) export OWNER='$(OWNER)' FOLDER='$(CURDIR)' && go test -count=1 -vet=off -tags owners -timeout 15m \
		-v -run '^TestOwnersConform$$/^owner$$/$(RUN)' ./test/owners/

mixed: ## Run replicas of the last release beside those of this checkout, on one Redis (rests until there is a tag)
	@RELEASED=$$(scripts/released) && export RELEASED && { test -z "$$RELEASED" || \
		scripts/test $@ -race -tags mixed -timeout 8m ./test/mixed/; }

chaos: ## Break things for about an hour: every row of the matrix, then everything at random (SERVER=8, SERVER=valkey)
	@$(chaos) ROLLCALL_RECORD=$(CURDIR)/chaos/record.csv ROLLCALL_DURATION=$(or $(DURATION),10m) go test -race -count=1 -v -timeout 90m -run . -p 1 $(chaos_suites)

chaos-short: ## Break things for a minute: the rows of the matrix that are part of test
	@$(chaos) go test -race -count=1 -v -short -timeout 5m -run '^TestMatrix$$' -p 1 $(chaos_suites)

chaos-soak: ## Break everything at random for DURATION (15m), on one server, then with Postgres, then on Clusters (SERVER=8)
	@$(chaos) ROLLCALL_RECORD=$(CURDIR)/chaos/record.csv ROLLCALL_DURATION=$(or $(DURATION),15m) go test -race -count=1 -v -timeout 24h -run '^TestEverythingAtRandom$$' -p 1 ./chaos/ ./chaos/availability/ ./chaos/cluster/

chaos-mutants: ## Weaken the guarded code in each of the known ways; passes if the suite catches every one
	@$(chaos) go test -count=1 -v -tags mutants -timeout 90m -run '^Test(Search)?Mutants$$' -p 1 $(chaos_suites)

search: ## Look at random for events after which something living is deleted or unroutable, something dead stays, nobody leads, or availability is wrong (STEPS=1000000, SEED=one episode, ONLY=./chaos/search/)
	@$(with_redis) POSTGRES_BIN=$$(scripts/postgres) && export POSTGRES_BIN && ROLLCALL_STEPS=$(or $(STEPS),1000000) ROLLCALL_SEED=$(SEED) \
		go test -count=1 -v -timeout 24h -run '$(search)' $(or $(ONLY),$(searched))

bench: ## Measure floor, peers and ours side by side, in 25 minutes, into bench/results.txt (ARGS="-size=small -only=sweep": only shown)
	@$(with_redis) export REDIS8_SERVER=$$(scripts/redis 8) POSTGRES_BIN=$$(scripts/postgres) && \
		go test -count=1 -v -timeout 3h -run '^TestMeasure$$' ./bench/ -args -size=default $(or $(ARGS),-out=$(CURDIR)/bench/results.txt)

bench-micro: ## Run Go's benchmarks, for benchstat (COUNT=1)
	@$(with_redis) go test -run '^$$' -bench . -benchmem -count $(or $(COUNT),1) -timeout 30m $(quick)

fuzz: ## Fuzz each decoder for FUZZTIME (20s)
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | while IFS=: read -r file func; do \
		go test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(or $(FUZZTIME),20s) "$$(dirname "$$file")" || exit 1; \
	done

model: ## Search all states of the models, as they are and without each of their rules (needs gcc; finds or fetches spin)
	@model/check

# Tags change only the packages that have files with them.
lint: ## Check format, file sizes, width of comments, vet, staticcheck, documentation, modules
	@unformatted=$$(gofmt -l .) && test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	@long=$$(find . -name '*.go' -not -path './.cache/*' -exec awk 'END { if (NR > 500) print FILENAME ": " NR " lines" }' {} \;) && \
		test -z "$$long" || { echo "over 500 lines: $$long"; exit 1; }
	@wide=$$(git ls-files '*.go' '*.lua' | xargs awk '/^[ \t]*(\/\/|--) / && length($$0) > 100 { print FILENAME ":" FNR }') && \
		test -z "$$wide" || { echo "comments over 100 columns: $$wide"; exit 1; }
	@go -C tools build -o $(lint)/ tool
	@for module in $(filter-out test tools,$(modules)); do \
			go -C $$module vet ./... && \
			(cd $$module && $(lint)/staticcheck ./... && $(lint)/revive $(revive) ./...) || exit 1; \
		done; \
		GOWORK=off go -C internal/testservers/ferret vet ./... && (cd internal/testservers/ferret && $(lint)/revive $(revive) ./...) && \
		go vet -tags $(tags) $(tagged) && $(lint)/staticcheck -tags $(tags) $(tagged)
	@for module in $(linted); do go -C $$module mod tidy -diff || exit 1; done
	@echo "lint: clean"

redis: ## Find or fetch a redis-server for the tests, print its path
	@scripts/redis
