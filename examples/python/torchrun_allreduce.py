"""all_reduce of PyTorch's tensors: called, compiled, and on a GPU replayed from a CUDA graph.

    torchrun --nproc-per-node 2 examples/python/torchrun_allreduce.py

Each rank takes the GPU of its number, or the CPU where there is none. Ranks may share a GPU.
"""

import os
import sys

try:
    import torch
except ImportError:
    sys.exit(
        "torchrun_allreduce.py needs PyTorch (pip install torch); allreduce.py does the same with NumPy"
    )

import crosswarp
import crosswarp.torch


def choose_device():
    if not torch.cuda.is_available() or crosswarp.cuda_device_count() == 0:
        return "cpu"
    ordinal = int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count()
    torch.cuda.set_device(ordinal)
    return f"cuda:{ordinal}"


def replay_a_graph(fa, device):
    x = torch.ones(4096, device=device)
    out = torch.empty_like(x)
    fa.all_reduce(x, out)  # what is loaded at the first call is loaded before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with fa.capture(), torch.cuda.graph(graph):
        fa.all_reduce(x, out)
    for value in (2, 3):
        x.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert (out == value * fa.world_size).all(), out
    return "a CUDA graph replayed"


def main():
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = choose_device()
    with crosswarp.FastAllreduce(rank, ranks, device=device) as fa:
        x = torch.full((1024,), float(rank + 1), device=device, dtype=torch.bfloat16)
        assert fa.should_use(x)
        assert (fa.all_reduce(x) == ranks * (ranks + 1) // 2).all()

        coll = crosswarp.Coll(fa.world)
        group = crosswarp.torch.add(coll)
        # aot_eager traces as the default backend does, and needs no compiler on the machine.
        step = torch.compile(
            lambda t: crosswarp.torch.all_reduce(t * 2, group) + 1, backend="aot_eager"
        )
        assert (step(x) == ranks * (ranks + 1) + 1).all()

        done = ["called", "compiled"]
        if device != "cpu":
            done.append(replay_a_graph(fa, device))
        coll.check()
        coll.close()
        fa.world.barrier()
        if rank == 0:
            print(f"{ranks} ranks on {device}, torch {torch.__version__}: {', '.join(done)}")


if __name__ == "__main__":
    main()
