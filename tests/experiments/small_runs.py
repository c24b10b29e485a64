"""Small runs for the commands that train."""

from tests import toy
from tests.commands import call_program

SMALL = (
    f"--data.dir={toy.folder()}",
    "--data.name=toy",
    "--data.num_clients=6",
    "--data.train_examples=60",
    "--data.test_examples=20",
    "--model.name=logistic",
    "--training.local_steps=4",
    "--training.batch_size=6",
    "--privacy.noise_multiplier=1.5",
    "--perf.padded_sizes=1",
    "--perf.checkpoint_every=2",
    "--length.rounds=6",
    "--perf.devices=1",
)


def run(out, *flags, program="experiments.run", how=call_program):
    """A command with small settings, in this process unless `how` says otherwise."""
    return how(program, f"--out={out}", *SMALL, *flags)
