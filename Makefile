# Every target can be run by itself; `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# What the programs are built for, by Debian's names: amd64 or arm64; the machine's own by default. For another one, Debian's
# cross compiler links, and qemu runs the tests.
HOST := $(shell uname -m)
ARCH ?= $(if $(filter aarch64,$(HOST)),arm64,amd64)
MACHINE := $(or $(patsubst arm64,aarch64,$(filter arm64,$(ARCH))),$(patsubst amd64,x86_64,$(filter amd64,$(ARCH))),\
    $(error ARCH=$(ARCH): amd64 or arm64 are accepted))
CARGO_TARGET := CARGO_TARGET_$(shell echo $(MACHINE) | tr a-z A-Z)_UNKNOWN_LINUX_GNU
ifneq ($(MACHINE),$(HOST))
CROSS := setup-cross
export $(CARGO_TARGET)_LINKER := $(MACHINE)-linux-gnu-gcc
endif

# Paths below and in the scripts are relative to here, wherever the user's other builds go.
export CARGO_TARGET_DIR := $(CURDIR)/target

# Static needs no musl: glibc's own static library is enough.
TARGET := $(MACHINE)-unknown-linux-gnu
STATIC := target/$(TARGET)/release/istio-iptables
REPORT := target/$(TARGET)/release/istio-iptables-report
INJECTOR := target/$(TARGET)/release/sidecar-injector
CNI := target/$(TARGET)/release/istio-cni
AGENT := target/$(TARGET)/release/install-cni
STATIC_FLAGS := -C target-feature=+crt-static -C relocation-model=static \
    --remap-path-prefix=$(or $(CARGO_HOME),$(HOME)/.cargo)=/cargo

# Network tests make their own namespaces: they need root. Cargo stays the caller, so that target/ keeps its owner.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E)
RUNNER := $(CARGO_TARGET)_RUNNER
TEST := $(if $(shell cargo nextest --version 2>/dev/null),nextest run,test)
# Many tests wait for time-outs of the kernel or the program: more of them at a time than there are processors.
THREADS := $(if $(filter nextest,$(TEST)),--test-threads $(shell echo $$((8 * $$(nproc)))))

# Recorded kernel state of Istio's own init binary, and cases of its injector, to compare with; not part of this
# repository. Tests look for it in the same place.
CONFORMANCE_DATA ?= $(wildcard ../shared/data)
ifneq ($(CONFORMANCE_DATA),)
export CONFORMANCE_DATA := $(abspath $(CONFORMANCE_DATA))
endif

# Measures a second binary beside ours: make bench PEER=/path/to/it
PEER ?=
# Measures only an earlier build of ours and the present one, in turn: make bench BASELINE=/path/to/it
BASELINE ?=
RUNS ?= 30

.PHONY: help demo test quick instructions schema iptables-versions bench bench-cni bench-connections bench-guard bench-injector bench-image bench-questions bench-webhook chaos soak soak-diff soak-explain fuzz static report cni cni-plugin injector relay programs \
    lint checks program-tests parity unit test-programs unit-cross pod containerd crio proxies gvisor registry registry-programs kernels kernel-tests cluster image image-local docs packages package-files package-tools packages-check packages-reproducible plugin plugin-cluster \
    gallery picture setup setup-checks setup-demo setup-cross setup-registry setup-packages setup-docs setup-kernels clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup-demo static ## see it work: two throw-away network namespaces, under a minute
	@$(AS_ROOT) demo/run $(STATIC)

# It ends with the test runner's summary.
test: setup ## unit and integration tests; what else CI checks is `make checks` and `make kernels` (root: some make network namespaces)
	@$(MAKE) unit

# Builds overlap: linking a release binary takes one processor only. Tests do not. It stops at the first thing that is wrong.
checks: setup-checks ## what CI runs beside `make test`: lints, documentation, release programs, parity, pods, containerd, proxies, gVisor, cluster, packages, the site (root)
	@$(MAKE) --jobs $(shell nproc) --output-sync=line lint programs package-tools
	@$(MAKE) --jobs 1 program-tests

# A target of its own: `cluster` fails without an API server only where it is the goal.
program-tests: plugin instructions schema iptables-versions parity pod containerd proxies gvisor cluster packages packages-check docs

# Cargo puts a program of its own, built as the benches are, in the place of the one that is measured: hence the copy.
MEASURED := target/measured/istio-iptables
define CAPTURE_BENCH
	@install -D $(STATIC) $(MEASURED)
	@RUSTFLAGS="$(STATIC_FLAGS)" $(if $(AS_ROOT),$(RUNNER)="$(AS_ROOT)") \
	    cargo bench --locked --target $(TARGET) --bench capture -- --bin $(MEASURED) --runs $(RUNS) $(1)
	@install $(MEASURED) $(STATIC)
endef
FIGURES := --write docs/performance.md --plot docs/connection-cost.svg

bench: static ## measure, and write the figures into docs/performance.md; BASELINE=/path/to/an/earlier/build compares with that
	$(call CAPTURE_BENCH,$(if $(BASELINE),--baseline $(BASELINE),$(if $(PEER),--peer $(PEER)) $(FIGURES)))

# How many instructions a first run and a second one execute, which the load of the machine does not change.
instructions: setup-checks static ## fail if runs execute 5 % more instructions than recorded; WRITE=1 records them (root, valgrind)
	@$(AS_ROOT) tests/instructions/run $(STATIC) $(if $(WRITE),--write)

bench-connections: static ## only what a new connection costs through the rules: figures and plot in docs/
	$(call CAPTURE_BENCH,--connections $(FIGURES))

bench-questions: static ## only what explain --live and check cost: the table in docs/performance.md; BASELINE=/path/to/an/earlier/build compares
	$(call CAPTURE_BENCH,--questions $(if $(BASELINE),--baseline $(BASELINE)) $(FIGURES))

bench-webhook: injector ## measure the webhook over TLS, and write the figures into docs/performance.md; BASELINE=/path/to/an/earlier/build compares
	cargo bench --locked -p sidecar-injector --bench webhook -- --bin "$(CURDIR)/$(INJECTOR)" --write "$(CURDIR)/docs/performance.md" \
	    $(if $(BASELINE),--baseline $(BASELINE) --seconds 5,--plot "$(CURDIR)/docs/webhook-latency.svg")

# How long the soak takes, in seconds.
SOAK ?= 1800
soak: injector ## good and bad input mixed while config and certificates change (SOAK=1800 seconds)
	cargo bench --locked -p sidecar-injector --bench webhook -- --bin "$(CURDIR)/$(INJECTOR)" --soak --seconds $(SOAK)

bench-cni: cni ## measure the CNI plugin in a chain with Debian's, and write the figures into docs/performance.md (root)
	@$(if $(AS_ROOT),$(RUNNER)="$(AS_ROOT)") cargo bench --locked -p istio-cni --bench chain -- --bin "$(CURDIR)/$(CNI)" \
	    --write "$(CURDIR)/docs/performance.md"

# Pods and changes; and pods of which nothing changes.
GUARD_PODS ?= 100
GUARD_CHANGES ?= 1000
GUARD_PODS_AT_REST ?= 250
bench-guard: cni ## measure the guard of a node's pods under traffic, and write the figures into docs/performance.md (root; some minutes)
	@ISTIO_CNI_PROGRAM="$(CURDIR)/$(CNI)" GUARD_PODS=$(GUARD_PODS) GUARD_CHANGES=$(GUARD_CHANGES) \
	    GUARD_PODS_AT_REST=$(GUARD_PODS_AT_REST) GUARD_WRITE="$(CURDIR)/docs/performance.md" $(if $(AS_ROOT),$(RUNNER)="$(AS_ROOT)") \
	    cargo test --locked --quiet -p istio-cni --test guard -- --test-threads 1 every_change_of_many_pods memory_of_many_pods

bench-injector: injector ## measure the injection engine, and one large file for docs/performance.md; BASELINE=/path/to/an/earlier/build: only the file, with both
	@$(if $(BASELINE),,RUSTFLAGS="$(STATIC_FLAGS)" cargo bench --locked --profile injector --target $(TARGET) -p sidecar-injector --bench injection)
	@cargo bench --locked -p sidecar-injector --bench large_file -- --bin "$(CURDIR)/$(INJECTOR)" \
	    $(if $(BASELINE),--baseline $(BASELINE)) --write "$(CURDIR)/docs/performance.md"

# How long in seconds, and which option sets; a failure names its episode, which CHAOS_EPISODE repeats alone.
CHAOS_SECONDS ?= 300
CHAOS_SEED ?= $(shell date +%s)
CHAOS_EPISODE ?=
chaos: setup ## random option changes under traffic, with kills and foreign rules (CHAOS_SECONDS=300, CHAOS_SEED)
	@CHAOS_SECONDS=$(CHAOS_SECONDS) CHAOS_SEED=$(CHAOS_SEED) CHAOS_EPISODE=$(CHAOS_EPISODE) \
	    $(if $(AS_ROOT),$(RUNNER)="$(AS_ROOT)") \
	    cargo test --locked --quiet --test netns chaos:: -- --include-ignored --nocapture

# 100 configurations are some 16,000 packets.
EXPLAIN_CASES ?= 100
EXPLAIN_SEED ?=
soak-explain: setup ## 10,000 packets: explain against the kernel, with every backend (EXPLAIN_CASES=100, EXPLAIN_SEED)
	@EXPLAIN_CASES=$(EXPLAIN_CASES) EXPLAIN_SEED=$(EXPLAIN_SEED) $(if $(AS_ROOT),$(RUNNER)="$(AS_ROOT)") \
	    cargo test --locked --quiet --test netns -- backend_agreement:: foreign_matches:: --nocapture

# Every rule of each scenario is dropped, swapped and changed; with MUTATIONS=100 a sample of as many.
MUTATIONS ?= 1000000
MUTATIONS_SEED ?=
soak-diff: setup ## what diff says of every changed rule of the gallery: against explain, and against the kernel (MUTATIONS, MUTATIONS_SEED)
	@MUTATIONS=$(MUTATIONS) MUTATIONS_SEED=$(MUTATIONS_SEED) $(if $(AS_ROOT),$(RUNNER)="$(AS_ROOT)") \
	    cargo test --locked --quiet --test gallery --test gallery_kernel mutat -- --nocapture

# A stable compiler takes the fuzzer's flags with RUSTC_BOOTSTRAP; the corpus is not committed.
FUZZ ?= iptables_save
fuzz: ## a minute of fuzzing (FUZZ=cni_input, conflist, iptables_save, netlink, nftables, options, template or yaml); needs cargo-fuzz
	RUSTC_BOOTSTRAP=1 cargo fuzz run -O $(FUZZ) -- -max_total_time=60

# For size. Nothing unwinds, since the programs abort on a panic: the tables for it, a sixth of them, go. On amd64 rustc's own linker
# makes one function of equal ones, and LLVM's outliner one of equal sequences. From 24 bytes on these save 55 KB for about 2 % of a
# run's instructions; all of them would save 0.1 MB, and cost a tenth of its CPU time.
SMALL = -C link-arg=-Wl,--no-eh-frame-hdr,-O2,-T,image/no-unwind-tables.ld \
    $(if $(filter x86_64,$(MACHINE)),-C link-arg=-Wl$(comma)--icf=all \
    -C llvm-args=-enable-machine-outliner -C llvm-args=-outliner-benefit-threshold=24)
comma := ,

static: $(CROSS) ## the release binary: static, stripped (ARCH=arm64 for another machine, here and in the next two)
	@RUSTFLAGS="$(STATIC_FLAGS)" cargo rustc --locked --release --target $(TARGET) --bin istio-iptables -- $(SMALL)
	@echo "$(STATIC): $$(stat -c %s $(STATIC)) bytes"

report: $(CROSS) ## the release binary of istio-iptables-report, which writes pages: static, stripped
	@RUSTFLAGS="$(STATIC_FLAGS)" cargo rustc --locked --release --target $(TARGET) --bin istio-iptables-report -- $(SMALL)
	@echo "$(REPORT): $$(stat -c %s $(REPORT)) bytes"

cni-plugin: $(CROSS)
	@RUSTFLAGS="$(STATIC_FLAGS)" cargo rustc --locked --release --target $(TARGET) -p istio-cni --bin istio-cni -- $(SMALL)
	@echo "$(CNI): $$(stat -c %s $(CNI)) bytes"

cni: cni-plugin ## the release binaries of istio-cni and install-cni: static, stripped
	@RUSTFLAGS="$(STATIC_FLAGS)" cargo build --locked --release --target $(TARGET) -p install-cni # alone: features are those of what is built together
	@echo "$(AGENT): $$(stat -c %s $(AGENT)) bytes"

injector: $(CROSS) ## the release binary of sidecar-injector: static, stripped
	@RUSTFLAGS="$(STATIC_FLAGS)" cargo rustc --locked --profile injector --target $(TARGET) -p sidecar-injector --bin sidecar-injector -- -C strip=symbols
	@install -D target/$(TARGET)/injector/sidecar-injector $(INJECTOR) # beside the other program
	@echo "$(INJECTOR): $$(stat -c %s $(INJECTOR)) bytes"

# The library tests that make network namespaces.
NEEDS_ROOT := --skip kernel:: --skip routing::lookup::tests --skip connections::incomplete_lists
quick: ## without root, after each edit: format, clippy, library tests, properties, gallery, documentation, imports, order of rules
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo $(TEST) --locked -p istio-iptables --lib --test properties --test gallery --test docs --test comments --test imports --test decisions --test rule_order \
	    -- $(NEEDS_ROOT)

lint: ## format, clippy, licences and bans, documentation, fuzz targets
	cargo fmt --all --check
	CUSTOM_LIBFUZZER_PATH=/dev/null cargo check --locked --manifest-path fuzz/Cargo.toml # without the fuzzer, which is C++
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo deny --locked check bans licenses sources # the init binary
	cargo deny --locked --manifest-path cni/Cargo.toml --config cni/deny.toml check bans licenses sources
	cargo deny --locked --workspace --config injector/deny.toml check bans licenses sources # the injector and the node agent
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --document-private-items

# The injector takes longest, and the others wait for each other.
programs: injector static cni relay

parity: static ## compare with the recorded state of Istio's own binary (CONFORMANCE_DATA)
ifneq ($(CONFORMANCE_DATA),)
	$(AS_ROOT) python3 $(CONFORMANCE_DATA)/../tools/capture_parity.py check --backend both \
	    --bin $(STATIC) --corpus $(CONFORMANCE_DATA)/capture-cases.jsonl
else
	@echo "parity and injection conformance: NOT CHECKED: no recorded cases here; set CONFORMANCE_DATA to the folder with capture-cases.jsonl"
endif

# Under qemu-user there is no netlink of netfilter: what needs it runs in `make kernels`, on a kernel of that architecture.
unit-cross: setup-cross ## unit tests of both programs and their crates for another machine, under qemu-user (ARCH=arm64)
	@$(RUNNER)=qemu-$(MACHINE)-static RUSTFLAGS="$(STATIC_FLAGS)" \
	    cargo test --locked --target $(TARGET) -p istio-iptables -p istio-cni -p sidecar-injector -p goduration -p nfnetlink --lib \
	    -- --skip kernel::
	@$(RUNNER)=qemu-$(MACHINE)-static RUSTFLAGS="$(STATIC_FLAGS)" cargo test --locked --target $(TARGET) -p gotemplate --tests

# Packet tests and those of the plugin run the programs that ship. A debug build would take five times as long in each of some
# 12,000 runs.
# Cargo's library path has eight folders, in each of which the loader would look for each library of each tool that a test starts.
unit: ## what `make test` does once everything is installed
	@$(MAKE) --jobs 2 --output-sync=line test-programs static report cni-plugin
	$(if $(filter nextest,$(TEST)),cargo test --locked --workspace --doc --quiet) # nextest leaves out doc tests
	ISTIO_IPTABLES_PROGRAM="$(CURDIR)/$(STATIC)" ISTIO_CNI_PROGRAM="$(CURDIR)/$(CNI)" $(RUNNER)="$(strip $(AS_ROOT) env -u LD_LIBRARY_PATH)" cargo $(TEST) --locked --workspace $(THREADS)

test-programs:
	@cargo $(TEST) --locked --workspace --no-run

relay: $(CROSS)
	@RUSTFLAGS="$(STATIC_FLAGS)" cargo build --locked --quiet --release --target $(TARGET) -p netlab --example relay
	@install target/$(TARGET)/release/examples/relay target/$(TARGET)/release/relay # beside the other programs

pod: setup-checks static cni injector relay ## run a whole injected pod in podman, both variants (root)
	@$(AS_ROOT) tests/pod/run target/$(TARGET)/release

# CASES="killed many" runs these alone.
CASES ?=
# NETWORK_PLUGINS=FOLDER has bridge and host-local, instead of Debian's.
CONTAINERD ?= $(or $(shell command -v containerd),/usr/bin/containerd)
containerd: setup-checks cni injector ## run pods in containerd with the CNI plugin, as kubelet does (root; CONTAINERD=/path/to/containerd, SANDBOXES=100 at once, CASES)
	@CONTAINERD=$(CONTAINERD) CRIO= $(AS_ROOT) tests/containerd/run target/$(TARGET)/release $(CASES)

crio: setup-checks cni injector ## the same in CRI-O (root; CRIO=/path/to/crio, SANDBOXES=100 at once, CASES)
	@CRIO=$${CRIO:?/path/to/crio is missing: Debian has no package of it} $(AS_ROOT) tests/containerd/run target/$(TARGET)/release $(CASES)

# Debian 11 to sid: a node's iptables is seldom that of the image.
iptables-versions: setup-checks static ## rules that one version of iptables wrote, read, changed and deleted with each other (root, network or cached packages)
	@$(AS_ROOT) tests/iptables_versions/run $(STATIC)

# In one folder for each architecture.
registry-programs: programs
	@install -D -t target/registry/$(ARCH) $(STATIC) $(CNI) $(AGENT) $(INJECTOR) $(dir $(STATIC))relay

registry: setup-checks setup-registry ## push images for amd64 and arm64 to a registry on loopback, pull and run both (root)
	@for arch in amd64 arm64; do $(MAKE) registry-programs ARCH=$$arch; done
	@$(AS_ROOT) tests/pod/registry target/registry

proxies: setup-checks static ## put Envoy and haproxy in the place of the proxy, REDIRECT and TPROXY, also while options change (root)
	@$(AS_ROOT) tests/proxies/run $(STATIC)

# Debian's is of 2022 and refuses one of Istio's rules: then a run must refuse before it writes. A newer one must capture.
RUNSC ?= $(or $(shell command -v runsc),/usr/bin/runsc)
gvisor: setup-checks static ## capture in a gVisor sandbox (root; RUNSC=/path/to/runsc for another one than Debian's)
	@$(AS_ROOT) tests/gvisor/run $(RUNSC) $(STATIC)

# Packet tests are built static, too: the machines have no C library but that of the tools.
KERNEL_ARCHES ?= amd64 arm64
kernels: setup-kernels ## boot the kernels of Debian and Ubuntu in qemu and test on each (KERNEL=5.10 for one, WRITE=docs/platforms.md for its table)
	@$(MAKE) --jobs 2 --output-sync=line $(KERNEL_ARCHES:%=kernel-tests-%)
	@cat $(KERNEL_ARCHES:%=target/kernels/tests-%.json) >target/kernels/tests.json
	@tests/kernels/run $(if $(WRITE),--write $(WRITE)) target/kernels/tests.json $(KERNEL)

# The long link of one takes one processor, the tests of the other one are built meanwhile.
$(KERNEL_ARCHES:%=kernel-tests-%):
	@$(MAKE) kernel-tests ARCH=$(@:kernel-tests-%=%)

kernel-tests: static
	@mkdir -p target/kernels
	@RUSTFLAGS="$(STATIC_FLAGS)" cargo test --locked --quiet --no-run --target $(TARGET) --test netns --test gallery_kernel \
	    --message-format=json >target/kernels/tests-$(ARCH).json

# The cluster of KUBECONFIG is used only if CLUSTER_CONTEXT names its current context.
cluster: ## the injector and the node agent against a real API server (KUBEBUILDER_ASSETS, or KUBECONFIG with CLUSTER_CONTEXT)
ifneq ($(KUBEBUILDER_ASSETS)$(CLUSTER_CONTEXT),)
	cargo test --locked -p sidecar-injector --test end_to_end -- --include-ignored
ifneq ($(KUBEBUILDER_ASSETS),)
	CLUSTER_CONTEXT= cargo test --locked -p install-cni --test cluster -- --include-ignored
	@$(MAKE) plugin-cluster
endif
else
	@echo "end to end on a real API server: NOT CHECKED: set KUBEBUILDER_ASSETS to a directory with kube-apiserver, etcd, helm3 and helm4," \
	    "or KUBECONFIG and CLUSTER_CONTEXT (its current context)"
	@exit $(if $(filter cluster,$(MAKECMDGOALS)),1,0)
endif

# With ARCHES="amd64 arm64", the tags are manifest lists of images for both. BUILD_ARGS is described in image/build.
ARCHES ?= $(ARCH)
BUILD_ARGS ?=
export ARCHES BUILD_ARGS

image: ## all images, by podman, docker or buildah (needs a registry for the base image); ARCHES="amd64 arm64" for several
	@image/build registry

image-local: ## the same images from this machine's packages, without a registry
	@for arch in $(ARCHES); do $(MAKE) static cni injector relay ARCH=$$arch; done
	@image/build local

bench-image: static cni injector relay ## what a start of the init container costs in podman (root)
	@$(AS_ROOT) tests/pod/bench target/$(TARGET)/release

# A package of each program, and the kubectl plugin.
PACKAGES ?= istio-iptables sidecar-injector
export PACKAGES
packages: ## archives, .deb, .rpm, bills of materials, checksums, krew manifest: in dist/ (ARCHES="amd64 arm64", PACKAGES, RELEASE_URL)
	@for arch in $(ARCHES); do $(MAKE) package-files ARCH=$$arch; done

package-files: $(if $(filter istio-iptables,$(PACKAGES)),static report) $(if $(filter sidecar-injector,$(PACKAGES)),injector)
	@packaging/build target/$(TARGET)/release

# What packages are made with.
package-tools:
	@packaging/tools

packages-check: setup-packages ## install and remove what is in dist/, in a Debian root and an RPM root (root; network for Debian's packages)
	@$(AS_ROOT) packaging/check

packages-reproducible: ## build the packages of HEAD in another folder, and compare them with those in dist/, byte for byte
	@packaging/reproducible

plugin-cluster: static report ## kubectl-capture with kubectl and a real API server (root, KUBEBUILDER_ASSETS)
	@$(AS_ROOT) tests/kubectl_capture/cluster $(STATIC) $(REPORT)

plugin: ## kubectl-capture with a stand-in for kubectl, in three shells; shellcheck (cheap: part of `make checks`)
	@shellcheck --external-sources packaging/kubectl-capture packaging/build packaging/check packaging/reproducible packaging/tools tests/kubectl_capture/run tests/kubectl_capture/kubectl
	@tests/kubectl_capture/run

# The release whose fields the table of types in injector/src/schema/ must have.
KUBERNETES ?= 1.37.0
SCHEMA := target/schema-$(KUBERNETES)
schema: ## compare the table of Kubernetes types with the schema of a release (KUBERNETES=1.37.0)
	@test -d $(SCHEMA) || { python3 -m venv $(SCHEMA) && $(SCHEMA)/bin/pip install --quiet kubernetes-validate==$(KUBERNETES); }
	@KUBERNETES_SCHEMA="$$(echo $(CURDIR)/$(SCHEMA)/lib/python3*/site-packages/kubernetes_validate/kubernetes-json-schema/v$(KUBERNETES)-local/_definitions.json)" \
	    cargo test --locked -p sidecar-injector --features release-schema --lib schema::tests

# Debug: compiling mdbook with optimization takes longer than all of its runs.
MDBOOK := 0.5.4
CHROMIUM ?= chromium
docs: setup-docs ## the documentation as a site with search, in target/book/site; checked, also in a browser (SCREENSHOTS=folder)
	@target/tools/bin/mdbook --version 2>/dev/null | grep -qwF v$(MDBOOK) || \
	    cargo install --quiet --locked --debug --root target/tools mdbook@$(MDBOOK)
	@docs/book/build target/tools/bin/mdbook
	@docs/book/check $(CHROMIUM)

picture: setup-docs ## regenerate the README's picture of docs/pod.html, after a change of the page
	@docs/book/picture $(CHROMIUM) docs/pod.html docs/pod.png
	@sha256sum docs/pod.html >docs/pod.png.sha256 # of which page it is the picture: tests/docs.rs
	@echo "docs/pod.png: $$(stat -c %s docs/pod.png) bytes"

gallery: ## regenerate rules/, deploy/, generated docs and the README's tables, after a change of rules or options
	UPDATE_GALLERY=1 cargo test --locked --test gallery --test docs
	UPDATE_DOCS=1 cargo test --locked -p sidecar-injector --lib up_to_date
	UPDATE_DEPLOY=1 cargo test --locked -p sidecar-injector --test injector manifests

setup: ## install what building and `make test` need, if it is missing
	@.ci/setup test

setup-docs:
	@.ci/setup docs

setup-packages:
	@.ci/setup packages

setup-checks: ## install what `make checks` needs, if it is missing
	@.ci/setup checks

setup-demo: ## install what the demo needs, if it is missing
	@.ci/setup demo

setup-cross:
	@.ci/setup cross $(MACHINE)

setup-registry: ## install what `make registry` needs beside `make checks`, if it is missing
	@.ci/setup registry

setup-kernels: ## install what booting kernels needs, if it is missing
	@.ci/setup kernels

clean: ## remove what was built
	cargo clean
