"""Federated averaging without privacy as pfl (pfl-research) simulates it.

Where several processes run this, they are one simulation by pfl's own means: a cohort
has five clients for each process, so that none waits for another, and their updates
are added up by all processes together. Clients' batches are cut once and kept, which
is less work than drawing them anew as the other contenders do.
"""

from typing import Any

import numpy as np

from benchmarks import peers, timing
from benchmarks.plain import RATE


def contender(setting: Any, steps: int) -> timing.Contender:
    """One round of this process's share of the cohort."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.internal.ops import pytorch_ops
    from pfl.model.pytorch import PyTorchModel

    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002 (processes must agree, and pfl draws from this)
    net = _network(setting)
    model = PyTorchModel(
        net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(net.parameters(), lr=1.0),
    )
    clients = _clients(setting, steps)
    backend = SimulatedBackend(clients, clients)
    algorithm = FederatedAveraging()
    training = NNTrainHyperParams(
        local_batch_size=setting.batch, local_num_epochs=1, local_learning_rate=RATE
    )
    count = len(setting.tables.sizes[0])
    rounds = 0

    def work() -> int:
        nonlocal rounds
        rounds += 1
        algorithm.run(
            NNAlgorithmParams(
                central_num_iterations=rounds,  # it goes on where it was
                evaluation_frequency=10**9,
                train_cohort_size=count * pytorch_ops.distributed.world_size,
                val_cohort_size=None,
            ),
            backend,
            model,
            training,
            send_metrics_to_platform=False,
        )
        return count * steps * setting.batch

    return work


def _network(setting: Any) -> Any:
    """The row's network with the two functions that pfl asks of a model."""
    import torch
    from pfl.metrics import Weighted

    net = peers.torch_net(setting).to(memory_format=torch.channels_last)

    def loss(images: Any, labels: Any) -> Any:
        return torch.nn.functional.cross_entropy(net(images), labels)

    def metrics(images: Any, labels: Any) -> Any:
        with torch.no_grad():
            total = loss(images, labels).item() * len(labels)
        return {"loss": Weighted(total, len(labels))}

    net.loss, net.metrics = loss, metrics
    return net


def _clients(setting: Any, steps: int) -> Any:
    """Every client with exactly the records that its steps take."""
    import torch
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler

    images, labels = peers.torch_data(setting)
    datasets: list[Any] = []
    for client in range(len(setting.tables.sizes[0])):
        rows = setting.tables.of(0, client)
        chosen = torch.from_numpy(setting.rng.permutation(rows).astype(np.int64))
        chosen = chosen.repeat(-(-steps * setting.batch // len(chosen)))
        chosen = chosen[: steps * setting.batch]
        own = images[chosen].contiguous(memory_format=torch.channels_last)
        tensors = (own, labels[chosen])
        datasets.append(PyTorchTensorDataset(tensors, user_id=str(len(datasets))))
    sampler = get_user_sampler("minimize_reuse", list(range(len(datasets))))
    return FederatedDataset(datasets.__getitem__, sampler)
