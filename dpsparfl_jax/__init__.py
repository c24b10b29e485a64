"""Differentially private federated learning with sparse gradients, vectorized in JAX.

Start with `types` (the values, in flow order), `config` (the settings), `planning` (a
whole run's schedule) and `training.cohort` (a round of many clients in one program).
"""

__version__ = "0.1.0"
