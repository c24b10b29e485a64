"""Are growth exponents those of the numbers, and is faster growth told?"""

import pytest

from benchmarks import growth


def rows(quantity, values, seconds, megabytes):
    return [
        {
            **{"quantity": quantity, "value": value},
            **{"seconds": seconds(value), "megabytes": megabytes(value)},
        }
        for value in values
    ]


def linear(value):
    return 0.01 + 0.3 * value


def quadratic(value):
    return 5 + 0.02 * value**2


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("values", [(1, 2), (1, 4, 9), (64, 1, 16, 4, 2)])
def test_exponents_of_power_laws(power, values):
    cost = [3 * value**power for value in values]
    assert growth.exponent(values, cost) == pytest.approx(power, abs=1e-12)


def test_small_quantities_do_not_count():
    values = [1, 2, 4, 8, 16, 32]
    cost = [10, 10, 10, 8, 16, 32]
    assert growth.exponent(values, cost) == pytest.approx(1.0)


def test_a_quadratic_is_rejected():
    values = [2, 4, 8, 16, 32, 64, 128]
    good = rows("clients", values, linear, linear)
    assert growth.superlinear(good) == []
    slow = growth.superlinear(good + rows("batch", values, quadratic, linear))
    assert len(slow) == 1
    assert slow[0].startswith("seconds grow with batch")
    large = growth.superlinear(good + rows("steps", values, linear, quadratic))
    assert len(large) == 1
    assert large[0].startswith("megabytes grow with steps")


def test_one_point_has_no_exponent():
    assert growth.exponents(rows("devices", [1], linear, linear)) == {}
