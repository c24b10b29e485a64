"""The paper's figures, declared: what is drawn of which runs, and for which claims."""

from typing import NamedTuple

from dpsparfl_jax.errors import InputError

STUDY = "parameters"


class Panel(NamedTuple):
    """One picture: what of which sweep, and its words."""

    sweep: str
    draw: str  # a function of `curves`
    title: str
    x: str
    y: str
    tag: str = ""  # tells panels of a figure apart that draw the same
    multiples: bool = False  # drawn once for every series: curves that would cross
    seeds: bool = True  # single ones are drawn beside their mean

    @property
    def name(self) -> str:
        """What the figure's table calls it."""
        return self.draw + self.tag


class Figure(NamedTuple):
    """Panels side by side."""

    paper: str
    about: str
    panels: tuple[Panel, ...]
    claims: tuple[str, ...]

    @property
    def sweeps(self) -> tuple[str, ...]:
        """Names of the sweeps that it is drawn from."""
        return tuple(dict.fromkeys(panel.sweep for panel in self.panels))


_ROUND, _HOURS, _ACCURACY = "round", "simulated time (h)", "test accuracy"
_SETTLED = "settled test accuracy"
_CUMULATIVE = "cumulative delay (h)"
_DIRICHLET = "Fashion-MNIST, Dirichlet(0.2)"
_NEAREST = "CIFAR-10, sigma 0.6 (ours)"
_KEPT = ("keep rate s", _SETTLED)
_SHARES = ("participation rate beta", "share of rounds")
_TARGET, _LEAST_KEPT = r"$d_\mathrm{avg}$", r"$s_\mathrm{th}$"
_TARGETS = (f"delay target {_TARGET} (s)", "mean round delay (s)")
_CLIP, _KEPT_MEAN = ("clip norm C", "validation accuracy"), "mean keep rate"
_ERROR, _MARGIN = "error of known gains (dB)", "planned margin (dB)"
_WASTED, _MEAN_DELAY = "epsilon spent for nothing", "mean round delay (s)"
_SCALED, _LARGEST, _NORM = "queue / lambda", "largest |queue|", "norm of all queues"
_AFFORDED = ("epsilon asked", "participations")


def _learning(
    sweep: str, title: str, tag: str = "", *, multiples: bool = False
) -> tuple[Panel, Panel]:
    """Over rounds with every seed, and over time, where seeds would cross too often."""
    about = (title, _ROUND, _ACCURACY, tag, multiples)
    over_time = (title, _HOURS, _ACCURACY, tag, False, False)
    return (
        Panel(sweep, "accuracy", *about),
        Panel(sweep, "accuracy_time", *over_time),
    )


def _delay(sweep: str, title: str, tag: str = "") -> Panel:
    return Panel(sweep, "delay", title, _ROUND, _CUMULATIVE, tag)


def _settled(sweep: str, title: str, tag: str = "") -> Panel:
    return Panel(sweep, "settled", title, _SETTLED, "", tag)


def _four(sweep: str, title: str, *, multiples: bool = False) -> tuple[Panel, ...]:
    curves = _learning(sweep, title, multiples=multiples)
    return *curves, _settled(sweep, title), _delay(sweep, title)


_MNIST_CIFAR = (
    ("policies_mnist", "MNIST", ":mnist"),
    ("policies_cifar", "CIFAR-10, sigma 0.4", ":cifar10"),
    ("policies_cifar_ours", _NEAREST, ":cifar10_ours"),
)

FIGURES: dict[str, Figure] = {
    "clipping": Figure(
        "Fig. 2",
        "unadjusted clip norm C against adjusted sqrt(s) C, over keep rates s",
        (
            Panel("clipping_fashion", "settled_over", "Fashion-MNIST", *_KEPT),
            Panel(
                *("clipping_cifar", "settled_over", _NEAREST, *_KEPT),
                ":cifar10",
            ),
        ),
        ("clipping",),
    ),
    "tradeoff": Figure(
        "Fig. 3",
        "accuracy and delay over lambda, Fashion-MNIST, IID",
        (
            *_four("tradeoff", "Fashion-MNIST"),
            _delay("tradeoff_warm", "delay queue warm-started (ours)", "_warm"),
        ),
        ("lambda_optimum", "lambda_delay"),
    ),
    "privacy_level": Figure(
        "Fig. 4",
        "accuracy and delay for ranges of epsilon, Fashion-MNIST",
        _four("privacy_level", "Fashion-MNIST"),
        ("privacy_accuracy", "privacy_delay"),
    ),
    "policies_accuracy": Figure(
        "Fig. 5",
        "accuracy of the policies, IID",
        tuple(
            panel
            for about in _MNIST_CIFAR
            for panel in (*_learning(*about), _settled(*about))
        ),
        ("policies_accuracy",),
    ),
    "policies_delay": Figure(
        "Fig. 6",
        "delay of the policies, IID",
        tuple(_delay(*about) for about in _MNIST_CIFAR),
        ("policies_delay", "delay_minimization"),
    ),
    "noniid": Figure(
        "Fig. 7",
        "policies with Dirichlet(0.2) labels, Fashion-MNIST",
        _four("noniid", _DIRICHLET, multiples=True),
        ("policies_accuracy", "policies_delay"),
    ),
    "imbalance": Figure(
        "Fig. 8",
        "policies with clients of 300, 600, 1800 and 2100 images, Fashion-MNIST",
        _four("imbalance", "Fashion-MNIST, unequal sizes", multiples=True),
        ("policies_accuracy", "policies_delay"),
    ),
    "policies_sparse": Figure(
        "ours",
        "delay beside baselines that keep as much as DP-SparFL does on average",
        (
            _delay("sparse_mnist", "MNIST", ":mnist"),
            _delay("sparse_cifar", _NEAREST, ":cifar10_ours"),
            _delay("sparse_noniid", _DIRICHLET, ":noniid"),
            _delay("sparse_imbalance", "Fashion-MNIST, unequal sizes", ":imbalance"),
        ),
        ("sparse_delay",),
    ),
    "sparse_noniid": Figure(
        "ours",
        "accuracy beside baselines that keep as much, Dirichlet(0.2) labels",
        (
            *_learning("sparse_noniid", _DIRICHLET, multiples=True),
            _settled("sparse_noniid", _DIRICHLET),
        ),
        ("sparse_accuracy",),
    ),
    "fairness": Figure(
        "Theorem 3",
        "queues and participation for several lambda, Fashion-MNIST; mean delay and "
        "keep rate over delay targets, MNIST",
        (
            Panel("tradeoff_warm", "delay_queue", "delay queue", _ROUND, _SCALED),
            Panel("tradeoff_warm", "fairness_queue", "fairness", _ROUND, _LARGEST),
            Panel("tradeoff_warm", "participation", "participation", *_SHARES),
            Panel("delay_targets", "mean_delay", "mean delay, MNIST", *_TARGETS),
            Panel(
                *("delay_targets", "kept", "keep rate, MNIST", _TARGETS[0]),
                *(_KEPT_MEAN, ":target"),
            ),
        ),
        ("constraints", "epsilon", "delay_choice"),
    ),
    "queues": Figure(
        "Theorem 3",
        "the norm of all queues beside what Theorem 3 allows, Fashion-MNIST",
        (Panel("tradeoff_warm", "queue_norm", "all queues", _ROUND, _NORM),),
        ("theorem3",),
    ),
    "bound": Figure(
        "Theorem 1",
        "the convergence bound's terms beside the measured gradient norm",
        (Panel("bound", "bound", "Fashion-MNIST", _ROUND, "squared gradient norm"),),
        ("theorem1",),
    ),
    "solver": Figure(
        "ours",
        "the exact optimum of a round against the paper's alternating procedure",
        (
            Panel("solver", "objective", "objective", _ROUND, "mean V / lambda so far"),
            Panel("solver", "running_delay", "delay", _ROUND, "mean so far (s)"),
            Panel("solver", "keep_rate", "keep rate", _ROUND, "mean so far"),
            Panel("solver", "accuracy", "accuracy", _ROUND, _ACCURACY),
            _settled("solver", "settled"),
        ),
        ("solver", "solver_accuracy"),
    ),
    "noise_aware": Figure(
        "ours",
        "keep rates that weigh sparsification against noise, beside the paper's",
        (
            Panel("noise_aware", "keep_rate", "keep rate", _ROUND, "mean so far"),
            Panel("noise_aware", "running_delay", "delay", _ROUND, "mean so far (s)"),
            Panel("noise_aware", "accuracy", "accuracy", _ROUND, _ACCURACY),
            _settled("noise_aware", "settled"),
        ),
        ("noise_aware",),
    ),
    **{
        f"accuracy_{name}": Figure(
            "ours",
            "more accuracy at the paper's epsilons: averages and an earlier end, "
            "settings that spend epsilon well, and a linear model on fixed features",
            (
                Panel(
                    *(f"accuracy_{name}", "accuracy", title, _ROUND, _ACCURACY),
                    multiples=name == "noniid",
                ),
                Panel(
                    f"accuracy_{name}",
                    "accuracy_averaged",
                    "average of models",
                    _ROUND,
                    _ACCURACY,
                ),
            ),
            (),
        )
        for name, title in (
            ("fashion", "Fashion-MNIST"),
            ("noniid", _DIRICHLET),
            ("mnist", "MNIST"),
            ("cifar", "CIFAR-10"),
        )
    },
    "options": Figure(
        "ours",
        "what single options of server and clients do to the paper's setting, "
        "Fashion-MNIST",
        (
            Panel("accuracy_options", "best", "best on the way", _ACCURACY, ""),
            Panel("accuracy_options", "last", "when budgets end", _ACCURACY, ""),
        ),
        (),
    ),
    "robustness": Figure(
        "ours",
        "gains that plans do not know exactly: delay, accuracy and epsilon spent for "
        "nothing, over the error and over a planned margin, Fashion-MNIST",
        (
            Panel("robust_error", "late", "no margin", _ERROR, "late uploads"),
            Panel("robust_error", "wasted", "no margin", _ERROR, _WASTED),
            Panel("robust_error", "round_delay", "no margin", _ERROR, _MEAN_DELAY),
            Panel("robust_margin", "wasted", "error 1 dB", _MARGIN, _WASTED, ":m"),
            Panel(
                "robust_margin", "round_delay", "error 1 dB", _MARGIN, _MEAN_DELAY, ":m"
            ),
            Panel("robust_margin", "settled_over", "error 1 dB", _MARGIN, _SETTLED),
            Panel(
                *("robust_late", "round_delay", "DP-SparFL, error 1 dB", _MARGIN),
                *(_MEAN_DELAY, ":late"),
            ),
            Panel(
                *("robust_late", "energy_broken", "DP-SparFL, error 1 dB", _MARGIN),
                "uploads over their energy",
            ),
        ),
        ("robustness",),
    ),
    "accountant": Figure(
        "ours",
        "RDP against PLD at the same epsilon",
        (
            Panel("accountant", "afforded", "what a client affords", *_AFFORDED),
            Panel("accountant", "accuracy", "accuracy", _ROUND, _ACCURACY),
            _settled("accountant", "settled"),
        ),
        ("accountant",),
    ),
    STUDY: Figure(
        "left open",
        "what the paper leaves open: clip norm (trained, by validation images), delay "
        "target, least keep rate, CPU cycles and energy (planned)",
        (
            Panel("clip_fashion", "tuning", "Fashion-MNIST, 20 rounds", *_CLIP),
            Panel("clip_mnist", "tuning", "MNIST, 20 rounds", *_CLIP, ":mnist"),
            Panel("clip_cifar", "tuning", "CIFAR-10, 10 rounds", *_CLIP, ":cifar"),
            Panel("delay_target", "kept", "delay target", f"{_TARGET} (s)", _KEPT_MEAN),
            Panel("delay_target", "mean_delay", "delay target", *_TARGETS),
            Panel(
                "keep_min", "kept", "least keep rate", _LEAST_KEPT, _KEPT_MEAN, ":least"
            ),
            Panel("cycles", "kept", "CPU", "cycles a sample", _KEPT_MEAN, ":cycles"),
            Panel(
                "energy",
                "kept",
                "energy",
                f"mean W over {_TARGET}",
                _KEPT_MEAN,
                ":energy",
            ),
        ),
        (),
    ),
}


def get_figures(name: str) -> dict[str, Figure]:
    """The figure of that name, or all but the study of what the paper leaves open."""
    if name == "all":
        return {name: one for name, one in FIGURES.items() if name != STUDY}
    if name not in FIGURES:
        raise InputError(
            f"--figure={name} is unknown: choose all or one of {', '.join(FIGURES)}."
        )
    return {name: FIGURES[name]}
