"""What the host side costs: epsilon curves, and the ledger of many clients.

    python -m benchmarks.host_costs --json results.json

Curves are timed beside dp-accounting, asked for the same numbers one by one as a user
of it would; the ledger is timed after its curves are known.
"""

import json
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import dp_accounting
import numpy as np
from absl import flags, logging
from tqdm import tqdm

from benchmarks import timing
from dpsparfl_jax.privacy.accountants import all_accountants, make_accountant
from dpsparfl_jax.privacy.budgets import draw_budgets
from dpsparfl_jax.privacy.curves import CurveStore
from dpsparfl_jax.privacy.ledger import Ledger, open_ledger
from dpsparfl_jax.privacy.mechanism import Mechanism, Release, client_groups
from experiments import cli

_JSON = flags.DEFINE_string("json", "", "write the results to this file")
_CLIENTS = flags.DEFINE_integer("clients", 10_000, "clients of the ledger")
_REPEATS = flags.DEFINE_integer("repeats", 200, "ledger updates timed", lower_bound=1)
EPSILON, DELTA, STEPS = 10.0, 1e-3, 60
SETTINGS = ((0.6, 8 / 1000), (0.5, 4 / 1000), (0.4, 2 / 1000), (1.0, 24 / 1000))


def seconds(work: Callable[[], Any]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def library_epsilon(name: str, sigma: float, q: float, participations: int) -> float:
    """The same number from dp-accounting, at its own defaults but for the interval."""
    accountant: Any = dp_accounting.rdp.RdpAccountant()
    if name == "pld":
        accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-3)
    step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    accountant.compose(step, STEPS * int(participations))
    return float(accountant.get_epsilon(DELTA))


def measure_curves() -> list[dict[str, Any]]:
    """A row an accountant and setting: the whole curve up to epsilon 10."""
    logging.set_verbosity(logging.ERROR)  # it warns where its series does not end
    rows = []
    for sigma, q in tqdm(SETTINGS, desc="curves", disable=None):
        for name, accountant in all_accountants().items():
            mechanism = Mechanism(Release(q, sigma, STEPS), DELTA)
            store = CurveStore(accountant)
            ask = {"max_epsilon": EPSILON, "limit": 10_000}
            ours = seconds(lambda s=store, m=mechanism, a=ask: s.curve(m, **a))
            length = len(store.curve(mechanism, max_epsilon=EPSILON, limit=10_000)) - 1
            counts = np.unique(np.linspace(1, length, 5).astype(int))
            one = [
                seconds(lambda n=name, s=sigma, r=q, k=k: library_epsilon(n, s, r, k))
                for k in counts
            ]
            rows.append(
                {
                    "accountant": name,
                    "noise_multiplier": sigma,
                    "sampling_rate": q,
                    "participations": length,
                    "curve_s": round(ours, 3),
                    "library_per_number_s": round(statistics.median(one), 4),
                    "library_curve_s": round(statistics.median(one) * length, 1),
                }
            )
    return rows


def measure_ledger() -> dict[str, Any]:
    """Median time of one round's update and liveness check, a tenth taking part."""
    clients = _CLIENTS.value
    sizes = np.resize([300, 600, 1800, 2100], clients)
    groups = client_groups(
        sizes, batch_size=8, noise_multiplier=1.0, steps=STEPS, delta=DELTA, capacity=40
    )
    store = CurveStore(make_accountant("rdp"))
    budgets = draw_budgets(0, clients, 2.0, 10.0)
    opening = seconds(lambda: open_ledger(budgets, groups, store, limit=2000))
    ledger: Ledger = open_ledger(budgets, groups, store, limit=2000)
    random = np.random.default_rng(0)
    updates, spent = [], []
    for _ in range(_REPEATS.value):
        live = np.flatnonzero(ledger.live)
        chosen = random.choice(live, max(1, live.size // 10), replace=False)
        start = time.perf_counter()
        ledger = ledger.charge(chosen)
        _ = ledger.live
        updates.append(time.perf_counter() - start)
        spent.append(seconds(lambda now=ledger: now.epsilon_spent))
    return {
        "clients": clients,
        "open_ms": round(opening * 1e3, 1),
        "update_and_liveness_ms": round(statistics.median(updates) * 1e3, 4),
        "update_and_liveness_max_ms": round(max(updates) * 1e3, 4),
        "epsilon_spent_ms": round(statistics.median(spent) * 1e3, 4),
    }


def main() -> None:
    """Measures, prints and writes JSON."""
    cli.check_output("json", _JSON.value)
    results = {
        "machine": timing.machine(),
        "ledger": measure_ledger(),
        "curves": measure_curves(),
    }
    text = json.dumps(results, indent=1)
    print(text)
    if _JSON.value:
        pathlib.Path(_JSON.value).write_text(text + "\n")


if __name__ == "__main__":
    cli.run(main)
