"""Other libraries' training, measured beside the engine where installed.

They train without a mask and on batches of exactly the expected size. The private ones
run one client's steps on the same batch again and again (they have no notion of a
cohort), which is no disadvantage on a CPU; `torch_sgd` has no privacy and draws batches
of five clients, one after another.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks import timing
from benchmarks.plain import CLIP, NOISE, RATE


def _jax_privacy(setting: Any, steps: int) -> timing.Contender:
    from jax_privacy import clipped_grad

    def loss(params: Any, image: jax.Array, label: jax.Array) -> jax.Array:
        logits = setting.plain_net.apply({"params": params}, image)
        return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()

    gradient = clipped_grad(loss, l2_clip_norm=CLIP, batch_argnums=(1, 2))

    @jax.jit
    def step(params: Any, key: jax.Array, images: jax.Array, labels: jax.Array) -> Any:
        total = gradient(params, images, labels)
        leaves, structure = jax.tree.flatten(total)
        keys = jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))))
        return jax.tree.map(
            lambda p, g, k: (
                p
                - RATE
                * (g + NOISE * CLIP * jax.random.normal(k, g.shape))
                / len(labels)
            ),
            params,
            total,
            keys,
        )

    params = setting.params
    images = jnp.zeros((setting.batch, *setting.shape))
    images = images + jax.random.normal(jax.random.key(0), images.shape)
    labels = jnp.zeros(setting.batch, jnp.int32)
    few = max(1, steps // 10)  # it is slow: a turn need not take minutes

    def work() -> int:
        nonlocal params
        for index in range(few):
            params = step(params, jax.random.key(index), images, labels)
        jax.block_until_ready(params)
        return few * setting.batch

    return work


def _opacus(setting: Any, steps: int, mode: str) -> timing.Contender:
    import torch
    from opacus import PrivacyEngine

    net = torch_net(setting)
    rng = np.random.default_rng(0)
    height, width, channels = setting.shape
    images = torch.from_numpy(
        rng.normal(size=(setting.batch, channels, height, width)).astype(np.float32)
    )
    labels = torch.zeros(setting.batch, dtype=torch.long)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images, labels), batch_size=setting.batch
    )
    criterion = torch.nn.CrossEntropyLoss()
    private = PrivacyEngine().make_private(
        module=net,
        optimizer=torch.optim.SGD(net.parameters(), lr=RATE),
        data_loader=loader,
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        poisson_sampling=False,
        grad_sample_mode=mode,
        **({"criterion": criterion} if mode == "ghost" else {}),
    )
    module, optimizer = private[0], private[1]
    criterion = private[2] if mode == "ghost" else criterion

    def work() -> int:
        for _ in range(steps):
            optimizer.zero_grad()
            criterion(module(images), labels).backward()
            optimizer.step()
        return steps * setting.batch

    return work


def _torch_sgd(setting: Any, steps: int) -> timing.Contender:
    import torch

    torch.set_num_threads(timing.cores())
    images, labels = torch_data(setting)
    clients = []
    for client in range(len(setting.tables.sizes[0])):
        rows = setting.tables.of(0, client)
        net = torch_net(setting).to(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        clients.append((net, optimizer, np.asarray(rows, np.int64)))

    def work() -> int:
        for net, optimizer, own in clients:
            for _ in range(steps):
                chosen = torch.from_numpy(setting.rng.permutation(own)[: setting.batch])
                optimizer.zero_grad()
                logits = net(images[chosen])
                torch.nn.functional.cross_entropy(logits, labels[chosen]).backward()
                optimizer.step()
        return len(clients) * steps * setting.batch

    return work


def torch_data(setting: Any) -> tuple[Any, Any]:
    """The row's images, scaled and with their channels stored last, and labels."""
    import torch

    pixels = (setting.data.images.astype(np.float32) / 255 - 0.5) / 0.5
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    labels = torch.from_numpy(setting.data.labels.astype(np.int64))
    return images.contiguous(memory_format=torch.channels_last), labels


def torch_net(setting: Any) -> Any:
    """The row's network in PyTorch."""
    from torch import nn

    height, width, features = setting.shape
    blocks: list[Any] = []
    for channels in setting.net.channels:
        blocks += [
            nn.Conv2d(features, channels, setting.net.kernel_size, padding="same"),
            nn.MaxPool2d(2),
            nn.ReLU(),
        ]
        features, height, width = channels, height // 2, width // 2
    blocks.append(nn.Flatten())
    size = features * height * width
    for hidden in setting.net.hidden:
        blocks += [nn.Linear(size, hidden), nn.ReLU()]
        size = hidden
    return nn.Sequential(*blocks, nn.Linear(size, setting.net.num_classes))


# A worker makes one of these by its name; ImportError says what is not installed.
MAKERS: dict[str, Callable[[Any, int], timing.Contender]] = {
    "opacus_hooks": lambda setting, steps: _opacus(setting, steps, "hooks"),
    "opacus_ghost": lambda setting, steps: _opacus(setting, steps, "ghost"),
    "jax_privacy": _jax_privacy,
    "torch_sgd": _torch_sgd,
}
