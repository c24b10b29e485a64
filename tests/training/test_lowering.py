"""Is what accelerators are given free of what would be slow there?

Programs are lowered for other platforms, which needs none of their devices, and read;
they are neither compiled nor run.
"""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpsparfl_jax.training import cohort, evaluate, local, models
from dpsparfl_jax.types import (
    EvalRows,
    ImageSet,
    RunConstants,
    ServerRates,
    ServerState,
    Tasks,
)
from tests import worlds
from tests.training import lowered

PLATFORMS = ("cuda", "tpu")
IMAGES = {
    "small_cnn": worlds.SHAPE,
    "mnist_cnn": (28, 28, 1),
    "cifar_cnn": (32, 32, 3),
}
STEPS, EXAMPLES, CLIENTS = 2, 300, 12
CHUNK_LOOP, STEP_LOOP = 1, 2  # loops around a chunk's work, and around a step's
SHORT = [("small_cnn", 4, 1), ("small_cnn", 1, 1)]
LONG = [
    ("small_cnn", 2, 3),
    ("mnist_cnn", 8, 1),
    ("mnist_cnn", 1, 1),
    ("cifar_cnn", 8, 1),
]


def cases(short, long):
    return [*short, *(pytest.param(*case, marks=pytest.mark.slow) for case in long)]


def array(shape, dtype):
    return jax.ShapeDtypeStruct(shape, dtype)


def param_shapes(model):
    net = models.make_model(model)
    image = array((1, *IMAGES[model]), jnp.float32)
    return net, jax.eval_shape(net.init, jax.random.key(0), image)["params"]


def one_run(params):
    return jax.tree.map(lambda leaf: array((1, *leaf.shape), leaf.dtype), params)


def image_set(model):
    total = CLIENTS * EXAMPLES
    return ImageSet(
        array((total, *IMAGES[model]), jnp.uint8), array((total,), jnp.int32)
    )


def read(program, platform, *arguments):
    text = jax.export.export(program, platforms=[platform])(*arguments).mlir_module()
    return lowered.operations(text)


@functools.cache
def training_program(model, chunk, devices):
    """A cohort step, the shapes of what it takes and those of one model's parameters.

    Traced once for all platforms.
    """
    net, params = param_shapes(model)
    spec = local.make_spec(
        net,
        params,
        IMAGES[model],
        steps=STEPS,
        padded_sizes=(8, 16),
        table_lengths=(EXAMPLES,),
    )
    mesh = cohort.task_mesh(jax.devices()[:devices])
    step = cohort.make_cohort_step(
        spec, execution="chunked", chunk_size=chunk, mesh=mesh
    )
    owners = array((1, CLIENTS * EXAMPLES), jnp.int32)
    rates = ServerRates(*(array((1,), jnp.float32) for _ in ServerRates._fields))
    constants = RunConstants(array((1, 2), jnp.uint32), rates)
    row = {"run": "i4", "client": "i4", "round": "i4", "active": "?"}
    row |= {"keep": "u4", "inclusion": "u4", "first": "i4", "size": "i4"}
    rows = Tasks(
        *(array((CLIENTS,), np.dtype(row.get(name, "f4"))) for name in Tasks._fields)
    )
    state = ServerState(one_run(params), optax.EmptyState(), one_run(params))
    records = local.Records(image_set(model), owners)
    return step, (state, records, constants, rows), params


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(("model", "chunk", "devices"), cases(SHORT, LONG))
def test_training_gives_an_accelerator_nothing_slow(model, chunk, devices, platform):
    step, arguments, params = training_program(model, chunk, devices)
    found = read(step, platform, *arguments)
    depth = STEP_LOOP + (chunk == 1)  # tasks one by one go by phases and slots
    assert max(each.loops for each in found) >= depth
    assert lowered.inner_loops(found, depth) == []
    leaves = jax.tree.leaves(params)
    limit = sum(leaf.size for leaf in leaves) // 4
    if chunk == 1:  # one client turns its kernels round for the backward pass
        limit = max(limit, *(leaf.size for leaf in leaves if leaf.ndim == 4))
    assert lowered.host_traffic(found) == []
    assert lowered.wide_numbers(found) == []
    assert lowered.large_transposes(found, limit, depth) == []
    assert lowered.large_sorts(found, chunk * STEPS * EXAMPLES, depth) == []
    clients = (chunk,) if chunk > 1 else ()
    kernels = [(*clients, *leaf.shape) for leaf in leaves if leaf.ndim == 2]
    assert lowered.rounded_products(found, kernels) == []


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize(
    "model",
    ["small_cnn", *(pytest.param(m, marks=pytest.mark.slow) for m in list(IMAGES)[1:])],
)
def test_evaluation_gives_an_accelerator_nothing_slow(model, platform):
    net, params = param_shapes(model)
    program = evaluate.make_evaluate(
        net, IMAGES[model], batch_size=50, execution="chunked"
    )
    rows = EvalRows(array((1, 200), jnp.int32), array((1,), bool))
    found = read(program, platform, one_run(params), image_set(model), rows)
    assert max(each.loops for each in found) == CHUNK_LOOP
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    assert lowered.host_traffic(found) == []
    assert lowered.wide_numbers(found) == []
    assert lowered.large_transposes(found, size // 4, CHUNK_LOOP) == []
    assert lowered.large_sorts(found, 0, CHUNK_LOOP) == []


# ------------------------------------------------------ can the checks fail at all?


def looped(body):
    """A program that does `body` in a loop of a loop, as local steps are done."""

    def inner(x, _):
        return body(x), None

    def outer(x, _):
        return jax.lax.scan(inner, x, length=3)[0], None

    return jax.jit(lambda x: jax.lax.scan(outer, x, length=3)[0])


def read_looped(body, shape=(40, 30)):
    return read(looped(body), "tpu", array(shape, jnp.float32))


def test_a_large_transpose_is_found_in_the_loop_alone():
    found = read_looped(lambda x: jnp.sin(x.T).reshape(40, 30))
    (told,) = lowered.large_transposes(found, 1199, STEP_LOOP)
    assert "tensor<40x30xf32>" in told
    assert lowered.large_transposes(found, 1200, STEP_LOOP) == []
    assert lowered.large_transposes(found, 1199, STEP_LOOP + 1) == []
    outside = read(jax.jit(lambda x: jnp.sin(x.T)), "tpu", array((40, 30), jnp.float32))
    assert lowered.large_transposes(outside, 100, STEP_LOOP) == []
    assert lowered.large_transposes(outside, 100, 0)


def test_a_transpose_that_only_a_product_takes_is_none():
    x = array((40, 30), jnp.float32)
    assert (
        lowered.large_transposes(read(jax.jit(lambda x: x.T @ x), "tpu", x), 9, 0) == []
    )

    def both(x):
        turned = x.T
        return turned @ x, turned

    assert lowered.large_transposes(read(jax.jit(both), "tpu", x), 9, 0)


def test_a_name_means_another_value_in_another_block():
    x = array((40, 30), jnp.float32)
    branches = [lambda x: x.T @ x, lambda x: 2 * jnp.sin(x.T @ x)]
    chosen = jax.jit(lambda x: jax.lax.switch(jnp.int32(x[0, 0]), branches, x))
    found = read(chosen, "tpu", x)
    turned = [each for each in found if each.name == "stablehlo.transpose"]
    assert len({each.blocks for each in turned}) == 2
    assert lowered.large_transposes(found, 9, 0) == []


def test_a_sort_is_found_if_it_is_large_or_in_the_loop():
    found = read_looped(lambda x: jnp.sort(x, axis=0))
    assert lowered.large_sorts(found, 1200, STEP_LOOP)
    assert lowered.large_sorts(found, 1200, STEP_LOOP + 1) == []
    assert lowered.large_sorts(found, 1199, STEP_LOOP + 1)


def test_a_loop_inside_the_loop_is_found():
    found = read_looped(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: jnp.sin(x), x))
    assert len(lowered.inner_loops(found, STEP_LOOP)) == 1
    assert lowered.inner_loops(found, STEP_LOOP + 1) == []
    assert lowered.inner_loops(read_looped(jnp.sin), STEP_LOOP) == []


def test_products_that_round_are_found():
    shape = (30, 30)
    assert lowered.rounded_products(read_looped(lambda x: x @ (x.T @ x)), [shape])
    exact = jax.lax.Precision.HIGHEST
    found = read_looped(lambda x: x @ jnp.matmul(x.T, x, precision=exact))
    assert lowered.rounded_products(found, [shape]) == []
    assert lowered.rounded_products(found, [(7, 7)])


def test_double_precision_is_found():
    with jax.enable_x64(True):
        x = array((4,), jnp.float32)
        twice = jax.jit(lambda x: x.astype(jnp.float64).sum().astype(jnp.float32))
        assert lowered.wide_numbers(read(twice, "cuda", x))
        long = jax.jit(lambda x: x.astype(jnp.int64).astype(jnp.float32))
        assert lowered.wide_numbers(read(long, "cuda", x))


WAITS = """
module @bad {
  func.func public @main(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.create_token : !stablehlo.token
    %1 = {operation}
    return %arg0 : tensor<4xf32>
  }
}
"""


@pytest.mark.parametrize(
    "operation",
    [
        "stablehlo.custom_call @xla_ffi_python_gpu_callback(%arg0) : "
        "(tensor<4xf32>) -> tensor<4xf32>",
        '"stablehlo.custom_call"(%arg0) <{call_target_name = "a_callback"}>'
        " : (tensor<4xf32>) -> tensor<4xf32>",
        '"stablehlo.infeed"(%0) : (!stablehlo.token) -> tensor<4xf32>',
        '"stablehlo.outfeed"(%arg0, %0) : (tensor<4xf32>, !stablehlo.token) -> '
        "!stablehlo.token",
        '"stablehlo.send"(%arg0, %0) <{is_host_transfer = true}> : '
        "(tensor<4xf32>, !stablehlo.token) -> !stablehlo.token",
        '"stablehlo.recv"(%0) : (!stablehlo.token) -> tensor<4xf32>',
    ],
)
def test_waiting_for_the_host_is_found(operation):
    bad = WAITS.replace("{operation}", operation)
    assert len(lowered.host_traffic(lowered.operations(bad))) == 1
    fine = WAITS.replace("{operation}", "stablehlo.add %arg0, %arg0 : tensor<4xf32>")
    assert lowered.host_traffic(lowered.operations(fine)) == []


LOOP = """
module @bad {
  func.func public @main(%arg0: tensor<8x4xf64>) -> tensor<8x4xf64> {
    %0 = stablehlo.while(%iterArg = %arg0) : tensor<8x4xf64>
    cond {
      stablehlo.return %c : tensor<i1>
    } do {
      %1 = func.call @body(%iterArg) : (tensor<8x4xf64>) -> tensor<8x4xf64>
      stablehlo.return %1 : tensor<8x4xf64>
    }
    return %0 : tensor<8x4xf64>
  }
  func.func private @body(%arg0: tensor<8x4xf64>) -> tensor<8x4xf64> {
    %0 = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<8x4xf64>) -> tensor<4x8xf64>
    %1 = "stablehlo.sort"(%0) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%arg1: tensor<f64>, %arg2: tensor<f64>):
      %3 = stablehlo.compare LT, %arg1, %arg2 : (tensor<f64>, tensor<f64>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>
    }) : (tensor<4x8xf64>) -> tensor<4x8xf64>
    %2 = stablehlo.reshape %1 : (tensor<4x8xf64>) -> tensor<8x4xf64>
    return %2 : tensor<8x4xf64>
  }
}
"""


def test_a_called_function_is_in_the_loop_that_calls_it():
    found = lowered.operations(LOOP)
    loops = {each.name.partition(".")[2]: each.loops for each in found}
    assert loops["while"] == 0
    assert loops["transpose"] == loops["sort"] == loops["compare"] == 1
    assert len(lowered.large_transposes(found, 31, 1)) == 1
    assert len(lowered.large_sorts(found, 32, 1)) == 1
    assert len(lowered.large_sorts(found, 31, 2)) == 1
    assert lowered.wide_numbers(found)
