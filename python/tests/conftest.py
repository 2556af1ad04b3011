"""What tests of the package share: ranks as threads, ranks as processes, and small arrays."""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import crosswarp

HEAP = 16 << 20
_jobs = itertools.count()


def on_ranks(ranks, function, **options):
    """Runs it on so many threads as ranks; what each returned."""
    return crosswarp.run(ranks, function, device="cpu", heap=HEAP, **options)


def start_processes(ranks, script, *arguments, environment=None):
    """A script as that many ranks, by the variables that torchrun sets; (exit code, output) of each."""
    job = f"pytest-{os.getpid()}-{next(_jobs)}"
    started = []
    for rank in range(ranks):
        variables = {
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "TORCHELASTIC_RUN_ID": job,
            "CROSSWARP_DEVICE": "cpu",
            "CROSSWARP_HEAP": str(HEAP),
            **(environment or {}),
        }
        started.append(
            subprocess.Popen(
                [sys.executable, str(script), *map(str, arguments)],
                env=variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )  # fmt: skip
        )
    ended = []
    for process in started:
        output, _ = process.communicate(timeout=120)
        ended.append((process.returncode, output))
    return ended


def values(rank, count, dtype, seed=0):
    """Small whole numbers, others on each rank, whose sums and products every type holds exactly
    (three factors of at most 2, sums of at most 6)."""
    random = np.random.default_rng(100 * seed + rank)
    return random.integers(1, 3, count).astype(dtype)


@pytest.fixture
def here():
    return pathlib.Path(__file__).parent


@pytest.fixture(scope="session")
def examples():
    return pathlib.Path(__file__).resolve().parents[2] / "examples" / "python"
