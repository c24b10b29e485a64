"""Kernels of our own on CPUs, where they were built and the processor can run them.

XLA computes a convolution at the full speed of a core, but with all of its
multiplications, and forms kernel gradients from windows that it writes to memory first.
The kernels in `cpu` need a quarter to two fifths of the multiplications, write no
windows, and hash only those coordinates for noise that a mask keeps. Without them
everything is computed by XLA, equal up to rounding.
"""

import contextlib
import contextvars
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

_built: Any = None
with contextlib.suppress(ImportError):  # installed without a compiler
    _built = importlib.import_module("dpsparfl_jax.training.cpu.kernels")

_PREFIX = "dpsparfl_"  # of names by which XLA knows the kernels
_LANES = 16  # channels come in such blocks
_allowed = contextvars.ContextVar("cpu_kernels_allowed", default=True)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@functools.cache
def _registered() -> frozenset[str]:
    """Tells JAX of the kernels that this processor can run, once; their names."""
    handlers = _built.handlers() if _built else {}
    for name, handler in handlers.items():
        jax.ffi.register_ffi_target(_PREFIX + name, handler, platform="cpu")
    return frozenset(handlers)


def instructions() -> str:
    """Instruction set of the kernels on this machine; empty where XLA does it all."""
    return _built.instructions() if _registered() else ""


def _has(name: str) -> bool:
    return _allowed.get() and name in _registered()


@contextlib.contextmanager
def choice(kernels: str) -> Iterator[None]:
    """What is traced inside uses our kernels (auto) or none of them (xla)."""
    token = _allowed.set(kernels == "auto")
    try:
        yield
    finally:
        _allowed.reset(token)


def choosing(
    kernels: str, function: Callable[Arguments, Result]
) -> Callable[Arguments, Result]:
    """`function`, traced with this choice of kernels."""

    @functools.wraps(function)
    def chosen(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with choice(kernels):
            return function(*args, **kwargs)

    return chosen


def on_cpu(own: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """`own` on a CPU, `plain` on other platforms and where clients are vmapped."""

    @custom_vmap
    def function(*args: Any) -> Any:
        return jax.lax.platform_dependent(*args, cpu=own, default=plain)

    @function.def_vmap
    def rule(size: int, batched: Any, *args: Any) -> tuple[Any, Any]:
        axes = jax.tree.map(lambda is_batched: 0 if is_batched else None, batched)
        result = jax.vmap(plain, axes)(*args)
        return result, jax.tree.map(lambda _: True, result)

    return function


def can_convolve(kernel_shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a convolution with such a kernel [*size, C, O] is among the fast ones."""
    whole = kernel_shape[-2] % _LANES == 0
    return _has("convolve") and whole and _is_fast(kernel_shape, strides)


def can_form_gradients(kernel_shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the gradients of such a kernel are among the fast ones."""
    whole = kernel_shape[-2] < _LANES or kernel_shape[-2] % _LANES == 0
    return _has("kernel_gradients") and whole and _is_fast(kernel_shape, strides)


def can_add_noise(rounds: int) -> bool:
    """Whether noise by so many rounds of the hash is among the fast things."""
    return _has("add_noise") and rounds in (13, 20)


def _is_fast(kernel_shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return (
        kernel_shape[:-2] in ((3, 3), (5, 5))
        and set(strides) == {1}
        and kernel_shape[-1] % _LANES == 0
    )


def convolve(
    x: jax.Array,
    kernel: jax.Array,
    out_space: tuple[int, ...],
    margins: tuple[int, ...],
    *,
    turned: bool = False,
) -> jax.Array:
    """A convolution without strides, `margins` zeros before the image on each axis.

    A turned kernel is taken from its end, with its axes of channels exchanged: so a
    convolution's cotangent becomes that of its input.
    Shapes: x [B, *space, C], kernel [*size, C, O] (turned: O, C) -> [B, *out_space, O].
    """
    channels = kernel.shape[-2 if turned else -1]
    result = _float32(x.shape[0], *out_space, channels)
    return _call("convolve", result)(x, kernel, turned=turned, **_margins(margins))


def kernel_gradients(
    x: jax.Array,
    d: jax.Array,
    mask: jax.Array,
    margins: tuple[int, ...],
) -> tuple[jax.Array, jax.Array]:
    """The gradient of a convolution's kernel for every example of a batch.

    The squares of those coordinates that the mask keeps come with them; each goes
    through no more roundings than in `norm_errors.sum_of_squares`.
    Shapes: x [B, *space, C], d [B, *out_space, O], mask [*size, C, O] ->
    [B, *size, C, O], [B].
    """
    results = _float32(x.shape[0], *mask.shape), _float32(x.shape[0])
    return _call("kernel_gradients", results)(x, d, mask, **_margins(margins))


def weighted_sum(factors: jax.Array, gradients: jax.Array) -> jax.Array:
    """The sum over examples of factor times gradient; a factor of 0 adds nothing.

    Shapes: factors [B], gradients [B, D] -> [D].
    """
    return _call("weighted_sum", _float32(gradients.shape[1]))(factors, gradients)


def add_noise(
    total: jax.Array,
    mask: jax.Array,
    key_words: jax.Array,
    noise_std: jax.Array,
    *,
    first: int,
    rounds: int,
) -> jax.Array:
    """Noise on the coordinates first, first + 1, ... of a sum, by `noise.add_noise`.

    Shapes: total and mask [D], key_words [2] -> [D].
    """
    call = _call("add_noise", _float32(*total.shape))
    numbers = {"first": np.int64(first), "rounds": np.int64(rounds)}
    return call(total, mask, key_words, noise_std, **numbers)


def _call(name: str, results: Any) -> Callable[..., Any]:
    return jax.ffi.ffi_call(_PREFIX + name, results)


def _float32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _margins(margins: tuple[int, ...]) -> dict[str, np.int64]:
    return {"top": np.int64(margins[0]), "left": np.int64(margins[1])}
