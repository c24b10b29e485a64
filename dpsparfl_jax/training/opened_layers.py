"""Layers of unmodified Flax models, opened by interception.

`run_layers` runs a model with every layer that has a rule (`layer_rules`) replaced by
what the rule computes. It can record each layer's input and add a "tap" to its output;
the gradient of a tap is the layer's output cotangent, from which clipping builds
everything else.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import tracers

from dpsparfl_jax.training.layer_rules import LayerRule, UnsupportedLayer, find_rule
from dpsparfl_jax.types import Params

Path = tuple[str, ...]


class Layer(NamedTuple):
    """One opened layer."""

    path: Path
    rule: LayerRule
    output_shape: tuple[int, ...]  # for one image, all axes


def layer_params(params: Params, path: Path) -> Mapping[str, jax.Array]:
    """Parameters of the layer at a path."""
    for name in path:
        params = params[name]
    return params


def run_layers(
    model: nn.Module,
    params: Params,
    image: jax.Array,
    taps: Mapping[Path, jax.Array] | None = None,
    check: Callable[[Any, LayerRule], None] | None = None,
    outer_params: Params | None = None,
) -> tuple[jax.Array, dict[Path, Any], dict[Path, jax.Array]]:
    """Logits of one image with the layers opened, and each layer's input and output.

    `find_layers` uses the rest: `check` sees every opened layer, and the model
    itself is given `outer_params`, so that any other use of a parameter shows.
    """
    inputs: dict[Path, Any] = {}
    outputs: dict[Path, jax.Array] = {}

    def open_layer(next_call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        rule = find_rule(type(module))
        if rule is None or context.method_name != "__call__" or not _has_own(module):
            return next_call(*args, **kwargs)
        path = tuple(module.path)
        if path in inputs:
            raise UnsupportedLayer(f"the layer {'/'.join(path)} is used twice")
        if check is not None:
            check(module, rule)
        x = rule.record(module, *args, **kwargs)
        y = rule.output(layer_params(params, path), x)
        if taps is not None:
            y = y + taps[path]
        inputs[path], outputs[path] = x, y
        return y

    with nn.intercept_methods(open_layer):
        variables = {"params": params if outer_params is None else outer_params}
        logits: Any = model.apply(variables, image[None])
    return logits[0], inputs, outputs


def _has_own(module: nn.Module) -> bool:
    """Whether a layer has parameters, in a place of its own below the model's root.

    A layer without any needs no rule; one at the root is left to the proof, which does
    not find its parameters in an opened layer. The layers that a rule runs for itself
    are of both kinds.
    """
    return bool(module.path) and bool(module.variables.get("params"))


def run_each(
    model: nn.Module,
    params: Params,
    images: jax.Array,
    taps: Mapping[Path, jax.Array] | None = None,
) -> tuple[jax.Array, dict[Path, Any]]:
    """Logits and layer inputs of a batch, one image at a time.

    Mapped over images rather than fed a batch: whatever a model does along the batch
    axis, one record can then touch no other record's gradient.
    """

    def one(image: jax.Array, taps: Any) -> tuple[jax.Array, dict[Path, Any]]:
        return run_layers(model, params, image, taps)[:2]

    return jax.vmap(one)(images, taps)


def find_layers(
    model: nn.Module, params: Params, image_shape: tuple[int, ...]
) -> tuple[Layer, ...]:
    """The layers of a model, if they hold all of its parameters; traced, not run.

    Raises UnsupportedLayer when the model has a parameter outside layers with a rule,
    uses a layer twice or inside a transformation such as vmap, transforms a layer's
    parameters on their way to it, or reads them from elsewhere: what the rules say
    would not be its gradient.
    """
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    names = [tuple(str(getattr(k, "key", k)) for k in path) for path, _ in leaves]
    shapes = jax.tree.map(lambda p: jax.ShapeDtypeStruct(p.shape, p.dtype), params)
    image = jax.ShapeDtypeStruct(tuple(image_shape), jnp.float32)
    rules: dict[Path, LayerRule] = {}
    output_shapes: dict[Path, tuple[int, ...]] = {}
    opened: list[Path] = []

    def forward(outer: Params, inner: Params, x: jax.Array) -> jax.Array:
        trace = tracers.current_trace()

        def check(module: Any, rule: LayerRule) -> None:
            if tracers.current_trace() != trace:
                name = "/".join(module.path)
                raise UnsupportedLayer(f"the layer {name} is inside a transformation")
            opened.extend(_own_parameters(module, outer))
            rules[tuple(module.path)] = rule

        logits, _, outputs = run_layers(
            model, inner, x, check=check, outer_params=outer
        )
        output_shapes.update({path: y.shape for path, y in outputs.items()})
        return logits

    jaxpr = jax.make_jaxpr(forward)(shapes, shapes, image).jaxpr
    for name in names:
        if name not in opened:
            raise UnsupportedLayer(f"parameter {'/'.join(name)} is in another layer")
    if _depends_on(jaxpr, jaxpr.invars[: len(leaves)]):
        raise UnsupportedLayer("a layer's parameters are read from outside the layer")
    return tuple(
        Layer(path, rules[path], shape) for path, shape in output_shapes.items()
    )


def _own_parameters(module: Any, tree: Params) -> list[Path]:
    """Names of a layer's parameters, if they reach it untransformed."""
    path = tuple(module.path)
    name = "/".join(path)
    expected = tree
    for key in path:
        expected = expected.get(key, {}) if isinstance(expected, Mapping) else {}
    given = module.variables["params"]
    if set(given) != set(expected):
        raise UnsupportedLayer(f"the layer {name} shares its scope")
    plain = all(isinstance(leaf, jax.Array) for leaf in expected.values())
    if not plain or any(given[key] is not expected[key] for key in expected):
        raise UnsupportedLayer(f"the parameters of {name} are transformed on the way")
    return [(*path, key) for key in expected]


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
