"""Streams that a caller names, without a GPU: what is asked of frameworks and of the library, by
doubles of both. On a GPU: test_torch.py."""

import contextlib
import gc
import sys
import types
import weakref

import pytest

import crosswarp
from crosswarp import _arrays

NAMED, CURRENT = 0x70, 0x10  # cudaStream_t


class Log:
    """Which stream a framework would allocate on, and what it was asked for."""

    def __init__(self):
        self.on = [CURRENT]
        self.allocated = []
        self.recorded = []

    @contextlib.contextmanager
    def using(self, stream):
        self.on.append(stream)
        yield
        self.on.pop()


class Array:
    """Of either framework; 12 floats at an address of their own."""

    next_address = 0x1000

    def __init__(self, log, shape=(12,)):
        self.log = log
        self.shape = shape
        self.address = Array.next_address
        Array.next_address += 0x1000
        # PyTorch's
        self.layout = "strided"
        self.device = types.SimpleNamespace(type="cuda", index=0)
        self.dtype = "torch.float32"
        for name, value in (
            ("is_contiguous", True),
            ("is_conj", False),
            ("is_neg", False),
            ("element_size", 4),
            ("data_ptr", self.address),
        ):
            setattr(self, name, lambda value=value: value)

    def record_stream(self, stream):
        self.log.recorded.append((self, stream))


def new(log):
    def empty(shape, *_, **__):
        array = Array(log, tuple(shape))
        log.allocated.append((array, log.on[-1]))
        return array

    return empty


@pytest.fixture
def torch(monkeypatch):
    log = Log()
    cuda = types.SimpleNamespace(
        current_stream=lambda where: types.SimpleNamespace(cuda_stream=log.on[-1]),
        default_stream=lambda ordinal: "default",
        ExternalStream=lambda handle, ordinal: handle,
        stream=log.using,
        is_available=lambda: False,
    )
    double = types.SimpleNamespace(
        Tensor=Array, strided="strided", cuda=cuda, empty=new(log), float32="torch.float32", log=log
    )
    monkeypatch.setitem(sys.modules, "torch", double)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    return double


@pytest.fixture
def cupy(monkeypatch):
    log = Log()
    cuda = types.SimpleNamespace(
        Device=lambda ordinal: contextlib.nullcontext(),
        ExternalStream=log.using,
        get_current_stream=lambda: types.SimpleNamespace(ptr=log.on[-1]),
        runtime=types.SimpleNamespace(deviceSynchronize=lambda: None),
    )
    double = types.SimpleNamespace(ndarray=Array, cuda=cuda, empty=new(log), log=log)
    monkeypatch.setitem(sys.modules, "cupy", double)
    monkeypatch.delitem(sys.modules, "torch", raising=False)

    def describe(x, kind, call, stream):
        return _arrays.Array((x, x), "cupy", x.address, x.shape, "float32", 4, "cuda:0", True, True)

    monkeypatch.setattr(_arrays, "_describe_dlpack", describe)
    return double


class Mark:
    def __init__(self):
        self.passed = False
        self.waits = 0

    def wait(self):
        self.waits += 1


class Native:
    """The extension's communicator, on a GPU that is not there."""

    def __init__(self, world, algorithm):
        self.rank, self.size, self.closed, self.given_back = 0, 1, False, False
        self.calls, self.marks, self.is_captured = [], [], False

    def all_reduce(self, out, inp, count, type, op, stream):
        self.calls.append((out, inp, stream))

    def exchange(self, messages, stream):
        self.calls.append(stream)

    def mark(self, stream):
        if self.is_captured:
            return None
        self.marks.append(Mark())
        return self.marks[-1]

    def close(self):
        self.closed = True


@pytest.fixture
def coll(monkeypatch):
    with crosswarp.World(device="cpu", heap=1 << 20) as world:
        monkeypatch.setattr(crosswarp._crosswarp, "Coll", Native)
        monkeypatch.setattr(crosswarp.World, "device", "cuda:0")
        yield crosswarp.Coll(world)
        monkeypatch.undo()


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_results_are_allocated_for_the_stream_that_writes_them(coll, framework, request):
    log = request.getfixturevalue(framework).log
    x = Array(log)
    out = coll.all_reduce(x, stream=NAMED)
    assert log.allocated == [(out, NAMED)]  # once on CURRENT: what was freed there may be read yet
    assert coll._native.calls == [(out.address, x.address, NAMED)]
    if framework == "torch":  # the caller goes on with it there
        assert [(a, s.cuda_stream) for a, s in log.recorded] == [(out, CURRENT)]
    out = coll.all_reduce(x)
    assert log.allocated[1:] == [(out, CURRENT)] and coll._native.calls[1][2] == CURRENT


def test_the_default_stream_has_other_names(coll, torch):
    for name in (0, 1):
        coll.all_reduce(Array(torch.log), stream=name)
        assert torch.log.allocated[-1][1] == "default"


@pytest.mark.parametrize("framework", ["torch", "cupy"])
def test_what_a_named_stream_uses_lives_until_it_is_done(coll, framework, request):
    log = request.getfixturevalue(framework).log
    x, y, z = Array(log), Array(log), Array(log)
    dead = [weakref.ref(x), weakref.ref(y), weakref.ref(z)]
    coll.all_reduce(x, y, stream=NAMED)
    coll._native.size = 2
    coll.exchange([(z, 1)], stream=NAMED)
    coll._native.size = 1
    del x, y, z
    gc.collect()
    assert all(r() is not None for r in dead)
    for mark in coll._native.marks:
        mark.passed = True
    coll.all_reduce(Array(log), Array(log), stream=NAMED)
    gc.collect()
    assert all(r() is None for r in dead)


def test_on_the_frameworks_own_stream_nothing_is_kept(coll, cupy):
    coll.all_reduce(Array(cupy.log))
    assert not coll._under_way and not coll._native.marks


def test_what_is_captured_is_not_kept(coll, cupy):
    coll._native.is_captured = True
    coll.all_reduce(Array(cupy.log), stream=NAMED)
    assert not coll._under_way


def test_a_dropped_communicators_calls_are_waited_for(coll, cupy):
    world, x = coll.world, Array(cupy.log)
    dropped = crosswarp.Coll(world)
    native = dropped._native
    dropped.all_reduce(x, x, stream=NAMED)
    alive = weakref.ref(x)
    del dropped, x
    gc.collect()
    assert native.closed and alive() is not None and native.marks[0].waits == 0
    crosswarp.Coll(world)
    assert native.marks[0].waits == 1 and alive() is not None  # not all ranks have dropped it
    native.given_back = True
    crosswarp.Coll(world)
    gc.collect()
    assert alive() is None
