# `make quick`, `make test` and `make demo` need only Go and make. The other targets print one line and skip what needs
# a program that is not installed. In CI, where CI=true, a missing program is an error.

GO       ?= go
FUZZTIME ?= 20000x
NAMES    ?=

# `work` means all packages of all modules in go.work; ./... means those of the root module.
ALL  := work
# The tests with the types of Kubernetes, Nomad, Grafana and Prometheus. Their dependencies take a minute to compile for
# each operating system, and the result is the same on all of them, so they are vetted once. staticcheck, which would
# read the source of all these dependencies, leaves them out.
SAME := internal/integration/\(dashboard\|export\)
ROOT := github.com/swansong-go/swansong

.DEFAULT_GOAL := help
.PHONY: help demo demo-launcher quick test releases servers traefik race nested bench bench-launcher bench-lspconn gate cover fuzz soak soak-eventloop model mutants gotests lint tidy tidy-check test-integration-shutdown test-integration-shutdown-race proto traces kubernetes ci

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Without the workspace, the go command downloads nothing for the other modules, and builds the root module with the
# versions of its dependencies that users get.
demo quick test: export GOWORK = off

# A ^C must close the shop and not make: set -m gives the program a process group of its own. `go run` would fail, even if
# the program ends well after a ^C.
demo: ## run a web service under load and stop it in three ways; on a terminal, keep it open until ^C
	@echo "Compiling ./examples/webservice; the first time, that takes up to a minute."
	@open=; if [ -t 0 ] && [ -t 1 ]; then open=-open; set -m; fi; $(GO) build -o bin/webservice ./examples/webservice && bin/webservice $$open

demo-launcher: ## run two groups of processes under load, replace, kill and hang some, and report lost requests
	$(GO) run ./launcher/demo

# -p 4 because many tests mostly wait. The tests of real language servers take a minute; make test runs them.
quick: ## check a change in under two minutes: gofmt, go vet, mutants -check and tests of the root module, without real language servers
	@files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$files" ]; then echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; fi
	$(GO) vet ./...
	$(GO) run ./tools/mutants -check
	$(GO) test -vet=off -p 4 -skip '^TestRealServers_' ./...

# -vet=off here and below, because make lint vets all packages.
test: ## run the tests of the root module
	@skipped=; [ -e bin/lsp/gopls ] || skipped="gopls "; [ -e bin/lsp/clangd ] || skipped="$${skipped}clangd "; \
	{ [ -e bin/lsp/node_modules/.package-lock.json ] && command -v node >/dev/null; } || skipped="$${skipped}and those that need node "; \
	[ -z "$$skipped" ] || echo "test: skipping the tests of language servers that are not installed: $${skipped}(to install them: make servers)"
	$(GO) test -vet=off ./...
	$(GO) test -vet=off -gcflags=-l -run '^TestReport_HasSourceLineAndAgeOfEachGuard$$|^TestTrace_LogsReleasesAfterForceOrAbandonedDrain$$' ./ctxshutdown # without inlining, as in a debugger
	$(GO) test -vet=off -tags packedtrace ./internal/packed # with rare interleavings made frequent

# The oldest supported release of Go, and the newest. The packages tested depend on what the standard library does
# inside: package context in the core, HTTP/2 and os/signal in the others. None of the tests needs cgo, for which gcc
# would have to compile a part of each standard library.
OLDEST := go$(shell sed -n 's/^go //p' go.mod).0
NEWEST := go1.27.4
releases: ## run the tests of the core, graceful and httpdrain with the oldest and the newest supported release of Go
	@for release in $(OLDEST) $(NEWEST); do \
		if [ -z "$$CI" ] && ! GOTOOLCHAIN=$$release $(GO) version >/dev/null 2>&1; then echo "releases: skipped: $$release cannot be downloaded"; continue; fi; \
		(set -x; CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=$$release $(GO) test -vet=off ./ctxshutdown ./internal/packed ./graceful ./httpdrain) || exit; \
	done

servers: ## install the language servers for the tests of lspconn, in pinned versions, into bin/lsp
	tools/lsp/install

traefik: ## build Traefik into bin, for the measurement behind proxies; takes 10 to 40 minutes
	tools/traefik/build

# Without SERIAL, whose code and tests start no goroutines, and without OTHER, whose tests read files, or start programs
# that go build has built; some of these would take minutes under the race detector. -vet=off because `make lint` vets all
# packages. -p 4 because the tests of several packages spend most of their time waiting, for processes and
# connections. The launcher comes first because its tests take longest.
#
# The tests of launcher and those of its command take minutes. CI runs the former with the race detector, and the latter,
# which start a thousand processes, in `make nested`. It also leaves out the packages that measure.
SERIAL := httpdrain/internal/wire\|internal/\(figures\|mask\|refusal\)\|launcher/\(config\|deploy\|export\|internal/\(address\|revision\|roll\|spec\)\)
OTHER := docs\|tools\|vet\|examples/guide\(/[1-7].*\)\?$$\|internal/integration/\(dashboard\|deploy\|export\)
race: ## run the tests of all modules with the race detector
	@if [ -z "$$CI" ] && [ "$$($(GO) env CGO_ENABLED)" = 0 ]; then echo "race: skipped: the race detector needs a C compiler"; exit; fi; \
	list=$$($(GO) list $(ALL)) || exit 1; \
	list=$$(echo "$$list" | grep -v '^$(ROOT)/\(\($(OTHER)\)\|\($(SERIAL)\)$$\)'); \
	[ -z "$$CI" ] || list=$$(echo "$$list" | grep -v '^$(ROOT)/\(launcher/cmd/launcher\|bench\|.*/internal/measure\)$$'); \
	set -x; $(GO) test -race -vet=off -p 4 $$(echo "$$list" | grep /launcher) $$(echo "$$list" | grep -v /launcher) ./tools/mutants

# -count=1, because some of these tests read files outside their module, whose changes the test cache does not notice.
nested: ## run the tests of the nested modules
	@list=$$($(GO) list $$($(GO) list -m -f '{{.Path}}/...' | grep -v '^$(ROOT)/\.\.\.$$')) || exit 1; \
	[ -z "$$CI" ] || list=$$(echo "$$list" | grep -v '^$(ROOT)/launcher$$'); \
	set -x; $(GO) test -vet=off -count=1 $$list

bench: ## measure again, and write the tables of figures in docs/measured
	$(GO) run ./bench -write
	$(GO) run ./httpdrain/internal/measure -write
	$(GO) run ./integrations/http3drain/internal/measure -write
	$(GO) run ./launcher/internal/measure -write
	GRACEFUL_KILLS=1000 $(GO) test -count=1 -v -run '^TestRun_ProgramSavesItsDataOrSaysWhyNot$$' ./graceful
	$(GO) run ./lspconn/internal/measure -write

bench-launcher: ## fail if the launcher loses a request, a process or a transition: the short form that CI runs
	$(GO) run ./launcher/internal/measure -only shutdowns,superseded,many -shutdowns 50 -superseded 10 -many 30

bench-lspconn: ## fail if lspconn leaves anything, is late under load, or cannot say what is left: the short form that CI runs
	$(GO) run ./lspconn/internal/measure -starts 100 -runs 1 -load 20 -only gopls,typescript-language-server

gate: ## fail if the core has become slower (by ratios) or allocates more (exactly)
	$(GO) run ./bench -gate

cover: ## measure the coverage of the core, where each uncovered block needs an explanation; ARGS=-all for more packages
	$(GO) run ./tools/cover $(ARGS)

# FUZZTIME is a number of inputs. With a duration such as 10s, Go before 1.27 sometimes fails at the end with "context
# deadline exceeded" (https://go.dev/issue/75804). -fuzzminimizetime is a count too, because by default a test minimizes
# its first interesting input for a minute.
fuzz: ## run every fuzz test with FUZZTIME (20000x) inputs
	@set -e; list=$$($(GO) test -list '^Fuzz' $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u)); \
	targets=$$(echo "$$list" | awk '/^Fuzz/ { names = names " " $$1 } /^ok/ { n = split(names, f, " "); for (i = 1; i <= n; i++) print $$2 ":" f[i]; names = "" }'); \
	[ -n "$$targets" ] || echo "fuzz: there are no fuzz tests"; \
	for t in $$targets; do (set -x; $(GO) test -run '^$$' -fuzz "^$${t#*:}$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x "$${t%%:*}"); done

soak: ## run a service for SOAK=10m, whose memory must not grow; then long stress tests and soak-eventloop
	SOAK=$${SOAK:-10m} $(GO) test -race -count=1 -timeout 6h -v -run '^TestSoak_MemoryDoesNotGrow$$' ./ctxshutdown
	SWANSONG_SCHEDULES=100000 SWANSONG_PREEMPTIONS=4 $(GO) test -tags packedtrace -count=1 -timeout 6h -v -run Explore ./internal/packed/
	SWANSONG_STRESS=20000000 $(GO) test -race -count=1 -timeout 6h -run Stress ./internal/packed/
	SWANSONG_STRESS=200000 $(GO) test -count=1 -timeout 6h ./internal/integration/histories
	$(MAKE) soak-eventloop

# The test reads RUNS, CONCURRENCY, DEADLINE_MS, NODE_TIMEOUT_MS and TIMEOUT_PER_RUN from the environment.
soak-eventloop: ## run two scenarios of the event loop RUNS=1000 times: all jobs time out; most succeed
	RUNS=$${RUNS:-1000} $(GO) test -race -count=1 -timeout 6h -v -run '^TestSoak_EveryRequestEndsOnce$$' ./eventloop

model: ## check the models of the counting protocol and of the event loop, and that the broken variants of them fail
	./internal/packed/models/run.sh
	./eventloop/models/run.sh

mutants: ## break each guarantee, and check that a test notices (NAMES="launcher.txt 'packed-*'" for some)
	$(GO) run ./tools/mutants $(MUTANTS) $(NAMES)

gotests: ## run the tests of net/http, httputil and two websocket libraries with httpdrain as their server
	$(GO) run ./tools/gotests

# staticcheck is built each time. If nothing has changed, the build cache answers at once; after a change of the Go
# toolchain, an old staticcheck could not read the new export data.
#
# swansongvet is built in the workspace, so that it uses this root module. In the examples and docs, which users copy,
# it checks tests too. Elsewhere it does not: tests leave guards and scopes open on purpose, and so does bench.
lint: ## check gofmt, mutants -check, the limits of files, functions and comments, go vet, staticcheck and swansongvet
	@files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$files" ]; then echo "not formatted, run gofmt -w:"; echo "$$files"; exit 1; fi
	$(GO) run ./tools/mutants -check
	$(GO) run ./tools/limits
	GOOS=linux $(GO) vet $(ALL)
	@for os in darwin windows; do \
		echo "GOOS=$$os go vet work, without the tests of exports and of the dashboard"; \
		list=$$(GOOS=$$os $(GO) list $(ALL)) || exit 1; \
		GOOS=$$os $(GO) vet $$(echo "$$list" | grep -v '^$(ROOT)/\($(SAME)\)') || exit 1; \
	done
	GOOS=freebsd $(GO) vet ./internal/proc
	GOARCH=386 $(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...
	$(GO) vet -tags packedtrace ./internal/packed ./ctxshutdown
	$(GO) build -buildvcs=false -o bin/swansongvet ./vet/cmd/swansongvet
	bin/swansongvet ./examples/... ./docs
	@echo "bin/swansongvet -test=false work, without bench"; \
	list=$$($(GO) list $(ALL)) || exit 1; \
	bin/swansongvet -test=false $$(echo "$$list" | grep -v '^$(ROOT)/\(bench$$\|$(SAME)\)')
	@(cd tools/staticcheck && GOWORK=off $(GO) build -buildvcs=false -o ../../bin/ honnef.co/go/tools/cmd/staticcheck) || \
	if [ -z "$$CI" ]; then echo "lint: staticcheck skipped: it cannot be built here"; exit; else exit 1; fi; \
	list=$$($(GO) list $(ALL)) || exit 1; \
	echo "bin/staticcheck work, without the tests of exports and of the dashboard"; \
	bin/staticcheck $$(echo "$$list" | grep -v '^$(ROOT)/\($(SAME)\)')

tidy: ## run go mod tidy in all modules
	$(GO) run ./tools/tidy

tidy-check: ## fail if make tidy would change anything
	$(GO) run ./tools/tidy -diff

SHUTDOWN := ^Test(GracefulShutdown|ProcessGroupShutdown|RollingReplacement)
test-integration-shutdown: ## run the integration tests of the launcher with real processes
	$(GO) test -count=1 -v -run '$(SHUTDOWN)' ./launcher
test-integration-shutdown-race: ## the same with the race detector
	$(GO) test -race -count=1 -v -run '$(SHUTDOWN)' ./launcher

proto: ## generate the code of the launcher's protocol; needs Debian's protobuf-compiler
	launcher/proto/generate.sh

# traces and kubernetes are neither in ci nor in the workspace, because building a kube-apiserver takes 15 minutes.
traces: ## record the decisions of the Kubernetes controllers, for the tests of launcher/internal/roll
	cd launcher/internal/kube && GOWORK=off $(GO) run ./record -out ../roll/testdata/kubernetes.jsonl

kubernetes: ## check that a kube-apiserver and Nomad's server code accept the launcher's exports; the former, docs/deploy too
	cd launcher/internal/kube && GOWORK=off $(GO) run ./accept ../../export/testdata/kubernetes/*.yaml ../../../docs/deploy/kubernetes/*.yaml
	cd launcher/internal/nomad && GOWORK=off $(GO) run ./accept ../../export/testdata/nomad/*.json

ci: ## run everything that CI runs
	bash .ci/run
