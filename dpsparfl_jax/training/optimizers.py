"""Optimizers by name, for clients and for the server: optax, one line each.

Clients' optimizers see noised gradients and the server's sees their mean, so all that
an optimizer does is post-processing: it costs no privacy.
"""

from typing import Any

import optax

from dpsparfl_jax.registry import OPTIMIZERS


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
def momentum(learning_rate: Any) -> optax.GradientTransformation:
    """Heavy-ball momentum of 0.9 (on the server: FedAvgM)."""
    return optax.sgd(learning_rate, momentum=0.9)


@OPTIMIZERS.register("adam")
def adam(learning_rate: Any) -> optax.GradientTransformation:
    """Adam with optax's defaults (on the server: FedAdam)."""
    return optax.adam(learning_rate)
