"""Gradients of a model that several ranks train, averaged with NumPy.

python3 examples/python/allreduce.py                       # four ranks as threads
crosswarp run -n 4 python3 examples/python/allreduce.py    # processes
"""

import numpy as np

import crosswarp

ELEMENTS = 10_000


def train(world):
    coll = crosswarp.Coll(world)
    gradient = (np.arange(ELEMENTS) % 97 * 0.001 * (world.rank + 1)).astype(np.float32)

    # Any array: through the library's own memory.
    average = coll.all_reduce(gradient, op="avg")

    # Symmetric memory, which all ranks have at the same place: without a copy.
    shared = world.empty(ELEMENTS, np.float32)
    shared.numpy()[:] = gradient
    world.barrier()
    coll.all_reduce(shared, shared, op="avg")

    if average.tobytes() != shared.numpy().tobytes():
        raise RuntimeError("the two ways differ")
    if world.rank == 0:
        how = coll.explain(shared)
        print(
            f"{world.size} ranks, {ELEMENTS} gradients averaged ({how.algorithm}: {how.why}): same bits"
        )


if __name__ == "__main__":
    crosswarp.run(4, train)
