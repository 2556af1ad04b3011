"""PyTorch: tensors on a CPU, and on a GPU with its streams and graphs; the custom operations."""

import pytest
from conftest import on_ranks

torch = pytest.importorskip("torch")

import crosswarp  # noqa: E402
import crosswarp.torch as ops  # noqa: E402

has_gpu = torch.cuda.is_available() and crosswarp.cuda_device_count() > 0
needs_gpu = pytest.mark.skipif(not has_gpu, reason="no GPU for both PyTorch and crosswarp")
DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int32",
    "int64",
]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type(dtype):
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = torch.full((5, 3), float(world.rank + 1)).to(getattr(torch, dtype))
        got = coll.all_reduce(x)
        assert got.dtype == x.dtype and got.shape == x.shape
        assert (got.to(torch.float64) == 3).all()

    on_ranks(2, rank_main)


def test_tensors_share_symmetric_memory():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = torch.from_dlpack(world.empty(100_000, torch.float32))
        x.fill_(world.rank + 1)
        assert coll.explain(x).direct
        world.barrier()
        coll.all_reduce(x, x)
        assert (x == 6).all()

    on_ranks(3, rank_main)


def test_gradients_and_parameters_are_taken():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        p = torch.nn.Parameter(torch.ones(4))
        assert (coll.all_reduce(p) == 2).all()

    on_ranks(2, rank_main)


def test_bad_tensors():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        with pytest.raises(ValueError, match="contiguous"):
            coll.all_reduce(torch.ones(4, 4).t())
        with pytest.raises(TypeError, match="layout"):
            coll.all_reduce(torch.eye(3).to_sparse())
        with pytest.raises(TypeError, match="on meta"):
            coll.all_reduce(torch.ones(3, device="meta"))

    on_ranks(1, rank_main)


def test_views_that_change_numbers_are_refused():
    """Their memory has the numbers before that; they were sent as they are."""

    def rank_main(world):
        coll = crosswarp.Coll(world)
        c = torch.tensor([1 + 2j, 3 - 4j])
        with pytest.raises(TypeError, match=r"pass its resolve_conj\(\)"):
            coll.all_gather(c.conj())
        with pytest.raises(TypeError, match=r"pass its resolve_neg\(\)"):
            coll.all_gather(c.conj().imag)
        assert torch.equal(coll.all_gather(c.conj().resolve_conj()), c.conj())
        assert torch.equal(coll.all_gather(c.conj().imag.contiguous().resolve_neg()), -c.imag)

    on_ranks(1, rank_main)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer")
def test_fake_tensors_are_not_to_be_used():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with crosswarp.FastAllreduce(0, 1, device="cpu") as fa:
        with FakeTensorMode():
            fake = torch.ones(3)
            assert not fa.should_use(fake)
            with pytest.raises((TypeError, RuntimeError)):  # as PyTorch's version does
                fa.all_reduce(fake)
        assert fa.should_use(torch.ones(3))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_sums_that_go_on(dtype):
    shape, kind = (3, 5, 100), getattr(torch, dtype)

    def rank_main(world):
        coll = crosswarp.Coll(world)
        x = torch.arange(1500).reshape(shape).remainder(7).to(kind)
        weight = torch.linspace(0.5, 2, 100).to(kind)
        out, summed = coll.all_reduce_rms_norm(x, x, weight)
        assert torch.equal(summed, 3 * x)
        want = torch.nn.functional.rms_norm(summed.double(), (100,), weight.double(), 1e-6)
        torch.testing.assert_close(out, want.to(kind))
        got = coll.all_reduce_quantise(x, dtype=torch.float8_e5m2)
        assert got.out.dtype == torch.float8_e5m2 and got.scales.shape == (3, 5)
        assert torch.equal(got.sum, 2 * x)
        back = got.out.double() * got.scales.double().unsqueeze(-1)
        torch.testing.assert_close(back, got.sum.double(), rtol=0.13, atol=1e-4)

    on_ranks(2, rank_main)


# ---- custom operations, in a world of one: torch.compile is not for several threads


@pytest.fixture
def group():
    with crosswarp.World(device="cpu", heap=16 << 20) as world:
        coll = crosswarp.Coll(world)
        number = ops.add(coll)
        yield number
        ops.remove(number)
        coll.close()


def test_operations_are_what_they_say(group):
    x = torch.arange(6.0).reshape(2, 3)
    for op, arguments in [
        (ops.all_reduce, (x, group, "sum")),
        (ops.all_gather, (x, group)),
        (ops.reduce_scatter, (x, group, "max")),
        (ops.all_to_all, (x, group)),
        (ops.all_reduce_, (x.clone(), group, "sum")),
        (ops.broadcast_, (x.clone(), group, 0)),
        (ops.all_reduce_rms_norm, (x, x + 1, torch.ones(3), group, 1e-5)),
        (ops.all_reduce_rms_norm_, (x.clone(), x + 1, torch.ones(3), group)),
        (ops.all_reduce_quantise, (x, group)),
        (ops.all_reduce_quantise, (x, group, "float8_e5m2", 0.5)),
    ]:
        # Schema, fake implementation and dispatch, as PyTorch checks them.
        torch.library.opcheck(op, arguments)


def test_compiled(group):
    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(x):
        y = ops.all_reduce(x * 2, group) + 1
        ops.all_reduce_(y, group, "max")
        return torch.ops.crosswarp.all_gather(y.t(), group)

    x = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(step(x), (x * 2 + 1).t())


def test_a_layer_of_inference_compiled(group):
    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(x, residual, weight):
        x, residual = ops.all_reduce_rms_norm(x, residual, weight, group)
        rounded, scales = torch.ops.crosswarp.all_reduce_quantise(x, group)
        ops.all_reduce_rms_norm_(x, residual, weight, group)
        return x, residual, rounded.float() * scales.unsqueeze(-1)

    x, residual, weight = torch.randn(4, 64), torch.randn(4, 64), torch.rand(64)
    normed, summed, back = layer(x, residual, weight)

    def norm(x):
        return torch.nn.functional.rms_norm(x, (64,), weight, 1e-6)

    first = norm(x + residual)
    torch.testing.assert_close(back, first, rtol=0.07, atol=1e-3)
    torch.testing.assert_close(summed, first + x + residual)
    torch.testing.assert_close(normed, norm(summed))


def test_conjugates_of_operations_are_resolved(group):
    c = torch.tensor([1 + 2j, 3 - 4j])
    assert torch.equal(ops.all_gather(c.conj(), group), c.conj())


def test_a_group_that_is_not_there():
    with pytest.raises(ValueError, match="no group 12345"):
        ops.all_reduce(torch.ones(3), 12345)
    with pytest.raises(TypeError, match="a Coll is needed"):
        ops.add(None)


# ---- on a GPU


@pytest.fixture
def gpu():
    with crosswarp.World(device="cuda:0", heap=128 << 20) as world:
        yield crosswarp.Coll(world)


@needs_gpu
def test_in_order_with_the_current_stream(gpu):
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 20, device="cuda")
            torch.cuda._sleep(20_000_000)
            x += 5  # late; the collective comes after it without anybody waiting
            got = gpu.all_reduce(x) * 2
            assert (got == 10).all()
        gpu.check(stream=stream)
    named = torch.cuda.Stream()
    x = torch.ones(100, device="cuda")
    torch.cuda.synchronize()
    for name in (named, named.cuda_stream):
        out = gpu.all_reduce(x, stream=name)
        gpu.check(stream=name)
        assert (out == 1).all()


@needs_gpu
def test_a_named_stream_leaves_the_current_ones_memory_alone(gpu):
    """The current stream's allocator gives out again what pending work there still reads."""
    count, named = 1 << 20, torch.cuda.Stream()
    x = torch.ones(count, device="cuda")
    torch.cuda.synchronize()
    for _ in range(5):
        read = torch.full((count,), 3.0, device="cuda")
        torch.cuda._sleep(20_000_000)
        twice = read * 2  # late
        del read
        out = gpu.all_reduce(x, stream=named)
        torch.cuda.synchronize()
        assert (twice == 6).all() and (out == 1).all()


@needs_gpu
def test_what_a_named_stream_reads_may_be_dropped(gpu):
    count, named = 1 << 20, torch.cuda.Stream()
    for _ in range(5):
        x = torch.full((count,), 5.0, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(named):
            torch.cuda._sleep(20_000_000)
        out = gpu.all_reduce(x, stream=named)  # late
        del x
        torch.zeros(count, device="cuda")
        torch.cuda.synchronize()
        assert (out == 5).all()


@needs_gpu
def test_a_layer_of_inference_in_a_graph(gpu):
    x, residual = (torch.randn(16, 512, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    weight = torch.rand(512, device="cuda", dtype=torch.bfloat16)
    want, summed = gpu.all_reduce_rms_norm(x, residual, weight)
    quantised = gpu.all_reduce_quantise(want)
    torch.cuda.synchronize()
    torch.testing.assert_close(summed, x + residual)
    root = summed.float().square().mean(-1, keepdim=True).add(1e-6).sqrt()
    torch.testing.assert_close(
        want.float(), summed.float() / root * weight.float(), rtol=0.02, atol=0.02
    )
    out, residual_out = torch.empty_like(x), torch.empty_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        gpu.all_reduce_rms_norm(x, residual, weight, out, residual_out)
        rounded, scales, _ = gpu.all_reduce_quantise(out)
    for _ in range(2):
        out.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, want) and torch.equal(residual_out, summed)
        assert torch.equal(scales, quantised.scales)
        assert torch.equal(rounded.view(torch.uint8), quantised.out.view(torch.uint8))
    gpu.check()
    del graph


@needs_gpu
def test_graphs_are_replayed():
    with crosswarp.FastAllreduce(0, 1, device="cuda:0") as fa:
        for count, registered in ((4096, 0), (1 << 20, 1)):  # what is short needs no registering
            x = torch.ones(count, device="cuda", dtype=torch.bfloat16)
            out = fa.all_reduce(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with fa.capture():
                with torch.cuda.graph(graph):
                    fa.all_reduce(x, out)
                assert fa.register_graph_buffers() == registered
            for value in (2, 3):
                x.fill_(value)
                graph.replay()
                torch.cuda.synchronize()
                assert (out == value).all()
            del graph


@needs_gpu
def test_registered_tensors_are_used_in_place(gpu):
    whole = torch.ones(1 << 21, device="cuda")
    x, out = whole[: 1 << 20], whole[1 << 20 :]
    assert not gpu.explain(x, out).direct
    gpu.register_buffer(whole)
    assert gpu.explain(x, out).direct
    x.fill_(7)
    assert (gpu.all_reduce(x, out) == 7).all()
    gpu.check()
    gpu.unregister_buffer(whole)
    with pytest.raises(ValueError, match="on cpu, the world on cuda"):
        gpu.register_buffer(torch.ones(5))


@needs_gpu
def test_ranks_as_threads_on_one_gpu():
    def rank_main(world):
        coll = crosswarp.Coll(world)
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x = torch.full((100_000,), float(world.rank + 1), device="cuda")
            out = torch.empty_like(x)
        stream.synchronize()
        world.barrier()  # nobody allocates while another's kernel waits on the same GPU
        coll.all_reduce(x, out, stream=stream)
        coll.check(stream=stream)
        world.barrier()
        assert (out == 3).all()
        torch.cuda.synchronize()

    crosswarp.run(2, rank_main, device="cuda:0", heap=128 << 20)


@needs_gpu
def test_symmetric_memory_of_a_gpu(gpu):
    t = gpu.world.empty(1 << 20, torch.float32)
    x = torch.from_dlpack(t)
    assert x.device == torch.device("cuda:0")
    x.fill_(3)
    assert gpu.explain(x).direct
    gpu.all_reduce(t, t)
    gpu.check(stream=torch.cuda.current_stream())
    assert (x == 3).all()
    assert t.__cuda_array_interface__["shape"] == (1 << 20,)
    with pytest.raises(TypeError, match="cuda:0"):
        t.numpy()
    del x, t


@needs_gpu
def test_the_wrong_device_is_told(gpu):
    with pytest.raises(ValueError, match="inp is on cpu, the world on cuda:0"):
        gpu.all_reduce(torch.ones(3))
    with pytest.raises(TypeError, match="no stream"):
        gpu.all_reduce(torch.ones(3, device="cuda"), stream="left")


@needs_gpu
def test_cupy_and_jax_on_a_gpu(gpu):
    cupy = pytest.importorskip("cupy")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        x = cupy.full(1000, 7, cupy.float32)
        got = gpu.all_reduce(x)
        gpu.check(stream=stream)
        assert isinstance(got, cupy.ndarray) and bool((got == 7).all())
    jax = pytest.importorskip("jax")
    got = gpu.all_reduce(jax.numpy.full(1000, 7, jax.numpy.bfloat16))
    assert isinstance(got, jax.Array) and bool((got == 7).all())
