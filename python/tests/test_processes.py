"""Ranks that are processes: started as torchrun does it, and by `crosswarp run` where it is built."""

import shutil
import subprocess
import sys
import time

import pytest
from conftest import start_processes

COMMAND = shutil.which("crosswarp")


def script(tmp_path, text):
    file = tmp_path / "rank.py"
    file.write_text("import numpy as np, os, sys, time\nimport crosswarp\n" + text)
    return file


def check_all(ended, code=0):
    for rank, (found, output) in enumerate(ended):
        assert found == code, f"rank {rank}: {output}"


def test_collectives_and_peers(tmp_path):
    check_all(
        start_processes(
            3,
            script(
                tmp_path,
                """
with crosswarp.World() as world:
    coll = crosswarp.Coll(world)
    for count in (1, 1000, 200_000):
        assert (coll.all_reduce(np.full(count, world.rank, np.float32)) == 3).all()
    mine = world.empty(10, np.int32)
    mine.peer((world.rank + 1) % 3).numpy()[:] = world.rank
    world.barrier()
    assert (mine.numpy() == (world.rank - 1) % 3).all()
    out = world.empty(100_000)
    out.numpy()[:] = 1
    world.barrier()
    assert (coll.all_reduce(out, out).numpy() == 3).all()
""",
            ),
        )
    )


def test_messages(tmp_path):
    check_all(
        start_processes(
            3,
            script(
                tmp_path,
                """
with crosswarp.World() as world:
    coll = crosswarp.Coll(world)
    after, before = (world.rank + 1) % 3, (world.rank - 1) % 3
    for count in (1, 100_000):
        x, y = np.full(count, world.rank), np.zeros(count, int)
        coll.exchange([(x, after)], [(y, before)])
        assert (y == before).all()
    if world.rank == 2:
        coll.send(y, 0)
    if world.rank == 0:
        assert (coll.receive(x, 2) == 1).all()
    if world.rank > 0:
        try:
            coll.send(x, 2) if world.rank == 1 else coll.receive(x[1:], 1)
            sys.exit("not refused")
        except crosswarp.Error as e:
            assert e.code == "asymmetric", e
""",
            ),
        )
    )


def test_registered_memory_of_processes(tmp_path):
    check_all(
        start_processes(
            2,
            script(
                tmp_path,
                """
import mmap
with crosswarp.World() as world:
    coll = crosswarp.Coll(world)
    pages = np.frombuffer(mmap.mmap(-1, 1 << 16), np.float32)
    pages[:] = world.rank + 1
    coll.register_buffer(pages)
    assert coll.explain(pages).direct
    assert (coll.all_reduce(pages, pages) == 3).all()
    try:
        coll.register_buffer(np.zeros(1 << 16)[1:])
        sys.exit("not refused")
    except crosswarp.Error as e:
        assert e.code == "not_supported" and "World.empty" in str(e), e
    coll.close()
    assert (pages == 3).all()
""",
            ),
        )
    )


def test_a_script_may_end_without_close_and_with_arrays(tmp_path):
    began = time.monotonic()
    check_all(
        start_processes(
            2,
            script(
                tmp_path,
                """
world = crosswarp.World()
array = np.asarray(world.empty(1000))
if world.rank == 0:
    time.sleep(0.5)
""",
            ),
        )
    )
    assert time.monotonic() - began < 20


def test_an_exception_in_one_rank_ends_the_others(tmp_path):
    began = time.monotonic()
    ended = start_processes(
        3,
        script(
            tmp_path,
            """
world = crosswarp.World()
coll = crosswarp.Coll(world)
if world.rank == 1:
    raise ValueError("no more")
try:
    coll.all_reduce(np.ones(10))
except crosswarp.Error as e:
    assert (e.code, e.peer) == ("aborted", 1), e
    sys.exit(7)
""",
        ),
    )
    assert [code for code, _ in ended] == [7, 1, 7], ended
    assert "ValueError: no more" in ended[1][1]
    assert time.monotonic() - began < 20


def test_a_rank_that_dies_is_named(tmp_path):
    ended = start_processes(
        3,
        script(
            tmp_path,
            """
with crosswarp.FastAllreduce(int(os.environ["RANK"]), 3) as fa:
    if fa.rank == 2:
        os.kill(os.getpid(), 9)
    try:
        fa.all_reduce(np.ones(10))
    except crosswarp.Error as e:
        assert (e.code, e.peer) == ("peer_lost", 2), e
""",
        ),
    )
    assert [code for code, _ in ended] == [0, 0, -9], ended


def test_run_is_this_rank_of_the_launchers_job(tmp_path):
    check_all(
        start_processes(
            2,
            script(
                tmp_path,
                "assert crosswarp.run(5, lambda w: (w.rank, w.size)) == [(int(os.environ['RANK']), 2)]\n",
            ),
        )
    )


def test_the_example(examples):
    if not examples.is_dir():
        pytest.skip("the tests are not in the source tree")
    ended = start_processes(4, examples / "allreduce.py")
    check_all(ended)
    assert "same bits" in ended[0][1]


def test_the_torch_example_says_what_it_needs(examples):
    if not examples.is_dir():
        pytest.skip("the tests are not in the source tree")
    # Two communicators, which need more on a GPU than these tests give otherwise.
    room = {"CROSSWARP_HEAP": str(64 << 20)}
    ended = start_processes(2, examples / "torchrun_allreduce.py", environment=room)
    try:
        import torch  # noqa: F401
    except ImportError:
        check_all(ended, 1)
        assert "needs PyTorch" in ended[0][1]
    else:
        check_all(ended)


@pytest.mark.skipif(COMMAND is None, reason="no command crosswarp: it is built with the C++ tools")
def test_under_crosswarp_run(examples):
    done = subprocess.run(
        [COMMAND, "run", "-n", "4", "--device", "cpu", sys.executable, str(examples / "allreduce.py")],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 ranks" in done.stdout
