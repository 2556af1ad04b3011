"""Communication that starts inside kernels: worlds, symmetric tensors and collectives.

    import numpy, crosswarp

    with crosswarp.World() as world:           # this rank of `crosswarp run`, mpirun, torchrun, ...
        coll = crosswarp.Coll(world)
        total = coll.all_reduce(numpy.ones(1000, numpy.float32))

Without a launcher, ``crosswarp.run(4, function)`` makes four ranks of threads.
"""

from ._coll import Choice, Coll, Quantised
from ._crosswarp import Error, __version__, cuda_absence_reason, cuda_device_count, launched
from ._fast_allreduce import FastAllreduce
from ._world import Tensor, World, run

__all__ = [
    "Choice",
    "Coll",
    "Error",
    "FastAllreduce",
    "Quantised",
    "Tensor",
    "World",
    "__version__",
    "cuda_absence_reason",
    "cuda_device_count",
    "launched",
    "run",
]
