# Two commands for a newcomer: `make tour` and `make test`. Both start from a bare machine.
# The work is done in scripts/; what is here only names it.

# How many compilers and linters run at once.
export CROSSWARP_JOBS ?= $(shell nproc)
export NINJA_STATUS ?= [%f/%t %es] # the blank before this comment belongs to it
# Where NVIDIA's packages put nvcc; after all else, so that it never hides another one.
export PATH := $(PATH):/usr/local/cuda/bin
TOUR_ARGS ?=
# Kernels for a GPU take longer to compile than all the rest: not where none is.
TOUR_CMAKE ?= $(shell nvidia-smi -L >/dev/null 2>&1 || echo -DCROSSWARP_CUDA=OFF)

.PHONY: help tour test check format lint gpu-check clean
.DEFAULT_GOAL := help

help:
	@echo "make tour       set up, build, and run every module once, verified (TOUR_ARGS=...)"
	@echo "make test       set up, build, and run all checks that need no GPU"
	@echo "make check      set up, build, and run the examples as ranks of a launcher (LAUNCH_CMD='mpirun -n 4')"
	@echo "make gpu-check  on a machine with a GPU: build, test, measure, write one report"
	@echo "make lint       clang-format, clang-tidy and cppcheck; changes nothing"
	@echo "make format     let clang-format rewrite the sources"
	@echo "make clean      remove build/"
	@echo "One check alone: scripts/test --list"

tour:
	@scripts/setup tour
	@cmake --preset release $(TOUR_CMAKE)
	@cmake --build --preset release --parallel $(CROSSWARP_JOBS) --target crosswarp_command 01_kernel 02_ring 04_greet
	@build/release/bin/crosswarp tour --report build/tour.html $(TOUR_ARGS)

test:
	@scripts/setup test
	@scripts/test

check:
	@scripts/setup tour
	@scripts/check

lint:
	@scripts/lint

format:
	@scripts/lint --fix-format

gpu-check:
	@tools/gpu-check

clean:
	rm -rf build
