"""Layers that clipping can open: one table from a Flax layer type to its rule.

A rule says what a layer computes from its input and its parameters, and what its
per-example gradients are. `nn.Dense`, `nn.Conv`, `nn.LayerNorm`, `nn.GroupNorm` and
`nn.Embed` have one; `register_layer_rule` adds yours. A model with any other layer that
has parameters is clipped by the textbook method, which is slower and equal.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.linen.dtypes import promote_dtype

from dpsparfl_jax.registry import LAYER_RULES
from dpsparfl_jax.training import convolution, layer_gradients
from dpsparfl_jax.training.layer_gradients import LayerGradient


class UnsupportedLayer(Exception):
    """Says which part of a model cannot be opened."""


class LayerRule(abc.ABC):
    """How one type of layer is opened: output = f(parameters, recorded input).

    The layer's parameters must be arrays directly in its scope (no layers inside), and
    its output must depend on them through `output` alone. `record` and `output` see the
    arrays of one example, as the model gives them to the layer: usually with a leading
    axis of 1. `gradient` sees a batch: the same arrays with an axis B in front.
    """

    @abc.abstractmethod
    def record(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        """The input that `output` and `gradient` need; it has no parameters in it.

        Gradients flow back to earlier layers through it, so it is computed from the
        layer's input by operations that JAX can differentiate. Settings of the layer
        belong here, because the other methods do not see the module.

        Args:
            module: The layer, bound to the running model.
            *args: What the model calls the layer with.
            **kwargs: What the model calls the layer with by name.

        Returns:
            An array, or a tuple or dictionary of arrays (integers are allowed).

        Raises:
            UnsupportedLayer: If the layer is set up in a way that the rule does not
                know; the whole model is then clipped by the textbook method.
        """

    @abc.abstractmethod
    def output(self, params: Mapping[str, jax.Array], recorded: Any) -> jax.Array:
        """What the layer returns.

        Args:
            params: The layer's own parameters, {name: [*shape]}.
            recorded: What `record` returned.

        Returns:
            The layer's float32 output, of any shape.
        """

    @abc.abstractmethod
    def gradient(
        self, mask: Mapping[str, jax.Array], recorded: Any, cotangent: jax.Array
    ) -> LayerGradient:
        """Masked per-example gradients of the layer's parameters.

        Args:
            mask: The 0/1 mask, {name: [*shape]}: the same names and shapes as params.
            recorded: What `record` returned for every example, [B, ...].
            cotangent: Gradient of each example's loss by the output, [B, *output].

        Returns:
            Squared norms [B] and the weighted sum. If gradients {name: [B, *shape]}
            are small enough to be formed, `layer_gradients.formed` makes both of them.
        """


Rule = TypeVar("Rule", bound=type[LayerRule])


def register_layer_rule(layer: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Class decorator that enters a rule for a layer type into the table.

    The type is matched exactly, because a subclass may compute something else. Only the
    layer's `__call__` is opened. A rule can be wrong, and nothing in a run would tell:
    compare `make_clipped_sum(..., "ghost")` with `"vmap"` once.

    Example:
        A layer that multiplies features by a scale, x [..., F] * scale [F]::

            class Scale(nn.Module):
                @nn.compact
                def __call__(self, x):
                    ones = nn.initializers.ones
                    scale = self.param("scale", ones, (x.shape[-1],))
                    return x * jnp.broadcast_to(scale, x.shape)

            @register_layer_rule(Scale)
            class ScaleRule(LayerRule):
                def record(self, module, x):
                    return x

                def output(self, params, x):
                    return x * jnp.broadcast_to(params["scale"], x.shape)

                def gradient(self, mask, x, d):  # x and d: [B, ..., F]
                    scale = jnp.sum(layer_gradients.positions(x * d), axis=1)
                    return layer_gradients.formed(mask, {"scale": scale})  # [B, F]

    Args:
        layer: The Flax layer type.

    Returns:
        The decorator; it returns the rule class unchanged.

    Raises:
        InputError: If the layer type has a rule already.
    """
    return LAYER_RULES.register(layer)


def find_rule(layer: type) -> LayerRule | None:
    """The rule of exactly this layer type, or None."""
    return LAYER_RULES.get(layer)() if layer in LAYER_RULES.names() else None


def refuse_if(special: bool, module: nn.Module) -> None:
    """Raises UnsupportedLayer that names the layer, if it is special."""
    if special:
        raise UnsupportedLayer(f"the layer {'/'.join(module.path)} is special")


def _is_special_product(module: Any, inputs: jax.Array) -> bool:
    return (
        module.dtype not in (None, jnp.float32)
        or inputs.dtype != jnp.float32
        or module.promote_dtype is not promote_dtype
    )


def _add_bias(params: Mapping[str, jax.Array], y: jax.Array) -> jax.Array:
    """Adds the bias, if there is one, over the last axis."""
    return y + jnp.broadcast_to(params["bias"], y.shape) if "bias" in params else y


@register_layer_rule(nn.Dense)
class DenseRule(LayerRule):
    """A dense layer on [..., in], with one position per example or with many."""

    def record(self, module: Any, inputs: jax.Array) -> jax.Array:
        """The input itself."""
        special = _is_special_product(module, inputs)
        special |= module.dot_general is not None or module.dot_general_cls is not None
        refuse_if(special or inputs.ndim < 2, module)
        return inputs

    def output(self, params: Mapping[str, jax.Array], recorded: Any) -> jax.Array:
        """[..., in] -> [..., out]."""
        return _add_bias(params, recorded @ params["kernel"])

    def gradient(
        self, mask: Mapping[str, jax.Array], recorded: Any, cotangent: jax.Array
    ) -> LayerGradient:
        """By product formulas for one position, from formed gradients for many."""
        return layer_gradients.matrix_product(mask, recorded, cotangent)


@register_layer_rule(nn.Conv)
class ConvRule(LayerRule):
    """A convolution without groups and without dilation."""

    def record(self, module: Any, inputs: jax.Array) -> convolution.ConvInput:
        """The input [1, *space, C] itself, and how the kernel moves over it."""
        as_tuple = convolution.as_tuple
        rank = len(as_tuple(module.kernel_size, 1))
        plain = (
            inputs.ndim == rank + 2
            and module.feature_group_count == 1
            and module.mask is None
            and set(as_tuple(module.input_dilation, rank)) == {1}
            and set(as_tuple(module.kernel_dilation, rank)) == {1}
            and module.conv_general_dilated is None
            and module.conv_general_dilated_cls is None
            and module.padding not in ("CIRCULAR", "REFLECT", "CAUSAL")
        )
        refuse_if(not plain or _is_special_product(module, inputs), module)
        geometry = convolution.geometry_of(module, inputs.shape[1:-1])
        return convolution.ConvInput(inputs, geometry)

    def output(self, params: Mapping[str, jax.Array], recorded: Any) -> jax.Array:
        """[1, *space, C] -> [1, *out_space, O]."""
        kernel = params["kernel"]
        y = convolution.convolve(recorded.x, kernel, recorded.geometry)
        return _add_bias(params, y)

    def gradient(
        self, mask: Mapping[str, jax.Array], recorded: Any, cotangent: jax.Array
    ) -> LayerGradient:
        """From formed gradients: a kernel is small."""
        return layer_gradients.convolution_kernel(mask, recorded, cotangent)


class _NormRule(LayerRule):
    """A normalisation, then scale and bias on the last axis, each of them optional."""

    def record(self, module: Any, x: jax.Array, *, mask: Any = None) -> jax.Array:
        """The normalised input, by the layer itself without its parameters."""
        special = module.dtype not in (None, jnp.float32) or x.dtype != jnp.float32
        special |= module.param_dtype != jnp.float32 or mask is not None
        special |= module.axis_name is not None or module.axis_index_groups is not None
        refuse_if(special or not self.default_axes(module), module)
        bare = module.clone(parent=None, name=None, use_scale=False, use_bias=False)
        return bare.apply({}, x)

    @abc.abstractmethod
    def default_axes(self, module: Any) -> bool:
        """Whether the layer normalises over its default axes."""

    def output(self, params: Mapping[str, jax.Array], recorded: Any) -> jax.Array:
        """[..., F] -> [..., F]."""
        y: jax.Array = recorded
        if "scale" in params:
            y = y * jnp.broadcast_to(params["scale"], y.shape)
        return _add_bias(params, y)

    def gradient(
        self, mask: Mapping[str, jax.Array], recorded: Any, cotangent: jax.Array
    ) -> LayerGradient:
        """From formed gradients: a scale or a bias is no larger than one position."""
        return layer_gradients.scale_and_shift(mask, recorded, cotangent)


@register_layer_rule(nn.LayerNorm)
class LayerNormRule(_NormRule):
    """Layer normalisation over the last axis."""

    def default_axes(self, module: Any) -> bool:
        """Whether features are on the last axis, and nothing else is averaged."""
        axes = (module.reduction_axes, module.feature_axes)
        return all(axis in (-1, (-1,), [-1]) for axis in axes)


@register_layer_rule(nn.GroupNorm)
class GroupNormRule(_NormRule):
    """Group normalisation over all positions, the features in groups."""

    def default_axes(self, module: Any) -> bool:
        """Whether all positions of an example are averaged."""
        return module.reduction_axes is None


@register_layer_rule(nn.Embed)
class EmbedRule(LayerRule):
    """A table of rows, looked up by whole numbers; not its use as a matrix."""

    def record(self, module: Any, inputs: jax.Array) -> jax.Array:
        """Rows looked up, int32 from 0 to V - 1; V where there is no such row."""
        inputs = jnp.asarray(inputs)
        narrow = (jnp.int8, jnp.int16, jnp.int32, jnp.uint8, jnp.uint16)
        special = module.dtype not in (None, jnp.float32)
        special |= module.param_dtype != jnp.float32
        special |= module.promote_dtype is not promote_dtype
        refuse_if(special or inputs.dtype not in narrow, module)
        length = module.num_embeddings
        ids = inputs.astype(jnp.int32)
        if length == 1:  # Flax gives the only row, whatever the number.
            return jnp.zeros_like(ids)
        ids = jnp.where(ids < 0, ids + length, ids)
        return jnp.where((ids < 0) | (ids >= length), length, ids)

    def output(self, params: Mapping[str, jax.Array], recorded: Any) -> jax.Array:
        """[...] -> [..., F]; nan where there is no such row, as in Flax."""
        return jnp.take(params["embedding"], recorded, axis=0)

    def gradient(
        self, mask: Mapping[str, jax.Array], recorded: Any, cotangent: jax.Array
    ) -> LayerGradient:
        """From the rows that an example touches."""
        return layer_gradients.table_rows(mask["embedding"], recorded, cotangent)
