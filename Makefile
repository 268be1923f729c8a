# The two commands of the README, and what developers use. Everything else is CMake's
# (CMakePresets.json). make help lists the targets.
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
# More for cmake's first call, as CMAKE_ARGS=-DWEFT_WERROR=ON
CMAKE_ARGS ?=
MINUTES ?= 60
WEFT := build/release/weft
DEMO_STORE ?= build/demo-store
DEMO_QUESTION ?= What is the most popular dish at the café?

all: release

# release: the program, in build/release (so does make alone)
release:
	@command -v cmake >/dev/null && command -v ninja >/dev/null && command -v g++ >/dev/null || \
	  { echo "g++, cmake or ninja is missing: make deps installs what weft builds with" >&2; exit 1; }
	cmake --preset release $(CMAKE_ARGS)
	cmake --build build/release -j $(JOBS)

# dev asan tsan: that preset's program and tests (checks on, warnings are errors; sanitizers)
dev asan tsan:
	cmake --preset $@ $(CMAKE_ARGS)
	cmake --build build/$@ -j $(JOBS) --target all tests

# deps: install what weft builds with (Debian 12 packages)
deps:
	tools/install-deps.sh

# model: fetch SmolLM2-135M-Instruct, checked by size and hash
model: release
	$(WEFT) model get smollm2-135m

# demo: from a fresh machine to an answered question, showing what reuse saved
demo: deps release model
	rm -rf $(DEMO_STORE)
	$(WEFT) ingest -m smollm2-135m --store $(DEMO_STORE) examples/docs
	@echo
	@echo "> $(DEMO_QUESTION)"
	$(WEFT) ask --store $(DEMO_STORE) "$(DEMO_QUESTION)"
	@echo
	@echo "The same question over every passage that has a word of it, in all four modes:"
	$(WEFT) ask --store $(DEMO_STORE) --chunks 16 --min-score 0 --compare "$(DEMO_QUESTION)"

# test: all tests (what needs a model or ../shared skips itself; with WEFT_REQUIRE_ALL=1 it fails)
test: deps
	cmake --preset release $(CMAKE_ARGS)
	cmake --build build/release -j $(JOBS) --target tests
	ctest --test-dir build/release --output-on-failure -j $(JOBS)

# soak: half of MINUTES simulations of crashes and of sequences, half all fuzzers (CONTRIBUTING.md)
soak: deps
	tools/soak.sh $(MINUTES)

# bench: kernels, then time to first token and plain speed on the fetched model
bench: model
	cmake --build build/release -j $(JOBS) --target bench
	for b in build/release/*_bench; do $$b || exit 1; done
	$(WEFT) bench ttft -m smollm2-135m
	$(WEFT) bench speed -m smollm2-135m

# install: the program and its completions for bash, zsh and fish, below PREFIX (/usr/local)
install: release
	cmake --install build/release --prefix $(PREFIX)

# format: clang-format over the tree
format:
	git ls-files '*.h' '*.cc' | xargs clang-format -i

# clean: removes build
clean:
	rm -rf build

help:
	@grep -E '^# [a-z ]+:' Makefile | sed 's/^# //'

.PHONY: all release dev asan tsan deps model demo test soak bench install format clean help
