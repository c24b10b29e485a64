"""Renyi accounting written out from the equations, slowly: the oracle of the fast one.

Gauss-Legendre panels instead of a trapezoidal rule, the raw moment instead of its
excess over 1, both directions, and a loop over orders for the conversion.
"""

import math

import numpy as np

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(40)


def _integral_of_exp(log_integrand, low, high, width):
    """Log of the integral of exp(log_integrand) over [low, high], panel by panel."""
    edges = np.arange(low, high + width, width)
    middle, half = (edges[1:] + edges[:-1]) / 2, width / 2
    z = middle[:, None] + half * _NODES
    values = log_integrand(z)
    top = np.max(values)
    return top + math.log(np.sum(np.exp(values - top) * _WEIGHTS) * half)


def renyi_divergences(q, sigma, alpha):
    """Both Renyi divergences of one step: mixture from plain Gaussian, and back."""

    def log_plain(z):
        return -(z**2) / (2 * sigma**2) - math.log(sigma * math.sqrt(2 * math.pi))

    def log_shifted(z):
        return log_plain(z - 1)

    def log_mixture(z):
        if q == 1:
            return log_shifted(z)
        return np.logaddexp(
            math.log(1 - q) + log_plain(z), math.log(q) + log_shifted(z)
        )

    def direction(log_p, log_q):
        def integrand(z):
            return alpha * log_p(z) + (1 - alpha) * log_q(z)

        low, high = -alpha - 14 * sigma, alpha + 14 * sigma
        width = min(sigma, sigma**2) / 2
        return _integral_of_exp(integrand, low, high, width) / (alpha - 1)

    return direction(log_mixture, log_plain), direction(log_plain, log_mixture)


def epsilon(q, sigma, steps, delta, orders):
    """The paper's accumulated budget at the best of the orders."""
    best = math.inf
    for alpha in orders:
        divergence = steps * max(renyi_divergences(q, sigma, alpha))
        conversion = (
            math.log(1 / delta)
            + (alpha - 1) * math.log(1 - 1 / alpha)
            - math.log(alpha)
        ) / (alpha - 1)
        best = min(best, divergence + conversion)
    return max(best, 0.0)
