"""The sweeps whose settings and seeds PROTOCOL.md fixes."""

from . import protocol
from .protocol import Worlds
from .sweep_types import Series, Sweep, points

POLICIES = tuple(
    Series(label, {"schedule.policy": policy})
    for label, policy in {
        "DP-SparFL": "dp_sparfl",
        "delay minimization": "delay_min",
        "round robin": "round_robin",
        "random": "random",
    }.items()
)
_NOT_SPARSE = Series("all kept", {"schedule.keep_rate": "1"}, quick=False, once=True)
_NOT_PRIVATE = Series(
    "no noise, no clipping, all kept",
    {
        "schedule.keep_rate": "1",
        "privacy.noise": "false",
        "training.clip_norm": "1e6",
        "length.rounds": "50",
    },
    once=True,
)
_BOUNDS = (_NOT_SPARSE, _NOT_PRIVATE)


def _clipping(images: str, keeps: str, worlds: Worlds, preset: str) -> Sweep:
    """Random clients and fixed keep rates, so that clipping alone differs."""
    series = tuple(
        Series(
            mode,
            {"training.clipping": mode, "schedule.keep_rate": keep},
            float(keep),
            keep in ("0.1", "0.5"),
        )
        for mode in ("adjusted", "unadjusted")
        for keep in keeps.split()
    )
    rounds = protocol.CLIPPING_ROUNDS[images]
    changes = {"schedule.policy": "random", "length.rounds": rounds}
    return Sweep(preset, series, changes, worlds=worlds)


def _clip_norms(preset: str, values: str, rounds: str) -> Sweep:
    """Judged by training images that no client owns."""
    series = points("DP-SparFL", "training.clip_norm", values, values)
    changes = {"length.rounds": rounds, "length.eval_on": "validation"}
    return Sweep(preset, series, changes, worlds=protocol.CLIP_NORMS)


def _only_planned(setting: str, values: str) -> Sweep:
    series = points("DP-SparFL", setting, values, values)
    return Sweep("paper_fashion", series, trained=False, worlds=protocol.LEFT_OPEN)


def _policies_over(setting: str, values: str, trained: str = "") -> tuple[Series, ...]:
    """Every policy at every value; ours is trained at some of them."""
    return tuple(
        Series(
            policy.label,
            {**policy.changes, setting: value},
            float(value),
            trained=policy is POLICIES[0] and value in trained.split(),
        )
        for policy in POLICIES
        for value in values.split()
    )


def _as_sparse(
    setting: str, preset: str, worlds: Worlds, *, trained: bool = False
) -> Sweep:
    """The policies, with baselines that keep as much as DP-SparFL does on average."""
    ours, *baselines = POLICIES
    keep = {"schedule.keep_rate": protocol.KEEP_RATES[setting]}
    series = [Series(one.label, {**one.changes, **keep}) for one in baselines]
    return Sweep(preset, (ours, *series), trained=trained, worlds=worlds)


_LAMBDAS = points("lambda = {}", "schedule.tradeoff", "1 10 50 100 200", "1 50 200")
# At the quick scale batches are so large that budgets end within its few rounds: what
# they afford can be seen in the accuracy.
_SOON = {"training.batch_size": "20"}


PROTOCOL_SWEEPS: dict[str, Sweep] = {
    "clipping_fashion": _clipping(
        *("fashion", "0.1 0.3 0.5 0.7 0.9"),
        *(protocol.CLIPPING_FASHION, "paper_fashion"),
    ),
    "clipping_cifar": _clipping(
        "cifar", "0.1 0.5 0.9", protocol.CLIPPING_CIFAR, "nearest_cifar"
    ),
    "tradeoff": Sweep(
        "paper_fashion",
        _LAMBDAS + _BOUNDS,
        {"schedule.warm_start": "false"},
        worlds=protocol.FASHION,
    ),
    "tradeoff_warm": Sweep(
        "paper_fashion", _LAMBDAS, trained=False, worlds=protocol.FASHION
    ),
    "privacy_level": Sweep(
        "paper_fashion",
        points("[2, {}]", "privacy.epsilon_hi", "5 10 15 20", "5 20"),
        quick=_SOON,
        worlds=protocol.FASHION,
    ),
    "policies_mnist": Sweep("paper_mnist", POLICIES + _BOUNDS, worlds=protocol.MNIST),
    "policies_cifar": Sweep("paper_cifar", POLICIES, worlds=protocol.PAPER_CIFAR),
    "policies_cifar_ours": Sweep(
        "nearest_cifar",
        POLICIES + _BOUNDS,
        quick={"length.rounds": "2"},
        worlds=protocol.CIFAR,
    ),
    "noniid": Sweep(
        "paper_fashion_noniid", POLICIES + _BOUNDS, worlds=protocol.DIRICHLET
    ),
    "imbalance": Sweep(
        "paper_fashion_imbalanced", POLICIES + _BOUNDS, worlds=protocol.UNEQUAL
    ),
    "sparse_mnist": _as_sparse("mnist", "paper_mnist", protocol.MNIST),
    "sparse_cifar": _as_sparse("cifar", "nearest_cifar", protocol.CIFAR),
    "sparse_noniid": _as_sparse(
        "noniid", "paper_fashion_noniid", protocol.DIRICHLET, trained=True
    ),
    "sparse_imbalance": _as_sparse(
        "imbalance", "paper_fashion_imbalanced", protocol.UNEQUAL
    ),
    "delay_targets": Sweep(
        "paper_mnist",
        tuple(
            Series(
                f"lambda = {tradeoff}",
                {"schedule.tradeoff": tradeoff, "schedule.delay_target_s": target},
                float(target),
                quick=target != "160",
            )
            for tradeoff in ("1", "50")
            for target in ("80", "120", "160", "200")
        ),
        # The energy of a round stays the same.
        {"schedule.energy_budget_j": "24"},
        trained=False,
        worlds=protocol.MNIST,
    ),
    "solver": Sweep(
        "paper_fashion",
        (
            Series("joint", {"schedule.solver": "joint"}),
            Series("paper", {"schedule.solver": "paper"}),
        ),
        worlds=protocol.FASHION,
    ),
    "accountant": Sweep(
        "paper_fashion",
        (
            Series("PLD", {"privacy.accountant": "pld"}),
            Series("RDP", {"privacy.accountant": "rdp"}),
        ),
        quick=_SOON,
        worlds=protocol.FASHION,
    ),
    "clip_fashion": _clip_norms("paper_fashion", "10 20 40", "20"),
    "clip_mnist": _clip_norms("paper_mnist", "10 20 40", "20"),
    "clip_cifar": _clip_norms("nearest_cifar", "5 10 20", "10"),
    "delay_target": _only_planned(
        "schedule.delay_target_s", "60 80 100 120 160 200 240"
    ),
    "keep_min": _only_planned("schedule.keep_min", "0.02 0.05 0.1 0.2 0.3"),
    "cycles": _only_planned("wireless.cycles_per_sample", "1e6 3e6 1e7 3e7 1e8"),
    "energy": _only_planned("schedule.energy_power_w", "0.03 0.05 0.1 0.2 0.5 1"),
    "robust_error": Sweep(
        "paper_fashion",
        _policies_over("wireless.gain_error_db", "0 0.5 1 2 4"),
        {"schedule.on_late": "drop"},
        trained=False,
        worlds=protocol.FASHION,
    ),
    "robust_margin": Sweep(
        "paper_fashion",
        _policies_over("schedule.margin_db", "0 0.5 1 2 3 5", trained="0 2"),
        {"schedule.on_late": "drop", "wireless.gain_error_db": "1"},
        worlds=protocol.FASHION,
    ),
    "robust_late": Sweep(
        "paper_fashion",
        tuple(
            Series(
                kind,
                {"schedule.on_late": kind, "schedule.margin_db": margin},
                float(margin),
            )
            for kind in ("wait", "drop", "retry")
            for margin in ("0", "0.5", "1", "2", "3", "5")
        ),
        {"wireless.gain_error_db": "1"},
        trained=False,
        worlds=protocol.FASHION,
    ),
}
