"""Dense and convolution layers of unmodified Flax models, opened by interception.

`run_layers` runs a model with every `nn.Dense` and `nn.Conv` replaced by an equal
matrix product: a convolution becomes patches times a matrix, because a convolution with
one kernel per client would turn into a grouped convolution, which is slow on CPU.
It can record each layer's input and add a "tap" to its output; the gradient of a tap is
the layer's output cotangent, from which clipping builds everything else.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.linen.dtypes import promote_dtype

from dpsparfl_jax.types import Params

Path = tuple[str, ...]


class UnsupportedLayer(Exception):
    """Says which part of a model cannot be opened."""


class Layer(NamedTuple):
    """One opened layer: output = input @ kernel + bias over the last axis."""

    path: Path
    output_shape: tuple[int, ...]  # for one image, all axes


def extract_patches(
    x: jax.Array,
    kernel_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
) -> jax.Array:
    """All windows of x, offset-major and channel-minor on the last axis.

    One axis at a time: 5 + 5 slices for a 5x5 kernel instead of 25, which is what XLA
    fuses well forwards and, above all, backwards.
    Shapes: [B, *space, C] -> [B, *out_space, prod(kernel_size) * C].
    """
    x = jnp.pad(x, ((0, 0), *padding, (0, 0)))
    for axis in reversed(range(1, len(kernel_size) + 1)):
        kernel, stride = kernel_size[axis - 1], strides[axis - 1]
        span = (x.shape[axis] - kernel) // stride * stride + 1
        windows = [
            jax.lax.slice_in_dim(x, start, start + span, stride, axis)
            for start in range(kernel)
        ]
        x = jnp.concatenate(windows, axis=-1)
    return x


def _as_tuple(value: Any, length: int) -> tuple[int, ...]:
    if value is None:
        return (1,) * length
    return (int(value),) * length if isinstance(value, int) else tuple(value)


def _conv_patches(module: nn.Conv, x: jax.Array) -> jax.Array:
    """Patches of a convolution's input; UnsupportedLayer if it is not a plain one."""
    kernel_size = _as_tuple(module.kernel_size, 1)
    rank = len(kernel_size)
    plain = (
        x.ndim == rank + 2
        and module.feature_group_count == 1
        and module.mask is None
        and set(_as_tuple(module.input_dilation, rank)) == {1}
        and set(_as_tuple(module.kernel_dilation, rank)) == {1}
        and module.conv_general_dilated is None
        and module.conv_general_dilated_cls is None
        and module.padding not in ("CIRCULAR", "REFLECT", "CAUSAL")
    )
    if not plain:
        raise UnsupportedLayer(f"the convolution {'/'.join(module.path)} is special")
    strides = _as_tuple(module.strides, rank)
    padding: Any = module.padding
    if isinstance(padding, str):
        padding = jax.lax.padtype_to_pads(x.shape[1:-1], kernel_size, strides, padding)
    elif isinstance(padding, int):
        padding = [padding] * rank
    pairs = tuple((p, p) if isinstance(p, int) else (p[0], p[1]) for p in padding)
    return extract_patches(x, kernel_size, strides, pairs)


def _layer_input(module: Any, inputs: jax.Array) -> jax.Array:
    """The matrix-product input of an opened layer."""
    special = (
        module.dtype not in (None, jnp.float32)
        or inputs.dtype != jnp.float32
        or module.promote_dtype is not promote_dtype
    )
    if isinstance(module, nn.Dense):
        special |= module.dot_general is not None or module.dot_general_cls is not None
        special |= inputs.ndim < 2
    if special:
        raise UnsupportedLayer(f"the layer {'/'.join(module.path)} is special")
    return _conv_patches(module, inputs) if isinstance(module, nn.Conv) else inputs


def layer_params(params: Params, path: Path) -> Mapping[str, jax.Array]:
    """Parameters (kernel and perhaps bias) of the layer at a path."""
    for name in path:
        params = params[name]
    return params


def run_layers(
    model: nn.Module,
    params: Params,
    image: jax.Array,
    taps: Mapping[Path, jax.Array] | None = None,
    check: Callable[[Any], None] | None = None,
    outer_params: Params | None = None,
) -> tuple[jax.Array, dict[Path, jax.Array], dict[Path, jax.Array]]:
    """Logits of one image with the layers opened, and each layer's input and output.

    `opened_layers` uses the rest: `check` sees every opened module, and the model
    itself is given `outer_params`, so that any other use of a parameter shows.
    """
    inputs: dict[Path, jax.Array] = {}
    outputs: dict[Path, jax.Array] = {}

    def open_layer(next_call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        opened = type(module) in (nn.Dense, nn.Conv)
        if not opened or context.method_name != "__call__":
            return next_call(*args, **kwargs)
        path = tuple(module.path)
        if path in inputs:
            raise UnsupportedLayer(f"the layer {'/'.join(path)} is used twice")
        if check is not None:
            check(module)
        x = _layer_input(module, *args, **kwargs)
        own = layer_params(params, path)
        y = x @ own["kernel"].reshape(x.shape[-1], -1)
        if module.use_bias:
            y = y + jnp.broadcast_to(own["bias"], y.shape)
        if taps is not None:
            y = y + taps[path]
        inputs[path], outputs[path] = x, y
        return y

    with nn.intercept_methods(open_layer):
        variables = {"params": params if outer_params is None else outer_params}
        logits: Any = model.apply(variables, image[None])
    return logits[0], inputs, outputs


def run_each(
    model: nn.Module,
    params: Params,
    images: jax.Array,
    taps: Mapping[Path, jax.Array] | None = None,
) -> tuple[jax.Array, dict[Path, jax.Array]]:
    """Logits and layer inputs of a batch, one image at a time.

    Mapped over images rather than fed a batch: whatever a model does along the batch
    axis, one record can then touch no other record's gradient.
    """

    def one(image: jax.Array, taps: Any) -> tuple[jax.Array, dict[Path, jax.Array]]:
        return run_layers(model, params, image, taps)[:2]

    return jax.vmap(one)(images, taps)


def opened_layers(
    model: nn.Module, params: Params, image_shape: tuple[int, ...]
) -> tuple[Layer, ...]:
    """The layers of a model, if they hold all of its parameters; traced, not run.

    Raises UnsupportedLayer when the model has a parameter outside plain Dense and Conv
    layers, uses a layer twice, transforms a layer's parameters on their way to it, or
    reads them from elsewhere: the formulas of `clipping` would not be its gradient.
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    names = [tuple(str(getattr(k, "key", k)) for k in path) for path, _ in leaves]
    shapes = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), params)
    image = jax.ShapeDtypeStruct(tuple(image_shape), jnp.float32)
    found: dict[Path, tuple[int, ...]] = {}
    seen: list[Path] = []

    def forward(outer: Params, inner: Params, x: jax.Array) -> jax.Array:
        def check(module: Any) -> None:
            seen.extend(_own_parameters(module, outer))

        logits, _, outputs = run_layers(
            model, inner, x, check=check, outer_params=outer
        )
        found.update({path: y.shape for path, y in outputs.items()})
        return logits

    jaxpr = jax.make_jaxpr(forward)(shapes, shapes, image).jaxpr
    for name in names:
        if name not in seen:
            raise UnsupportedLayer(f"parameter {'/'.join(name)} is in another layer")
    if _depends_on(jaxpr, jaxpr.invars[: len(leaves)]):
        raise UnsupportedLayer("a layer's parameters are read from outside the layer")
    return tuple(Layer(path, shape) for path, shape in found.items())


def _own_parameters(module: Any, tree: Params) -> list[Path]:
    """Names of a layer's parameters, if they reach it untransformed."""
    path = tuple(module.path)
    name = "/".join(path)
    own = layer_params(tree, path) if path else None
    given = module.variables.get("params", {})
    if own is None or set(given) != set(own):
        raise UnsupportedLayer(f"the layer {name} shares its scope")
    plain = all(isinstance(leaf, jax.Array) for leaf in own.values())
    if not plain or any(given[key] is not own[key] for key in own):
        raise UnsupportedLayer(f"the parameters of {name} are transformed on the way")
    return [(*path, key) for key in own]


def _depends_on(jaxpr: Any, sources: list[Any]) -> bool:
    """Whether any output may depend on the source variables (errs towards yes)."""
    reached = {id(variable) for variable in sources}
    for equation in jaxpr.eqns:
        if any(id(variable) in reached for variable in equation.invars):
            reached.update(id(variable) for variable in equation.outvars)
    return any(id(variable) in reached for variable in jaxpr.outvars)


def zero_taps(layers: tuple[Layer, ...], batch: int) -> dict[Path, jax.Array]:
    """Taps for every image of a batch that change nothing."""
    return {
        layer.path: jnp.zeros((batch, *layer.output_shape), jnp.float32)
        for layer in layers
    }


def positions(x: jax.Array) -> jax.Array:
    """[B, ..., F] as [B, positions, F]."""
    return x.reshape(x.shape[0], math.prod(x.shape[1:-1]), x.shape[-1])


def is_row(x: jax.Array) -> bool:
    """Whether a layer's input has one position per example (an ordinary dense one)."""
    return int(np.prod(x.shape[1:-1])) == 1
