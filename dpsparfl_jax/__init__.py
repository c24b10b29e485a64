"""Differentially private federated learning with sparse gradients, vectorized in JAX.

Start with `types` (the values, in flow order), `config` (the settings) and
`training.cohort` (a round of many clients in one compiled program).
"""

__version__ = "0.1.0"
