"""Strict modes for every test, eight host devices for the sharded ones, and what is
compiled how."""

import os

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import jax
import pytest

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Where numbers are the question, programs are optimised as users have them; elsewhere
# (records, commands, documents) compiling quickly matters more.
NUMBERS = {
    *("test_batch", "test_clipping", "test_cohort", "test_evaluate", "test_local"),
    *("test_masks", "test_noise", "test_norms", "test_sampling", "test_threefry"),
}


def pytest_configure(config):
    """Compiled programs are shared by workers, and kept in pytest's own cache."""
    folder = config.cache.mkdir("programs")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Chooses how the test's programs are compiled; the two kinds never mix."""
    fast_part = item.config.option.markexpr == "not slow"
    quickly = fast_part or item.path.stem not in NUMBERS
    if jax.config.values["jax_disable_most_optimizations"] != quickly:
        jax.config.update("jax_disable_most_optimizations", quickly)
        from dpsparfl_jax.runner import programs

        programs.get_program.cache_clear()
        jax.clear_caches()
