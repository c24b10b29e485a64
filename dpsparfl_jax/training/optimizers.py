"""Optimizers by name, for clients and for the server: optax, one line each.

Clients' optimizers see noised gradients and the server's sees their mean, so all that
an optimizer does is post-processing: it costs no privacy.
"""

import inspect
from collections.abc import Callable
from typing import Any

import optax

from dpsparfl_jax.registry import OPTIMIZERS

Factory = Callable[[Any, Any], optax.GradientTransformation]


def get_optimizer(name: str) -> Factory:
    """`(learning rate, momentum) -> optimizer`; momentum goes to those who take it."""
    registered: Any = OPTIMIZERS.get(name)
    if "momentum" in inspect.signature(registered).parameters:
        return lambda rate, momentum: registered(rate, momentum=momentum)
    return lambda rate, momentum: registered(rate)


@OPTIMIZERS.register("plain")
def plain(learning_rate: Any) -> optax.GradientTransformation:
    """Subtracts the gradient as it is: the server that adds the mean update (FedAvg).

    It has no rate. (`sgd` at rate 1 is the same up to the rounding of a product.)
    """
    return optax.scale(-1.0)


@OPTIMIZERS.register("sgd")
def sgd(learning_rate: Any) -> optax.GradientTransformation:
    """Gradient descent."""
    return optax.sgd(learning_rate)


@OPTIMIZERS.register("momentum")
def heavy_ball(learning_rate: Any, momentum: Any = 0.9) -> optax.GradientTransformation:
    """Heavy-ball momentum (on the server: FedAvgM); 0 is `sgd`."""
    return optax.sgd(learning_rate, momentum=momentum)


@OPTIMIZERS.register("adam")
def adam(learning_rate: Any) -> optax.GradientTransformation:
    """Adam with optax's defaults (on the server: FedAdam)."""
    return optax.adam(learning_rate)
