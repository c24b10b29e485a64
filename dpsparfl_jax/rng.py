"""One seed gives named host streams and purpose-tagged device keys.

A random number depends on who draws it and why (seed, round, client, purpose), never
on the slot a client sits in, on the order of work or on the other runs of a batch.
This module is host only; `training.keys` folds the same purposes into JAX keys.
"""

import enum
import math
import zlib

import numpy as np

# Generated Gaussian noise has a radius of this many random bits (`training.noise`), and
# so ends at LARGEST_NOISE standard deviations. `privacy.noise_edge` says what it costs.
RADIUS_BITS = 40
LARGEST_NOISE = math.sqrt(2 * math.log(2) * RADIUS_BITS)


class Purpose(enum.IntEnum):
    """What a device key is for; the numbers are part of every recorded result."""

    MODEL_INIT = 0
    MASK = 1
    SAMPLING = 2
    NOISE = 3


def host_stream(seed: int, name: str, *index: int) -> np.random.Generator:
    """Independent NumPy generator for a named use, e.g. `host_stream(7, "fading", t)`.

    The name is hashed with CRC-32, so a stream does not depend on which other streams
    exist or on the order in which they are made. An index is a spawn key, because plain
    entropy does not tell a trailing 0 from none.
    """
    tag = zlib.crc32(name.encode("utf-8"))
    return np.random.default_rng(np.random.SeedSequence([seed, tag], spawn_key=index))
