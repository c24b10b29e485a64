"""Gaps in the privacy of an earlier commit, measured there and here.

    python -m benchmarks.privacy_gaps --old=COMMIT --json results.json

measures, in a checkout of that commit and in this one: how far generated noise reaches
and what its end costs, how far past the bound crafted records weigh, what is left of
the noise when two runs of one seed are subtracted, which numbers about raw records are
written, and whether streams and unusual models are told apart. A minute or two.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np
from absl import flags
from scipy import stats

from benchmarks.run_facts import ROOT
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy import noise_edge
from dpsparfl_jax.privacy.accountants import make_accountant
from dpsparfl_jax.privacy.curves import CurveStore, affordable
from dpsparfl_jax.privacy.mechanism import Mechanism, Release
from experiments import cli

_OLD = flags.DEFINE_string("old", None, "commit to compare with", required=True)
_JSON = flags.DEFINE_string("json", "", "write the results to this file")

# Runs in either checkout, so it uses only what both have.
_MEASURE = r"""
import json, pathlib, sys, tempfile, warnings
import flax.linen as nn
import jax, jax.numpy as jnp, numpy as np
import dpsparfl_jax as fl
from dpsparfl_jax import rng
from dpsparfl_jax.training import clipping, models, noise

warnings.simplefilter("ignore")
told = {}
least = np.zeros(1, np.uint32)
told["noise reaches (standard deviations)"] = float(
    abs(noise.words_to_normal(least, np.full(1, 2**31, np.uint32)))[0]
)

class Exponential(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10, use_bias=False)(jnp.exp(x.reshape(x.shape[0], -1)))

def weight(net, image, dropped, bound=0.05):
    shape = image.shape[1:]
    params = models.init_params(net, jax.random.key(0), shape)
    params = jax.tree.map(jnp.zeros_like, params)
    mask = jax.tree.map(jnp.ones_like, params)
    if dropped:
        kernel = mask["Dense_0"]["kernel"].at[0].set(np.float32(0))
        mask["Dense_0"]["kernel"] = kernel
    fn = jax.jit(clipping.make_clipped_sum(net, params, shape, "ghost"))
    out = fn(params, mask, image, jnp.zeros(1, jnp.int32), jnp.ones(1, bool),
             jnp.float32(bound))
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(out.total)]
    return float(np.sqrt(sum((leaf**2).sum() for leaf in leaves)) / bound)

spread = jnp.zeros((1, 4, 4, 1)).at[0, 0, 0, 0].set(np.float32(45))
told["weight over bound, largest entry dropped"] = weight(Exponential(), spread, True)
for inputs in (4096, 2**20):
    image = jax.random.normal(jax.random.key(1), (1, inputs, 1, 1))
    excess = weight(models.make_model("logistic", 2), image, False)
    told[f"weight over bound, {inputs} inputs"] = excess

def settings(sigma, **changes):
    return fl.RunConfig(
        data=fl.DataConfig(num_clients=6, train_examples=60, test_examples=20),
        model=fl.ModelConfig(name="logistic"),
        training=fl.TrainingConfig(local_steps=1, batch_size=10, clip_norm=0.1),
        privacy=fl.PrivacyConfig(noise_multiplier=sigma, max_participations=5,
                                 epsilons=",".join(["1000"] * 6),
                                 clip_calibration=changes.get("calibration", "none")),
        length=fl.LengthConfig(rounds=1),
    )

def flat(params):
    return np.concatenate(
        [np.ravel(leaf).astype(np.float64) for leaf in jax.tree.leaves(params)])

first, second, third = (
    flat(run.params)
    for run in fl.simulate_grid([settings(s) for s in (2.0, 2.5, 3.0)], progress=False)
)
one, two = (2.5 * first - 2 * second) / 0.5, (3 * second - 2.5 * third) / 0.5
told["noise left by subtracting two runs (share of it)"] = float(
    np.linalg.norm(one - two) / 2**0.5 / np.linalg.norm(second - third))

with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    median = fl.simulate(settings(2.0, calibration="median"), folder / "run",
                         progress=False)
    from dpsparfl_jax import records
    from dpsparfl_jax.report import writing
    recorded = records.load_run(folder / "run")
    told["a median of raw gradients is shown as private"] = bool(
        recorded.private if hasattr(recorded, "private")
        else writing.is_private(recorded))  # as version 0.2 says it
    manifest = folder / "run" / "manifest.json"
    content = json.loads(manifest.read_text())
    content["clip_norm"]["value"] *= 2
    manifest.write_text(json.dumps(content))
    (folder / "run" / "DONE").unlink()
    try:
        fl.simulate(settings(2.0, calibration="median"), folder / "run",
                    progress=False)
        told["goes on with another clip norm"] = True
    except fl.InputError:
        told["goes on with another clip norm"] = False
try:
    kept = fl.RunConfig(records=fl.RecordsConfig(private_only=True))
    told["raw numbers can be left out"] = True
except AttributeError:
    told["raw numbers can be left out"] = False

told["streams with index 0 and without are equal"] = bool(
    rng.host_stream(1, "x").random() == rng.host_stream(1, "x", 0).random())

class Mapped(nn.Module):
    @nn.compact
    def __call__(self, x):
        inner = nn.vmap(nn.Dense, in_axes=1, out_axes=1, variable_axes={"params": 0},
                        split_rngs={"params": True})
        x = inner(3)(x.reshape(x.shape[0], -1, 4))
        return nn.Dense(10)(x.reshape(x.shape[0], -1))

try:
    params = models.init_params(Mapped(), jax.random.key(0), (4, 4, 1))
    clipping.make_clipped_sum(Mapped(), params, (4, 4, 1), "ghost")
    told["a mapped layer falls back"] = True
except Exception:
    told["a mapped layer falls back"] = False
json.dump(told, sys.stdout)
"""
# Batch size, noise multiplier and parameters of the paper's settings.
_PAPER = {"paper_mnist": (8, 0.6, 1_663_370), "paper_cifar": (2, 0.4, 930_826)}


def measure(checkout: pathlib.Path) -> dict[str, Any]:
    """What the code of a checkout does."""
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise InputError(f"{checkout} cannot be measured: {done.stderr[-2000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def really_spent(
    reach: float, batch: float, sigma: float, coordinates: int, delta: float
) -> float:
    """Epsilon of a client that spends 10, noise ending at `reach`.

    It takes part as often as a ledger that charges for `coordinates` allows. Outputs
    that only a present record can cause have infinite loss: their probability is taken
    from delta, which gives the least that is really spent.
    """
    step = Release(batch / 1000, sigma, 60)
    accountant = make_accountant("pld")
    mechanism = Mechanism(step, delta, coordinates=coordinates)
    curve = CurveStore(accountant).curve(mechanism, max_epsilon=10.0, limit=2000)
    times = affordable(curve, 10.0, 2000)
    beyond = step.sampling_rate * float(stats.norm.sf(reach - 1 / sigma))
    left = delta - times * step.count * beyond
    if left <= 0:
        return float("inf")
    return float(accountant.epsilon(Mechanism(step, left), np.array([times]))[0])


def main() -> None:
    """Measures both and prints a table."""
    cli.check_output("json", _JSON.value)
    with tempfile.TemporaryDirectory() as scratch:
        checkout = pathlib.Path(scratch) / "checkout"
        subprocess.run(["git", "clone", "-q", ROOT, checkout], check=True)
        got = subprocess.run(["git", "checkout", "-q", _OLD.value], cwd=checkout)
        if got.returncode:
            raise InputError(f"there is no commit {_OLD.value!r} here.")
        before, after = measure(checkout), measure(ROOT)
    for name, (batch, sigma, parameters) in _PAPER.items():
        for delta in (1e-3, 1e-5):
            for told, charged in ((before, 0), (after, parameters)):
                reach = told["noise reaches (standard deviations)"]
                spent = really_spent(reach, batch, sigma, charged, delta)
                told[f"{name}, delta {delta:g}: epsilon really spent of 10"] = spent
        cost = noise_edge.cost(batch / 1000, sigma, parameters, 1e-3)
        after[f"{name}: charged to delta a step"] = cost
    width = max(map(len, after))
    print(f"{'':{width}}  {'before':>12}  {'after':>12}")
    for name in after:
        cells = [_cell(told.get(name)) for told in (before, after)]
        print(f"{name:{width}}  {cells[0]:>12}  {cells[1]:>12}")
    if _JSON.value:
        content = {"old": _OLD.value, "before": before, "after": after}
        text = json.dumps(content, indent=1).replace("Infinity", "null") + "\n"
        pathlib.Path(_JSON.value).write_text(text, encoding="utf-8")


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, bool) else f"{value:.6g}"


if __name__ == "__main__":
    cli.run(main)
