# Everything here works on a fresh Debian or Ubuntu with Go and make, as root or with sudo.
GO ?= go

# The modules within this one: what they need is not to become what freshet needs.
MODULES := $(patsubst %/go.mod,%,$(shell find . -mindepth 2 -name go.mod))

# The tools of the checks, at the versions of lint.mod.
LINT := CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath" $(GO) tool -modfile=lint.mod

# The files whose form lint asks about.
FORMED = $$(find . -name '*.go' | grep -v /testdata/)

.PHONY: demo demo-kafka test versions test-busy test-waiting soak bench build servers vet lint staticcheck format

## demo: a shop whose cache stays fresh through a kill -9, and a Redis with older data (DEMO_SECONDS, DEMO_WITHOUT=1, DEMO_SINGLE=1)
demo:
	@$(GO) build -o bin/demo ./proof/demo
	@DEMO_SECONDS=$(DEMO_SECONDS) DEMO_WITHOUT=$(DEMO_WITHOUT) DEMO_SINGLE=$(DEMO_SINGLE) DEMO_KAFKA=$(DEMO_KAFKA) ./bin/demo

## demo-kafka: the same with a Kafka broker, a reader and two invalidators, each of which is killed once
demo-kafka:
	@$(MAKE) --no-print-directory demo DEMO_KAFKA=1

## build: the program, as ./bin/freshet
build:
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/freshet ./cmd/freshet

## test: vet, lint and all tests, with the race detector, against real servers
# GOGC: to compile and link takes a quarter less of the processors than with Go's own. The programs that tests start run
# without it, as users run them: see the package testbed.
test: export GOGC = 400
test:
	@$(MAKE) --no-print-directory -j3 servers vet lint
	@$(MAKE) --no-print-directory -j2 test-busy test-waiting

# -count=1: what is tested as a built program is not seen by the test cache. -vet=off: the target vet has seen all. -s -w:
# no debugger looks at these 60 programs, and to link what it needs takes a third of the time that linking takes.
# -parallel: tests wait for servers, and more of them at a time than this wait for each other's processes: then what must
# come within a second is late.
# GORACE: each of these programs waits in the end for what another thread may have to report: 0.1 s instead of a second.
TESTED := GORACE=atexit_sleep_ms=100 $(GO) test -race -count=1 -vet=off -ldflags='-s -w' -timeout 40m -parallel 3

# What waits most of the time runs one package at a time next to the others, two at a time. The packages that take longest
# are first, so that nothing waits for them in the end.
WAITING := invalidator($$|/[^w])|eventlog

test-busy:
	$(TESTED) -p 2 ./proof/e2e ./cmd/freshet ./canal ./invalidator/write ./proof/e2e/... \
		$$($(GO) list ./... | grep -vE '/freshet/($(WAITING))')

test-waiting:
	@failed=; for m in $(MODULES); do (cd $$m && $(TESTED) -p 1 ./...) || failed=1; done; \
	$(TESTED) -p 1 $$($(GO) list ./... | grep -E '/freshet/($(WAITING))') && [ -z "$$failed" ]

## versions: what speaks to the servers most, on the versions that FRESHET_TEST_MARIADB_HOME, FRESHET_TEST_REDIS_HOME and
## FRESHET_TEST_MYSQL_HOME name
versions:
	$(TESTED) -skip Mutant ./canal/... ./invalidator/... ./app/operate ./proof/e2e

## vet: the compiler's and vet's complaints. -race: what it compiles for that is what the tests need
vet:
	$(GO) vet -race ./...
	@set -e; for m in $(MODULES); do (cd $$m && $(GO) vet -race ./...); done

## lint: the form of the code, and what no main function reaches. lint.mod names the tools and their versions, so that
## what they need is not to become what freshet needs
lint:
	@files=$$($(LINT) gofumpt -l $(FORMED)) || exit; [ -z "$$files" ] || { echo "run make format, it changes:"; echo "$$files"; exit 1; }
	@dead=$$($(LINT) deadcode ./cmd/...) || exit; [ -z "$$dead" ] || { echo "not reachable from a main function, or from tests only:"; echo "$$dead"; exit 1; }

## staticcheck: what is wrong by Staticcheck's rules (apart from lint: the first run on a machine takes minutes)
staticcheck:
	$(LINT) staticcheck -checks inherit,ST1000 ./...

## format: the form that lint asks for
format:
	@$(LINT) gofumpt -w $(FORMED)

## servers: find or install the servers that the tests start (kept in ~/.cache/freshet-testbed)
servers:
	CGO_ENABLED=0 $(GO) run -trimpath ./proof/testbed/cmd/testbed install

## soak: the fault suites whole, about two hours. make soak SEED=1 has its logs in soak/1, one for each package. If it was
## broken off, the same command goes on: tests that have passed with this seed are not run again
SEED ?= $(or $(FRESHET_SEED),$(shell date +%s))
SOAKED ?= ./canal/... ./invalidator/... ./eventlog/... ./proof/e2e/... ./cmd/freshet
soak: servers
	@mkdir -p soak/$(SEED); failed=; for p in $$($(GO) list $(SOAKED)); do \
		log=soak/$(SEED)/$$(echo $${p##*freshet/} | tr / -).log; touch $$log; \
		passed=$$(sed -n 's/^--- PASS: \([A-Za-z0-9_]*\) .*/\1/p' $$log | sort -u | paste -sd'|'); \
		echo "$$p: $$log"; \
		FRESHET_SOAK=1 FRESHET_SEED=$(SEED) $(GO) test -race -count=1 -timeout 3h -v $${passed:+-skip "^($$passed)$$"} $$p >>$$log 2>&1 || \
			{ failed=1; grep -e '^--- FAIL' $$log | tail -9; echo "$$p FAILED"; }; \
	done; [ -z "$$failed" ]

## bench: the whole table of docs/benchmarks.md, in about an hour and a half (one part: go run ./proof/bench -only NAME; -list)
bench: servers
	$(GO) run ./proof/bench -write docs/benchmarks.md
