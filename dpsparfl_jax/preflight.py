"""What can be refused before anything is planned: names, sizes, images.

Planning takes seconds to minutes, and loading JAX some seconds: what is known to be
impossible without them is said first.
"""

from dpsparfl_jax import memory
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.data import partition, sources
from dpsparfl_jax.privacy import poisson


def check(settings: RunConfig) -> None:
    """Refuses a run that cannot be trained whatever its plan."""
    settings.check_names()
    check_size(settings)
    check_images(settings)


def check_size(settings: RunConfig) -> None:
    """Refuses more clients and channels than fit into memory."""
    memory.require_cell(settings.data.num_clients, settings.wireless.num_channels)


def check_images(settings: RunConfig) -> None:
    """Refuses a set that is not there, or too small a one; reads no image."""
    counts = sources.count(settings.data)
    if counts is not None:
        validated = settings.length.eval_on == "validation"
        partition.check_counts(settings.data, counts, validated=validated)
    sizes = partition.client_sizes(settings.data)
    poisson.sampling_rate(settings.training.batch_size, sizes)
