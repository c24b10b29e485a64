"""Strict modes for every test, and eight host devices for the sharded ones."""

import os

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import jax

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")


def pytest_configure(config):
    """Compiled programs are shared by workers, and kept in pytest's own cache.

    The fast part compiles without optimising, which takes a third of the time off; the
    whole suite runs what users run.
    """
    fast = config.option.markexpr == "not slow"
    if fast:
        os.environ["XLA_FLAGS"] += " --xla_backend_optimization_level=0"
    folder = config.cache.mkdir("fast_programs" if fast else "programs")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)
