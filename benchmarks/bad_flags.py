"""Bad values of settings, grids, searches, and flags of all programs."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from benchmarks.bad_case import SMALL, Case, run_case
from dpsparfl_jax import config


def _values_of_settings() -> Iterator[Case]:
    """What every single setting must refuse, from its declaration."""
    for section in config.SECTIONS:
        for field in dataclasses.fields(getattr(config.RunConfig(), section)):
            for text in _bad_texts(field):
                flag = f"--{section}.{field.name}={text}"
                yield run_case(f"setting {flag}", flag)


def _bad_texts(field: dataclasses.Field[Any]) -> Iterator[str]:
    default: Any = field.default
    rule, kind = field.metadata, type(default)
    if kind is bool:
        yield "perhaps"
    elif kind is str:
        if rule["choices"] or rule["named"]:
            yield "nonsense"
            yield ""
        return
    else:
        yield "many"
        yield str(2**31) if kind is int else "nan"
        yield "1.5" if kind is int else "inf"
        if kind is float:
            yield "1e300"
            yield "-1e-300"
    if rule["low"] is not None:
        yield f"{rule['low'] - 1:g}"
    if rule["above"] is not None:
        yield f"{rule['above']:g}"
    if rule["high"] is not None:
        yield f"{rule['high'] * 2 + 1:g}"
    if rule["below"] is not None:
        yield f"{rule['below']:g}"


def _flags() -> Iterator[Case]:
    for text in ("a,b", "-3,5", "0", "", "3,,5", "1e3", "3 5", "9" * 5000):
        for partition in ("iid", "imbalanced", "dirichlet"):
            chosen = f"--data.partition={partition}"
            name = f"group sizes {text[:9]!r} with {partition}"
            yield run_case(name, f"--data.group_sizes={text}", chosen)
    for text in ("a", "2,x", "-1,2", "nan", "0,1,2,3", "inf", "1,,2", "1e300"):
        yield run_case(f"epsilons {text}", f"--privacy.epsilons={text}")
        yield run_case(
            f"idle epsilons {text}", f"--privacy.epsilons={text}", "--noprivacy.noise"
        )
    for number, flags in enumerate(
        (
            ("--nonsection.field=1",),
            ("--data.nmae=mnist",),
            ("stray",),
            ("--seed=-1",),
            ("--seed=1.5",),
            (f"--seed={2**63}",),
            ("--preset=nothing",),
            ("--preset=",),
            ("--resume=perhaps",),
            ("--data.name=",),
            ("--data.name=imagenet_of_mine",),
            ("--data.name=a/b",),
            ("--data.name=with space",),
            ("--data.name=two\nlines",),
            ("--data.dir=/nowhere",),
            ("--data.dir=/dev/null",),
            ("--data.dir=", "--data.name=mnist", "--data.tfds_dir=/nowhere"),
            ("--data.num_clients=100000000",),
            ("--data.num_clients=7", "--data.partition=imbalanced"),
            ("--data.num_clients=7", "--data.train_examples=18"),
            ("--data.train_examples=31",),
            ("--data.test_examples=11",),
            ("--data.train_examples=30", "--length.eval_on=validation"),
            ("--data.train_examples=1000000000",),
            ("--data.partition=file",),
            ("--data.partition_file=x.json",),
            ("--data.dir=", "--data.name=glyphs", "--data.num_clients=10000000"),
            ("--wireless.num_channels=1000000000",),
            ("--wireless.cpu_low_hz=3e9",),
            ("--wireless.max_power_dbm=1e5",),
            ("--wireless.noise_dbm=-1e9",),
            ("--training.batch_size=21",),
            ("--training.batch_size=1e-12",),
            ("--training.batch_size=1e-3", "--length.rounds=0"),
            ("--noprivacy.noise", "--length.rounds=0"),
            ("--training.clipping=off",),
            ("--training.optimizer=plain",),
            ("--privacy.epsilon_lo=11",),
            ("--privacy.epsilon_hi=1e9",),
            ("--privacy.noise_multiplier=1e-5",),
            ("--privacy.noise_multiplier=1e7",),
            ("--privacy.noise_multiplier=0.3",),
            ("--privacy.delta=1e-39",),
            ("--privacy.clip_calibration=private", "--noprivacy.noise"),
            ("--server.weights=inverse_noise", "--noprivacy.noise"),
            ("--server.learning_rate=0.5",),
            ("--server.rate_schedule=cosine",),
            ("--schedule.clients=worthwhile", "--schedule.solver=paper"),
            ("--schedule.margin_db=3", "--schedule.late_probability=0.1"),
            ("--perf.devices=1000",),
            ("--model.name=cifar_cnn",),
            ("--model.name=mnist_cnn_tanh", "--data.features=scattering"),
            ("--flagfile=/nowhere/flags.txt",),
            ("--config=/nowhere/mine.toml",),
            ("--config=",),
            ("--config=/dev/null",),
            ("--config={root}",),
            ("--config=/nowhere/mine.toml", "--preset=paper_mnist"),
            ("--print_config=perhaps",),
            ("--print_config", "--schedule.tradeoff=0"),
            ("--list_presets=all",),
            ("--lenght.rounds=1",),
            ("--epsilon_hi=5",),
            ("--policy=random",),
            ("--nofading",),
        )
    ):
        yield run_case(f"flags {number}: {' '.join(flags)}", *flags)


def _grids() -> Iterator[Case]:
    many = ",".join(map(str, range(1, 1001)))
    grids = (
        *("", ";", "seed", "seed=", "seed=,", "=1", "sead=0,1", "seed=0,1;seed=2"),
        *("seed=0,0", "seed=x", "seed=9..0", "seed=-1", "seed=1.5", "data=1"),
        *("seed=0..", "seed=0..x", "seed=0..999999999", "seed=0..3,2", "seed=[0,1]"),
        *("seed=0.5..3", "schedule.tradeoff=1..5", "data.group_sizes=[30,60"),
        *("data.group_sizes=[]", "data.group_sizes='30,x'", "seed=''", "seed=[1"),
        *("data.=1", ".name=1", "data.name.x=1", "schedule.policy=random,best"),
        *("schedule.solver=joint,exact", "data.partition=iid,striped"),
        *("model.name=logistic,vit", "privacy.accountant=pld,zcdp"),
        *("server.optimizer=plain,lamb", "training.sparsifier=bernoulli,top"),
        *("training.clipping=adjusted,maybe", "data.name=toy,imagenet_of_mine"),
        *("privacy.delta=0,1e-3", "privacy.delta=nan", "wireless.fading=perhaps"),
        *("training.local_steps=1.5", "data.num_clients=0,4", "perf.devices=99"),
        *("wireless.num_channels=2,1000000000", "data.group_sizes=x"),
        *("training.clip_norm=1,inf", f"seed={many};schedule.tradeoff={many}"),
        f"seed={many};schedule.tradeoff={many};training.clip_norm={many}",
    )
    for grid in grids:
        axes = [f"--{part.partition('=')[0]}=" for part in grid.split(";")]
        yield Case(
            f"grid {grid[:60]} ({len(grid)})",
            "sweep",
            (
                *(flag for flag in SMALL if not flag.startswith(tuple(axes))),
                "--preset=paper_mnist",
                "--out={root}/out",
                f"--grid={grid}",
            ),
        )
    for shard in ("0/2", "3/2", "1", "a/b", "1/2/3", "-1/2", "1/0", "5/9", "1.5/2"):
        flags = ("--grid=seed=0,1", f"--shard={shard}", "--out={root}/out")
        yield Case(f"shard {shard}", "sweep", (*SMALL, *flags))
    for flag in ("--live=-1", "--live=soon", "--live=1e9", "--live"):
        yield run_case(f"flag {flag}", flag)
    for flag in ("--log=comet", "--log=wandb,tb", "--log=wandb;mlflow", "--log"):
        yield run_case(f"flag {flag}", flag)
    live = (*SMALL, "--grid=seed=0,1", "--out={root}/out", "--shard=1/2", "--live=5")
    yield Case("sweep: live page of a shard", "sweep", live)
    yield Case("sweep: no folder", "sweep", (*SMALL, "--grid=seed=0,1"))
    yield Case(
        "sweep: flag and axis",
        "sweep",
        (*SMALL, "--out={root}/out", "--grid=schedule.policy=random"),
    )


def _searches() -> Iterator[Case]:
    searches = (
        *("", "training.clip_norm", "training.clip_norm=", "clip=1..2", "seed=1..2"),
        *("training.clip_norm=2..1", "training.clip_norm=0..1", "data.name=a..b"),
        *("schedule.policy=best", "training.clip_norm=1..2;training.clip_norm=3"),
        *("training.local_steps=1.5..2.5", "training.clip_norm=1..1e300"),
    )
    for search in searches:
        flags = ("--out={root}/out", f"--search={search}")
        yield Case(f"search {search}", "tune", (*_no_length(), *flags))
    good = ("--search=training.clip_norm=1..2", "--out={root}/out")
    for flag in (
        *("--rounds=x", "--rounds=", "--rounds=4,2", "--rounds=2,2", "--rounds=0,2"),
        *("--trials=0", "--trials=1000000", "--kept=2", "--kept=-1", "--kept=nan"),
        *("--search_seed=-1", "--length.rounds=3", "--length.eval_on=test", "--out="),
    ):
        yield Case(f"tune {flag}", "tune", (*_no_length(), *good, flag))


def _no_length() -> tuple[str, ...]:
    return tuple(flag for flag in SMALL if "length" not in flag)


def _budgets() -> Iterator[Case]:
    for flag in (
        *("--sigma=0", "--sigma=-1", "--sigma=nan", "--sigma=inf", "--sigma=1e300"),
        *("--sigma=1e-300", "--sigma=x", "--batch=0", "--batch=-1", "--batch=nan"),
        *("--batch=1e9", "--batch=1e-30", "--examples=0", "--examples=x"),
        *(f"--examples={10**30}", "--steps=0", "--steps=-1", f"--steps={10**30}"),
        *("--steps=1.5", "--delta=0", "--delta=1", "--delta=nan", "--delta=-1"),
        *("--overflow=-1", "--overflow=1", "--overflow=nan", "--epsilon=", "--limit=0"),
        *("--epsilon=x", "--epsilon=0", "--epsilon=-1", "--epsilon=nan"),
        *("--epsilon=inf", "--epsilon=1e300", "--epsilon=2..10", "--epsilon=1,,2"),
        *("--participations=0", f"--participations={10**30}", f"--limit={10**30}"),
        *("--clients=3", "--most_rounds=3", "--json=/nowhere/a.json", "--json=/tmp"),
        *("--plot=/nowhere/a.png", "--plot=/tmp", "--plot=a.exe", "--plot=a", "more"),
        *(f"--json=/tmp/{'x' * 300}", f"--plot=/tmp/{'x' * 300}.png"),
    ):
        name = f"budget {flag[:60]} ({len(flag)})"
        plot = () if "plot" in flag else ("--plot=",)
        yield Case(name, "budget", (*plot, "--cache_dir={shared}", flag))
    for flags in (
        ("--epsilon=10..2",),
        ("--epsilon=x..2",),
        ("--epsilon=0..2",),
        ("--sigma=1e300",),
        ("--participations=3",),
        ("--clients=0",),
        ("--channels=0",),
        ("--most_examples=-1",),
        ("--most_rounds=-1",),
        ("--most_batch=0",),
        ("--most_batch=nan",),
        ("--most_examples=nan",),
    ):
        arguments = ("--plot=", "--cache_dir={shared}", "--advise", *flags)
        yield Case(f"advice {' '.join(flags)}", "budget", arguments)


def _other_programs() -> Iterator[Case]:
    plan = ("--length.rounds=1", "--perf.cache_dir={shared}")
    for flags in (
        ("--plot=a.exe",),
        ("--plot=/nowhere/a.png",),
        ("--plot=", "--plot_queues=/nowhere/a.png"),
        ("--plot=", "--plot_world=a.txt"),
        ("--plot=", "--out=/dev/null"),
        ("--plot=", "--preset=nothing"),
        ("--plot=", "--data.num_clients=100000000"),
        ("--plot=", "--wireless.num_channels=1000000000"),
        ("--plot=", "--training.batch_size=1e-3", "--length.rounds=0"),
        ("--plot=", "--data.group_sizes=x"),
        ("--plot=", "--schedule.policy=best"),
    ):
        yield Case(f"plan {' '.join(flags)}", "schedule_only", (*plan, *flags))
    for arguments in ((), ("/nowhere",), ("/dev/null",), ("{root}",), ("--nonsense",)):
        yield Case(f"report {arguments}", "report", arguments)
        yield Case(f"list {arguments}", "list_runs", arguments)
        yield Case(f"show {arguments}", "show", arguments)
        yield Case(f"compare {arguments}", "compare", arguments)
    for flag in ("--csv=/nowhere/runs.csv", "--csv=/tmp", "--all=perhaps"):
        yield Case(f"list {flag}", "list_runs", ("{root}", flag))
    yield Case("presets more", "list_presets", ("more",))
    for flag in (
        *("--csv=/nowhere/runs.csv", "--csv=/tmp", "--csv", "--seed=3"),
        *("--epsilon=0", "--epsilon=many", "--mean_epsilon=nan", "--delay=-1"),
        *("--delay=inf", "--delay=", "--plot=a.exe", "--plot=/nowhere/a.png"),
    ):
        yield Case(f"compare {flag}", "compare", ("{root}", flag))
    yield Case("show two", "show", ("{root}", "{root}"))
    for flags in (
        *(("--paper=perhaps",), ("--style=/nowhere",), ("--style={shared}",)),
        *(("--band=interval",), ("--paper", "--band=wide"), ("--paper", "--band=")),
    ):
        yield Case(f"report {flags}", "report", ("{root}", *flags))
    for flags in (
        *(("--results=/nowhere",), ("--results={root}",), ("more",)),
        ("--markdown=perhaps",),
    ):
        yield Case(f"claims {flags}", "claims", flags)
    for flags in (
        ("--figure=nothing",),
        ("--scale=huge",),
        ("--out=/dev/null",),
        ("--perf.devices=-1",),
    ):
        yield Case(f"figures {flags}", "figures", flags)
    yield Case(
        "figures: nothing to draw from",
        "figures",
        ("--draw_only", "--figure=tradeoff", "--out={root}/out"),
    )
    preparations: tuple[tuple[str, ...], ...] = (
        (),
        ("--from={shared}",),
        ("--to={root}/out",),
        ("--from=/nowhere", "--to={root}/out"),
        ("--from={root}", "--to={root}/out"),
        ("--from={shared}", "--to=/nowhere/below/out"),
        ("--from={shared}", "--to=/dev/null"),
        ("--from={shared}", "--to={root}/out", "--name=Toy"),
        ("--from={shared}", "--to={root}/out", "--name=other"),
        ("--from={shared}", "--to={root}/out", "--name=../toy"),
    )
    for given in preparations:
        yield Case(f"prepare_data {' '.join(given)}", "prepare_data", given)


def of_runs() -> Iterator[Case]:
    """Those of a single run."""
    yield from _values_of_settings()
    yield from _flags()


def of_other_programs() -> Iterator[Case]:
    """All others."""
    yield from _grids()
    yield from _searches()
    yield from _budgets()
    yield from _other_programs()
