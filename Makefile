# What is done with this repository, by hand and in CI.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.PHONY: help quick test soak interop bench mutants lint build replay synth bootstrap diff deploy destroy clean FORCE

# The recording that `make replay` runs the aggregator over.
RECORDING ?= testdata/quota-walk.jsonl.gz

# The same source and Go version give the same bytes, wherever they are built
# and whatever `go env -w` has stored there. infra/build.go does the same.
SETTINGS := GOFLAGS=-mod=readonly GOWORK=off GOFIPS140=off GOAMD64=v1 GOARM64=v8.0
REPRODUCIBLE := -trimpath -buildvcs=false -ldflags '-s -w'

# infra is a module of its own.
MODULES := . infra

# What else the CDK is to be told, such as ARGS='-c shardquota:paused=true'.
ARGS ?=

# Node 20 does for the CDK, though everybody says at length that it is old.
export JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION := 20
export NODE_NO_WARNINGS := 1

help: ## List these targets
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 17

# For each change, while make test is for each commit. -short skips the tests that
# need a server or another program, and those that take seconds.
quick: ## Build, vet, and unit tests: no race detector, no server, no network
	export GOGC=400 # compilers are most of it, and collect less
	go vet ./...
	go test -short -vet=off $(if $(ONLY),$(ONLY),$$(go list ./... | grep -vE '$(LEFT_OUT)'))

# Packages to test by make quick instead of all but LEFT_OUT.
ONLY ?=

# Packages with few unit tests or none, which would take half of the time to compile
# and link: functions that are tested as Lambda runs them, pictures, simulations,
# searches, and test kits. They are vetted all the same.
LEFT_OUT := /cmd/(aggregator|limits|shardquota/(demo|page|simulate))$$|/internal/(dynoxide|explore|faultproxy|ideal|interop|lambdatest|proof)$$

# Under the race detector many tests wait for other programs, so that two cores bear
# four packages at once. The tests need dynoxide and the CDK. They can use the real client, and moto as
# an AWS to deploy to, unless the environment names others.
test: node_modules/.package-lock.json $(if $(and $(SHARDQUOTA_PYTHON),$(SHARDQUOTA_MOTO)),,.venv/ready) ## Run all tests; installs what they need first
	@if [ -e .venv/ready ]; then
		export SHARDQUOTA_PYTHON="$${SHARDQUOTA_PYTHON:-$$PWD/.venv/bin/python}" SHARDQUOTA_MOTO="$${SHARDQUOTA_MOTO:-$$PWD/.venv/bin/moto_server}"
	fi
	go test -race -p 4 -timeout 20m $(if $(CI),-count=1) -skip '$(SEARCH)|$(SERIAL)|$(SCRIPTS)|$(GATE)' $$(go list ./... | grep -v /quota$$)
	go test $(if $(CI),-count=1) -run '$(SERIAL)|$(SCRIPTS)' $(SERIAL_IN)
	go test $(if $(CI),-count=1) ./quota
	go test $(if $(CI),-count=1) -v -run '$(SEARCH)' ./internal/proof | grep -vE '^ *(===|---)'
	go test -count=1 -run '$(GATE)' ./events ./table ./aggregator
	cd infra && go test -timeout 20m $(if $(CI),-count=1) ./...

# In the tests of the next three one goroutine at a time moves, or each has a table
# of its own: the race detector has nothing to find there, and takes five to ten
# times as long. Other tests of these packages run under it. Package quota starts no
# goroutine.

# SEARCH tries every order of requests. What it found is printed.
SEARCH := ^(TestSearch|TestSearchOneByOne|TestMutants|TestGeneratedMutants)$$

# SERIAL replays recordings and walks at random. TestRecord derives the figures of
# docs/adr/0016 again.
SERIAL := ^(TestDeliveryDoesNotMatter|TestCutAndRedriven|TestSyntheticDeliveryDoesNotMatter|TestDiscardedBatchOverADump|$\
	TestReplayedTableIsTheRecordedOne|TestGoldenReports|TestRecord|$\
	TestRecordingsAreAsTheReferenceReadsThem|TestReaderMemory|TestReaderRefusesBombs|TestFrameOfRecordings|$\
	TestParseItemAgreesWithTheSDK|TestImagesOfRecordings|TestWatchTellsAll|$\
	TestAQuotaThatMovesBetweenLevelsStays|TestRandomRoundTrip|$\
	TestModel|TestMutantsAreCaught|TestBoundsAreReached|TestSameRequests|TestTheMostLimitsOfABucket|TestNoFaultAdmitsMore|$\
	TestFloor|TestRoomForLimits|TestRoomForMixtures|TestParts|TestSameAsMemory|TestRandomWritesAreMeasured|TestOperations|TestClientOperations)$$
SERIAL_IN := ./aggregator ./aggregator/replay ./cmd/shardquota ./cmd/shardquota/simulate ./events ./table ./table/dynamo ./table/memory ./limits ./limits/manifest ./internal/ideal ./limiter

# SCRIPTS are those of cmd/shardquota that take longest, replays and simulations.
SCRIPTS := ^TestScripts$$/^(html|same-table|quota-walk|simulate)$$

# GATE measures the fast paths against the slow ones. The race detector watches
# each byte that a fast one looks at, which takes most of the difference away.
GATE := ^TestGate

mutants: ## Show that every rule left out, and every condition, is found
	@go test -count=1 -v -run '^(TestMutants|TestGeneratedMutants)$$' ./internal/proof | grep -vE '^ *(===|---)'

# How long make soak goes on; SEED=n repeats what a run has printed.
SOAK ?= 2m

soak: node_modules/.package-lock.json ## Mixed load with faults and restarts, for SOAK=2m
	go test -race -count=1 -v -timeout 0 -run '^(TestSoak|TestFaultsAtEveryRequestOfABatch)$$' ./cmd/aggregator \
		-soak=$(SOAK) $(if $(SEED),-soak.seed=$(SEED)) -faults.every

# How long make interop goes on.
INTEROP ?= 3m

interop: node_modules/.package-lock.json $(if $(SHARDQUOTA_PYTHON),,.venv/ready) ## zae-limiter's client and ours on one table, for INTEROP=3m
	@if [ -e .venv/ready ]; then export SHARDQUOTA_PYTHON="$${SHARDQUOTA_PYTHON:-$$PWD/.venv/bin/python}"; fi
	SHARDQUOTA_INTEROP=$(INTEROP) go test -race -count=1 -v -timeout 0 -run '^TestLoad$$' ./internal/interop

# Which benchmarks make bench runs, and how often each: benchstat wants 6 of each.
BENCH ?= .
COUNT ?= 6

bench: node_modules/.package-lock.json ## Measure the aggregator and the client: BENCH=REGEXP, COUNT=6 times each
	go test -run '^$$' -bench '$(BENCH)' -benchtime 1s -count $(COUNT) -timeout 1h $(MEASURED)

# The packages of which docs/performance.md tells what they cost.
MEASURED := ./table ./aggregator ./cmd/aggregator ./limiter

node_modules/.package-lock.json: package-lock.json
	npm ci --no-audit --no-fund
	mkdir -p $(@D) && touch $@

# Python packages are a help where they can be had, and no need.
.venv/ready: testdata/requirements.txt infra/testdata/requirements.txt
	@if python3 -m venv .venv && .venv/bin/pip install --quiet --disable-pip-version-check --timeout 10 --retries 1 $(addprefix -r ,$^); then \
		touch $@; \
	else \
		echo "zae-limiter and moto cannot be installed here: the tests with them will be skipped"; \
	fi

lint: ## Check the sources: gofmt, go vet, staticcheck, govulncheck
	@unformatted=$$(find . \( -name node_modules -o -name .venv \) -prune -o -name '*.go' -print | xargs gofmt -l)
	if [ -n "$$unformatted" ]; then printf 'not formatted by gofmt:\n%s\n' "$$unformatted"; exit 1; fi
	for module in $(MODULES); do (cd $$module && go vet ./...); done
	staticcheck=$$(go tool -n staticcheck)
	for module in $(MODULES); do (cd $$module && "$$staticcheck" ./...); done
	if found=$$(go tool govulncheck ./... 2>&1); then
		echo "govulncheck: no known vulnerability is reached"
	elif grep -q 'fetching vulnerabilities' <<<"$$found"; then
		echo "govulncheck: skipped, since its database cannot be reached"
	else
		echo "$$found"; exit 1
	fi

build: $(foreach f,aggregator limits,dist/$f-arm64/bootstrap dist/$f-amd64/bootstrap) bin/shardquota ## Build the functions for both processors, and the tool

# dist/aggregator-arm64/bootstrap is cmd/aggregator for arm64.
dist/%/bootstrap: FORCE
	$(SETTINGS) CGO_ENABLED=0 GOOS=linux GOARCH=$(lastword $(subst -, ,$*)) go build $(REPRODUCIBLE) -tags lambda.norpc -o $@ ./cmd/$(firstword $(subst -, ,$*))
	chmod 755 $@

bin/shardquota: FORCE
	CGO_ENABLED=0 go build $(REPRODUCIBLE) -o $@ ./cmd/shardquota

synth: node_modules/.package-lock.json ## Make the CloudFormation template, in infra/cdk.out
	cd infra && npx cdk synth --quiet $(ARGS)

bootstrap: node_modules/.package-lock.json ## Prepare an AWS account and region for the CDK, once
	cd infra && npx cdk bootstrap $(ARGS)

diff: node_modules/.package-lock.json ## Show what deploy would change
	cd infra && npx cdk diff $(ARGS)

deploy: node_modules/.package-lock.json ## Deploy to the AWS account at hand
	cd infra && npx cdk deploy $(ARGS)

destroy: node_modules/.package-lock.json ## Remove the stack; the table stays, unless it was made disposable
	cd infra && npx cdk destroy $(ARGS)

replay: bin/shardquota ## Run the aggregator over a recording: RECORDING=FILE
	$< replay --batch-size 100 $(RECORDING)

clean: ## Remove what these targets make
	rm -rf bin dist infra/cdk.out node_modules .venv
