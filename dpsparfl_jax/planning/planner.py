"""A run's whole schedule, before and without any training.

World, policy, queues and ledger turn into a `Schedule`, round by round. Nothing here
sees a record, a gradient or a loss, so the schedule costs no privacy, and everything
about a run but its accuracy is known from it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import rng
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning.schedule import IDLE, RoundPlan, Schedule, join
from dpsparfl_jax.planning.theory import best_keep_rate
from dpsparfl_jax.privacy.budgets import participation_rates
from dpsparfl_jax.privacy.ledger import Ledger
from dpsparfl_jax.scheduling import matching, queues
from dpsparfl_jax.scheduling.base import Observation, make_policy
from dpsparfl_jax.scheduling.edges import make_edges, possible_edges
from dpsparfl_jax.scheduling.problem import Allocation, RoundProblem
from dpsparfl_jax.sparsifiers import make_sparsifier
from dpsparfl_jax.types import ModelSize
from dpsparfl_jax.units import shannon_rate
from dpsparfl_jax.wireless import link
from dpsparfl_jax.wireless.world import Conditions, World, make_world, observe

Array = NDArray[np.float64]
_MOST_SKIPPED = 1000  # rounds in a row in which nobody can send, before we give up


class Costs(NamedTuple):
    """What a round costs each client before it sends: all [U]."""

    base_delay_s: Array  # downlink and training
    training_s: Array
    training_j: Array


class Planner:
    """Everything that stays the same over a run, and the state before each round."""

    def __init__(
        self,
        settings: RunConfig,
        sizes: NDArray[np.int_],
        model: ModelSize,
        ledger: Ledger,
    ) -> None:
        """Makes the world and the first queues; `ledger` is what clients allow."""
        if len(sizes) == 0 or model.parameters < 1:
            raise InputError("planning needs at least one client and one parameter.")
        if len(sizes) != len(ledger.budget):
            raise InputError(
                f"the ledger has {len(ledger.budget)} clients, but {len(sizes)} sizes "
                "are given."
            )
        self.settings, self.sizes, self.ledger = settings, np.asarray(sizes), ledger
        self.reason = ""  # why the run ended, once it has
        self.num_parameters = model.parameters
        radio = settings.wireless
        self.world: World = make_world(radio, len(sizes), settings.seed)
        self.policy = make_policy(settings.schedule)
        self.state = self.policy.init(len(sizes), radio.num_channels)
        self.rates = participation_rates(ledger.affordable, radio.num_channels)
        self.bits_fixed, self.bits_per_rate = link.payload_terms(
            model.parameters,
            make_sparsifier(settings.training.sparsifier).mask_bits(model),
            radio,
        )
        snr = radio.max_power_w * self.world.uplink_gain / radio.noise_w
        rate = shannon_rate(radio.bandwidth_hz, snr)
        self.queues = queues.first_queues(
            settings.schedule, len(sizes), self.bits_per_rate, float(np.mean(rate))
        )

    def costs(self, conditions: Conditions) -> Costs:
        """Delay before, and energy of local training of, every client."""
        radio = self.settings.wireless
        examples = link.local_examples(self.sizes, self.settings.training, radio)
        down = link.downlink_delay(self.world.downlink_gain, self.num_parameters, radio)
        training_s = link.training_delay(examples, conditions.cpu_hz, radio)
        return Costs(
            down + training_s,
            training_s,
            link.training_energy(examples, conditions.cpu_hz, radio),
        )

    def observe(self, round_index: int) -> tuple[Observation, Costs]:
        """The round as the policy sees it: live clients only."""
        settings, radio = self.settings.schedule, self.settings.wireless
        conditions = observe(self.world, radio, self.settings.seed, round_index)
        costs = self.costs(conditions)
        live = np.flatnonzero(self.ledger.live)
        problem = RoundProblem(
            weight=queues.selection_weights(settings, self.queues)[live],
            reward=np.zeros(len(live)),
            curvature=np.zeros(len(live)),
            delay_price=queues.delay_price(settings, self.queues),
            base_delay_s=costs.base_delay_s[live],
            snr_per_w=conditions.uplink_gain[live] / radio.noise_w,
            energy_j=settings.energy_j - costs.training_j[live],
            max_power_w=radio.max_power_w,
            bandwidth_hz=radio.bandwidth_hz,
            bits_fixed=self.bits_fixed,
            bits_per_rate=self.bits_per_rate,
            keep_min=settings.keep_rate or settings.keep_min,
            keep_max=np.full(len(live), settings.keep_rate or 1.0),
        )
        problem = self._with_rewards(problem)
        return Observation(round_index, live, self.sizes[live], problem), costs

    def _with_rewards(self, problem: RoundProblem) -> RoundProblem:
        """Rewards lambda / K, K how many can send, and what noise makes of them."""
        settings = self.settings.schedule
        size = max(1, matching.largest_size(possible_edges(problem)))
        each = np.full(problem.num_clients, settings.tradeoff / size)
        if not settings.noise_aware or settings.keep_rate:
            return problem._replace(reward=each)
        best = best_keep_rate(self.settings, self.num_parameters, 1 / size)
        cap = float(np.clip(best, settings.keep_min, 1.0))
        return problem._replace(
            reward=each,
            keep_max=np.full(problem.num_clients, cap),
            curvature=np.full(problem.num_clients, 1 / max(best, cap)),
        )

    def step(self, round_index: int) -> RoundPlan:
        """Plans a round and moves queues, ledger and policy on."""
        observation, costs = self.observe(round_index)
        random = rng.host_stream(self.settings.seed, "policy", round_index)
        allocation, self.state = self.policy.plan(self.state, observation, random)
        before = self.queues, self.ledger
        client = observation.client[allocation.client]
        selected = np.zeros(len(self.sizes), bool)
        selected[client] = True
        slowest = float(np.max(allocation.delay_s, initial=0.0))
        self.queues = queues.update(
            self.settings.schedule,
            self.queues,
            selected=selected,
            delay_s=slowest,
            rates=self.rates,
        )
        self.ledger = self.ledger.charge(client)
        return self._record(allocation, client, costs, *before)

    def _record(
        self,
        allocation: Allocation,
        client: NDArray[np.intp],
        costs: Costs,
        queued: queues.Queues,
        ledger: Ledger,
    ) -> RoundPlan:
        channels = self.settings.wireless.num_channels

        def slots(values: NDArray[Any], idle: float = 0.0) -> NDArray[Any]:
            filled = np.full(channels, idle, values.dtype)
            filled[allocation.channel] = values
            return filled

        upload = allocation.delay_s - costs.base_delay_s[client]
        bits = self.bits_fixed + self.bits_per_rate * allocation.keep_rate
        return RoundPlan(
            client=slots(client, IDLE),
            keep_rate=slots(allocation.keep_rate),
            power_w=slots(allocation.power_w),
            delay_s=slots(allocation.delay_s),
            training_s=slots(costs.training_s[client]),
            upload_s=slots(upload),
            upload_j=slots(allocation.power_w * upload),
            training_j=slots(costs.training_j[client]),
            bits=slots(bits),
            round_delay_s=float(np.max(allocation.delay_s, initial=0.0)),
            fairness_queue=queued.fairness,
            delay_queue=queued.delay,
            value=allocation.value,
            lower_bound=allocation.lower_bound,
            live=ledger.live,
            epsilon_spent=self.ledger.epsilon_spent,
        )


def stream(planner: Planner) -> Iterator[RoundPlan]:
    """Round after round until the run's end; `planner.reason` then says why."""
    rounds, skipped = planner.settings.length.rounds, 0
    index = 0
    while not rounds or index < rounds:
        if not planner.ledger.live.any():
            planner.reason = "all budgets are spent"
            return
        if skipped >= _MOST_SKIPPED:
            planner.reason = f"nobody could send for {skipped} rounds"
            return
        plan = planner.step(index)
        skipped = 0 if np.any(plan.client != IDLE) else skipped + 1
        index += 1
        yield plan
    planner.reason = "all rounds are done"


def plan(planner: Planner) -> Schedule:
    """The whole schedule of a run; empty if nobody is live."""
    first = planner.ledger
    rounds = list(stream(planner))
    return join(
        rounds,
        num_channels=planner.settings.wireless.num_channels,
        last_delay_queue=planner.queues.delay,
        affordable=first.affordable,
        budget=first.budget,
        rate=planner.rates,
        reason=planner.reason,
    )


def reachable_delay_s(planner: Planner, rounds: int = 20) -> float:
    """Mean over some rounds of the least round delay at the least keep rate."""
    delays = []
    for index in range(rounds):
        observation, _ = planner.observe(index)
        first = make_edges(observation.problem).first_s
        size = matching.largest_size(np.isfinite(first)) if first.size else 0
        if size:
            delays.append(matching.bottleneck(first, size))
    return float(np.mean(delays)) if delays else np.inf


def delay_warning(planner: Planner) -> str:
    """A sentence if the delay target cannot be met even at the least keep rate."""
    target = planner.settings.schedule.delay_target_s
    least = reachable_delay_s(planner)
    if least <= target:
        return ""
    if np.isinf(least):
        return (
            "No client can send even at the least keep rate: raise the energy budget "
            "(schedule.energy_power_w) or lower the cost of local training."
        )
    return (
        f"The delay target of {target:g} s cannot be met: even at the least keep rate "
        f"the fastest clients take {least:.0f} s a round on average."
    )
