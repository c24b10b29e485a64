"""Can a record move a sum by more than the bound, up to rounding?"""

import numpy as np
import pytest

from experiments.auditing import probes, sensitivity
from tests.broken_mechanisms import POISSON_SUMS, broken, one_record

CANARIES = 100


@pytest.fixture(scope="module")
def findings():
    """{(model, method, family): the worst of two settings}."""
    settings = sensitivity.default_settings(
        ("audit_dense", "audit_conv"), ("ghost", "vmap")
    )
    worst = {}
    for each in sensitivity.check(settings, CANARIES):
        key = each.setting.model, each.setting.method, each.family
        worst[key] = max(worst.get(key, 0.0), each.worst)
    return worst


@pytest.mark.parametrize("model", ["audit_dense", "audit_conv"])
@pytest.mark.parametrize("method", ["ghost", "vmap"])
@pytest.mark.parametrize("family", probes.FAMILIES)
def test_no_record_moves_a_sum_by_more_than_the_bound(findings, model, method, family):
    assert findings[model, method, family] <= 1 + sensitivity.TOLERANCE


@pytest.mark.parametrize("method", ["ghost", "vmap"])
def test_the_bound_is_reached(findings, method):
    """Else a check that sees nothing would pass."""
    for family in ("ordinary", "one 1e10 above", "all sizes"):
        assert findings["audit_dense", method, family] >= 1 - sensitivity.TOLERANCE


@pytest.mark.parametrize(
    "fault",
    [
        "clipping off",
        "clip factor as printed in the paper",
        "mask after clipping",
        "division by the realised batch",
    ],
)
def test_records_that_go_too_far_are_noticed(fault):
    with broken(fault):
        assert one_record().is_broken


def test_a_good_mechanism_passes_the_same_check():
    assert not one_record().is_broken
    assert {setting.batch_size for setting in POISSON_SUMS} == {2.0, 4.0}


def test_the_table_of_values_has_what_breaks_careless_code():
    values = probes.VALUES
    assert values[0] == 0
    assert np.isnan(values[probes.ODD]).sum() == 1
    assert np.isinf(values[probes.ODD]).sum() == 2
    denormal = np.abs(values) < np.finfo(np.float32).tiny
    assert np.any(denormal & (values != 0))
    assert values[probes.power_code(38)] == np.float32(1e38)
    assert values[probes.power_code(0)] == 1
