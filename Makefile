# `make demo` and `make test` need Go and make, nothing else. What the other targets need beyond that, they skip with one
# line when it is absent, except in CI, where CI=true: there it is an error.

GO       ?= go
FUZZTIME ?= 10s
NAMES    ?=

# `work` is every package of every module in go.work; ./... is the root module's alone.
ALL  := work
# Tests of what is written for Kubernetes and Grafana, by types that take a minute to compile for each system, and are the same on all.
SAME := launcher/export/exporttest\|launcher/metrics/dashboardtest
ROOT := github.com/swansong-go/swansong

.DEFAULT_GOAL := help
.PHONY: help demo demo-launcher test servers race nested bench gate cover fuzz soak soak-eventloop model mutants lint tidy tidy-check test-integration-shutdown test-integration-shutdown-race proto traces kubernetes ci

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without the workspace, so that nothing is downloaded for modules that take no part, and so that the root is built with
# the versions that its users get.
demo test: export GOWORK = off

demo: ## a web service under load, stopped in three ways; on a terminal, it then stays open until ^C
	@set -x; if [ -t 0 ] && [ -t 1 ]; then $(GO) run ./examples/webservice -open; else $(GO) run ./examples/webservice; fi

demo-launcher: ## two groups of processes under load: replaced, killed, hung, late; and what was lost
	$(GO) run ./launcher/demo

test: ## the tests of the root module
	@skipped=; [ -e bin/lsp/gopls ] || skipped="gopls "; \
	{ [ -e bin/lsp/node_modules/.package-lock.json ] && command -v node >/dev/null; } || skipped="$${skipped}those-on-node "; \
	[ -z "$$skipped" ] || echo "test: real language servers are skipped: $${skipped}(make servers installs them, with npm those on node)"
	$(GO) test ./...
	$(GO) test -gcflags=-l -run '^TestReport_SitesAndAges$$|^TestTrace_LateReleases$$' ./ctxshutdown # as in a debugger: nothing is inlined

servers: ## install the language servers that the tests of lspconn stop, pinned, into bin/lsp
	tools/lsp/install

# Not vet, exporttest and dashboardtest: they start no goroutine, and type checkers and the types of Kubernetes take minutes
# there. Nor are the others vetted, which lint does.
race: ## the tests of all modules under the race detector
	@if [ -z "$$CI" ] && [ "$$($(GO) env CGO_ENABLED)" = 0 ]; then echo "race: skipped, it needs a C compiler"; exit; fi; \
	list=$$($(GO) list $(ALL)) || exit 1; \
	set -x; $(GO) test -race -vet=off $$(echo "$$list" | grep -v '^$(ROOT)/\(vet\|$(SAME)\)')

# Not from the cache: some of these tests read files outside of their module, which it does not look at.
nested: ## the tests of the nested modules
	$(GO) test -count=1 $$($(GO) list -m -f '{{.Path}}/...' | grep -v '^$(ROOT)/\.\.\.$$')

bench: ## the benchmark tables of the README, written to docs/benchmarks.md
	$(GO) run ./bench -write
	$(GO) run ./httpdrain/internal/measure -write
	$(GO) run ./launcher/internal/measure -write

gate: ## fail if what was reached in speed has been lost: ratios, and exact allocations
	$(GO) run ./bench -gate

cover: ## coverage of the core, whose every uncovered line is explained; of all with ARGS=-all
	$(GO) run ./internal/cmd/cover $(ARGS)

# Inputs are minimized by count: by time, the first that finds something new takes a minute, which is more than there is.
fuzz: ## every fuzz test for FUZZTIME (10s)
	@set -e; list=$$($(GO) test -list '^Fuzz' $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u)); \
	targets=$$(echo "$$list" | awk '/^Fuzz/ { names = names " " $$1 } /^ok/ { n = split(names, f, " "); for (i = 1; i <= n; i++) print $$2 ":" f[i]; names = "" }'); \
	[ -n "$$targets" ] || echo "fuzz: there are no fuzz tests"; \
	for t in $$targets; do (set -x; $(GO) test -run '^$$' -fuzz "^$${t#*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x "$${t%%:*}"); done

soak: ## the lives of SOAK=10m of a service, whose memory must not grow; the stress tests for much longer; soak-eventloop
	SOAK=$${SOAK:-10m} $(GO) test -race -count=1 -timeout 6h -v -run '^TestSoak$$' ./ctxshutdown
	SWANSONG_STRESS=20000000 $(GO) test -race -count=1 -timeout 6h -run Stress ./internal/packed/
	SWANSONG_STRESS=200000 $(GO) test -count=1 -timeout 6h ./internal/histories
	$(MAKE) soak-eventloop

# RUNS, CONCURRENCY, DEADLINE_MS, NODE_TIMEOUT_MS and TIMEOUT_PER_RUN come from the environment.
soak-eventloop: ## RUNS=1000 of must-timeout and mostly-success scenarios of the event loop, TIMEOUT_PER_RUN=30 seconds each at most
	RUNS=$${RUNS:-1000} $(GO) test -race -count=1 -timeout 6h -v -run '^TestSoak$$' ./eventloop

model: ## check the models of the counting word and of the event loop, and the controls that must fail
	./internal/packed/models/run.sh
	./eventloop/models/run.sh

mutants: ## prove that the tests notice each broken guarantee (NAMES="one another" for some)
	@if [ -z "$$CI" ] && ! command -v git >/dev/null; then echo "mutants: skipped, they need git"; exit; fi; \
	set -x; $(GO) run ./internal/cmd/mutants $(MUTANTS) $(NAMES)

# staticcheck is built each time: when nothing has changed, the build cache answers at once, and after a change of
# toolchain an old one could not read the new one's packages.
#
# swansongvet is built where go.work says which root it belongs to. It reads what users copy from: the examples and the code in docs, with tests; and what
# users call, without, for tests lose guards and scopes on purpose, as bench does.
lint: ## gofmt, go vet for three systems, a bit of a fourth and three processors, staticcheck on all modules, and swansongvet
	@files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$files" ]; then echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; fi
	GOOS=linux $(GO) vet $(ALL)
	@for os in darwin windows; do \
		echo "GOOS=$$os go vet work, but exporttest and dashboardtest"; \
		list=$$(GOOS=$$os $(GO) list $(ALL)) || exit 1; \
		GOOS=$$os $(GO) vet $$(echo "$$list" | grep -v '^$(ROOT)/\($(SAME)\)') || exit 1; \
	done
	GOOS=freebsd $(GO) vet ./internal/proc
	GOARCH=386 $(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...
	$(GO) build -buildvcs=false -o bin/swansongvet ./vet/cmd/swansongvet
	bin/swansongvet ./examples/... ./docs
	@echo "bin/swansongvet -test=false work, but bench"; \
	list=$$($(GO) list $(ALL)) || exit 1; \
	bin/swansongvet -test=false $$(echo "$$list" | grep -v '^$(ROOT)/\(bench$$\|$(SAME)\)')
	@(cd tools && GOWORK=off $(GO) build -buildvcs=false -o ../bin/ honnef.co/go/tools/cmd/staticcheck) || \
	if [ -z "$$CI" ]; then echo "lint: staticcheck skipped, it cannot be built here"; exit; else exit 1; fi; \
	set -x; bin/staticcheck $(ALL)

tidy: ## go mod tidy in all modules, which an unpublished root makes harder than it sounds
	$(GO) run ./internal/cmd/tidy

tidy-check: ## fail if tidy would change anything
	$(GO) run ./internal/cmd/tidy -diff

# By the names of RFC-041.
SHUTDOWN := ^Test(GracefulShutdown|ProcessGroupShutdown|RollingReplacement)
test-integration-shutdown: ## the integration tests of the launcher, with real processes in five behaviors
	$(GO) test -count=1 -v -run '$(SHUTDOWN)' ./launcher
test-integration-shutdown-race: ## the same under the race detector
	$(GO) test -race -count=1 -v -run '$(SHUTDOWN)' ./launcher

proto: ## generate the code of the launcher's protocol anew; takes Debian's protobuf-compiler
	launcher/proto/generate.sh

# Not in ci, nor in the workspace: to build a kube-apiserver takes a quarter of an hour.
traces: ## record anew what the controllers of Kubernetes decide, for the test of launcher/internal/roll
	cd launcher/internal/kube && GOWORK=off $(GO) run ./record -out ../roll/testdata/kubernetes.jsonl

kubernetes: ## ask a kube-apiserver, and Nomad's server code, whether they take the launcher's exports
	cd launcher/internal/kube && GOWORK=off $(GO) run ./accept ../../export/testdata/kubernetes/*.yaml
	cd launcher/internal/nomad && GOWORK=off $(GO) run ./accept ../../export/testdata/nomad/*.json

ci: ## everything that CI runs
	bash .ci/run
