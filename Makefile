# Everything here works on a fresh Debian or Ubuntu with Go and make, as root or with sudo.
GO ?= go

.PHONY: test servers vet

## test: vet and all tests, with the race detector, against real servers
test: servers vet
	$(GO) test -race -timeout 20m ./...

## vet: the compiler's and vet's complaints
vet:
	$(GO) vet ./...

## servers: find or install the servers that the tests start (kept in ~/.cache/freshet-testbed)
servers:
	$(GO) run ./testbed/cmd/testbed install
