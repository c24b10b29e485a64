"""Settings of the image set and of who owns which images; `config` joins them."""

import dataclasses

from dpsparfl_jax.errors import InputError
from dpsparfl_jax.options import Section, opt


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig(Section):
    """Where images come from, and how clients share them."""

    name: str = opt(
        "glyphs",
        "image set: glyphs is drawn on the spot; mnist, fashion_mnist, cifar10 or any "
        "other is looked for in dir, then in TensorFlow Datasets",
    )
    dir: str = opt("", "folder with <name>.npz, or with the four original idx files")
    tfds_dir: str = opt(
        "", "folder of TensorFlow Datasets; empty is ~/tensorflow_datasets"
    )
    glyphs_seed: int = opt(0, "which set of glyphs is drawn", low=0)
    partition: str = opt(
        "iid",
        "how clients share the images: at random, by class with Dirichlet weights, in "
        "groups of different sizes, or as partition_file lists them",
        choices=("iid", "dirichlet", "imbalanced", "file"),
        paper="Setup",
    )
    num_clients: int = opt(20, "clients U", low=1, paper="Setup")
    train_examples: int = opt(1000, "training images of a client", low=1, paper="Setup")
    test_examples: int = opt(500, "test images of a client", low=1, paper="Setup")
    dirichlet_alpha: float = opt(
        0.2, "dirichlet: concentration; small is skewed", above=0, paper="Setup"
    )
    group_sizes: str = opt(
        "300,600,1800,2100",
        "imbalanced: training images of a client of each group; groups have equally "
        "many clients",
        paper="Setup",
    )
    partition_file: str = opt(
        "",
        'file: a JSON file {"train": [[image numbers of client 0], ...], "test": ...}',
    )

    def __post_init__(self) -> None:
        """Refuses a partition file that would not be read, or that is missing."""
        super().__post_init__()
        if (self.partition == "file") != bool(self.partition_file):
            raise InputError(
                "partition=file needs partition_file, and partition_file needs "
                "partition=file: give both or neither."
            )

    @property
    def image_set(self) -> tuple[object, ...]:
        """What says which images are read: equal for runs that can share them."""
        named = self.name, self.dir, self.tfds_dir, self.glyphs_seed
        if self.name != "glyphs":
            return named
        # As many are drawn as the clients need.
        sizes = self.train_examples, self.test_examples, self.group_sizes
        return *named, self.partition, self.partition_file, self.num_clients, *sizes
