# make, make test, make demo, make install: everything else is CMake's (CMakePresets.json).
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)

all: release

release dev asan tsan:
	cmake --preset $@
	cmake --build build/$@ -j $(JOBS)

deps:
	tools/install-deps.sh

test: dev
	ctest --test-dir build/dev --output-on-failure -j $(JOBS)

bench: release
	cmake --build build/release -j $(JOBS) --target bench

install: release
	cmake --install build/release --prefix $(PREFIX)

format:
	git ls-files '*.h' '*.cc' | xargs clang-format -i

clean:
	rm -rf build

.PHONY: all release dev asan tsan deps test bench install format clean
