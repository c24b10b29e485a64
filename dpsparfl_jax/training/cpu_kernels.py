"""Kernels of our own on CPUs, where they were built and the processor can run them.

XLA computes a convolution at the full speed of a core, but with all of its
multiplications, and forms kernel gradients from windows that it writes to memory first.
`cpu/convolutions.inc` needs a quarter to two fifths of the multiplications and writes
no windows. Without these kernels everything is computed by XLA, equal up to rounding.
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

_built: Any = None
with contextlib.suppress(
    ImportError
):  # built without a compiler, or for other machines
    _built = importlib.import_module("dpsparfl_jax.training.cpu.kernels")

CHOICES = ("auto", "xla")
_NAMES = {
    "convolve": "dpsparfl_convolve",
    "kernel_gradients": "dpsparfl_kernel_gradients",
}
_LANES = 16  # channels come in such blocks
_allowed = contextvars.ContextVar("cpu_kernels_allowed", default=True)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


@functools.cache
def _registered() -> bool:
    """Tells JAX of the kernels, once; False if there are none for this processor."""
    handlers = _built.handlers() if _built else {}
    for name, handler in handlers.items():
        jax.ffi.register_ffi_target(_NAMES[name], handler, platform="cpu")
    return bool(handlers)


def instructions() -> str:
    """Instruction set of the kernels on this machine; empty where XLA does it all."""
    return _built.instructions() if _registered() else ""


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


def can_convolve(kernel_shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a convolution with such a kernel [*size, C, O] is among the fast ones."""
    return _is_fast(kernel_shape, strides) and kernel_shape[-2] % _LANES == 0


def can_form_gradients(kernel_shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the gradients of such a kernel are among the fast ones."""
    few = kernel_shape[-2] < _LANES
    return _is_fast(kernel_shape, strides) and (few or kernel_shape[-2] % _LANES == 0)


def _is_fast(kernel_shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return (
        kernel_shape[:-2] in ((3, 3), (5, 5))
        and set(strides) == {1}
        and kernel_shape[-1] % _LANES == 0
        and _allowed.get()
        and _registered()
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
    call: Any = jax.ffi.ffi_call(_NAMES["convolve"], result)
    return call(x, kernel, turned=turned, **_margins(margins))


def kernel_gradients(
    x: jax.Array, d: jax.Array, size: tuple[int, ...], margins: tuple[int, ...]
) -> jax.Array:
    """The gradient of a convolution's kernel for every example of a batch.

    Shapes: x [B, *space, C], d [B, *out_space, O] -> [B, *size, C, O].
    """
    result = _float32(x.shape[0], *size, x.shape[-1], d.shape[-1])
    call: Any = jax.ffi.ffi_call(_NAMES["kernel_gradients"], result)
    return call(x, d, **_margins(margins))


def _float32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _margins(margins: tuple[int, ...]) -> dict[str, np.int64]:
    return {"top": np.int64(margins[0]), "left": np.int64(margins[1])}
