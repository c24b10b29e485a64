"""Strict modes for every test, eight host devices for the sharded ones, and what is
compiled how."""

import os

import jax
import pytest
from jax._src import compiler  # no public place for options of all programs

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Tests of bookkeeping, and of many small models: compiling quickly matters more there
# than the code that users run. None of them is compared with another process.
QUICKLY = {
    *("test_layer_rules", "test_server", "test_sparsifiers", "test_columns"),
    *("test_drive", "test_resume", "test_records", "test_isolation", "test_report"),
    *("test_local", "test_cohort", "test_clipping", "test_norms", "test_evaluate"),
    *("test_api", "test_batch", "test_bound_measurement", "test_server_rates"),
    *("test_tune_command", "test_features", "test_noise_key", "test_preflight"),
    *("test_audit_one_run", "test_damaged_files", "test_properties"),
    *("test_image_feed", "test_ordered_sums", "test_more_rounds"),
    *("test_tracking", "test_figures", "test_audit_generator", "test_divergence"),
    *("test_audit_command", "test_settings_file", "test_cpu_kernels"),
}

# Of these, those that take most. Not for files that compare runs to the bit: by XLA's
# older code generator (below) roundings depend on what a sum is computed together with.
MORE_QUICKLY = {"test_layer_rules", "test_local", "test_clipping", "test_norms"}

# Files that take longest go first: at the end both workers have something to do.
FIRST = {
    *("test_docs", "test_layer_rules", "test_interruptions", "test_local"),
    *("test_cohort", "test_clipping", "test_api", "test_sweep_command"),
    *("test_figures", "test_run_command", "test_schedule_command", "test_advise"),
    *("test_tune_command", "test_server_rates", "test_budget_command"),
    *("test_audit_white_box", "test_audit_sensitivity", "test_audit_one_run"),
    *("test_bad_inputs", "test_mutants", "test_audit_generator", "test_distributed"),
    "test_clusters",
}


def pytest_collection_modifyitems(items):
    """Long files first; the order within them stays."""
    items.sort(key=lambda item: item.path.stem not in FIRST)


def pytest_configure(config):
    """Compiled programs are shared by workers, and kept in pytest's own cache.

    The fast part compiles everything without optimising, also in processes it starts.
    """
    fast = config.option.markexpr == "not slow"
    if fast:
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_backend_optimization_level=0"
    folder = config.cache.mkdir("fast_programs" if fast else "programs")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


_usual_options = compiler.get_compile_options


def _quick_options(*args, **kwargs):
    """Options of programs that XLA's older code generator emits.

    Where nothing is optimised, these files take half of the time by it.
    """
    options = _usual_options(*args, **kwargs)
    more = ("xla_cpu_use_fusion_emitters", False)
    options.env_option_overrides = [*options.env_option_overrides, more]
    return options


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Chooses how the test's programs are compiled; the kinds never mix."""
    fast_part = item.config.option.markexpr == "not slow"  # is all quick already
    quickly = item.path.stem in QUICKLY and not fast_part
    more_quickly = quickly and item.path.stem in MORE_QUICKLY
    options = _quick_options if more_quickly else _usual_options
    before = jax.config.values["jax_disable_most_optimizations"]
    if (before, compiler.get_compile_options) != (quickly, options):
        jax.config.update("jax_disable_most_optimizations", quickly)
        compiler.get_compile_options = options
        from dpsparfl_jax.runner import programs

        programs.get_program.cache_clear()
        jax.clear_caches()


@pytest.fixture
def own_policies(monkeypatch):
    """What a test registers as a policy is forgotten after it."""
    from dpsparfl_jax import registry

    for name in registry.POLICIES:
        registry.POLICIES.get(name)  # else what is loaded meanwhile would be undone
    for table in ("_entries", "_origins"):
        known = getattr(registry.POLICIES, table)
        monkeypatch.setattr(registry.POLICIES, table, dict(known))
