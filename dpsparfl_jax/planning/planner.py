"""A run's whole schedule, before and without any training.

World, policy, queues and ledger turn into a `Schedule`, round by round. Nothing here
sees a record, a gradient or a loss, so the schedule costs no privacy, and everything
about a run but its accuracy is known from it.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsparfl_jax import memory, rng, units
from dpsparfl_jax.config import LengthConfig, RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning import asking, warm_start
from dpsparfl_jax.planning import realise as realise_lib
from dpsparfl_jax.planning.realise import Uploads, realise, true_channel
from dpsparfl_jax.planning.schedule import (
    IDLE,
    RoundPlan,
    Schedule,
    first_rounds,
    join,
)
from dpsparfl_jax.planning.theory import best_keep_rate, noise_energy
from dpsparfl_jax.privacy.budgets import participation_rates
from dpsparfl_jax.privacy.ledger import Ledger
from dpsparfl_jax.scheduling import queues, sifting
from dpsparfl_jax.scheduling.base import Observation
from dpsparfl_jax.scheduling.edges import make_edges, possible_edges
from dpsparfl_jax.scheduling.problem import Allocation, RoundProblem, value_of
from dpsparfl_jax.sparsifiers import make_sparsifier
from dpsparfl_jax.types import ModelSize
from dpsparfl_jax.wireless import link
from dpsparfl_jax.wireless.world import Conditions, World, make_world, observe

Array = NDArray[np.float64]
_SLOT_BYTES = 74  # of a channel in a round
_LONGEST_S = 1e9  # 30 years: beside it, the seconds of an upload are lost in rounding
_MOST_SKIPPED = 100  # rounds in a row in which nobody can send, before we give up


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
        self.policy = asking.ask(settings.schedule)
        self.state = self.policy.init(len(sizes), radio.num_channels)
        self.rates = participation_rates(ledger.affordable, radio.num_channels)
        self.bits_fixed, self.bits_per_rate = link.payload_terms(
            model.parameters,
            make_sparsifier(settings.training.sparsifier).mask_bits(model),
            radio,
        )
        self.noise_energy = noise_energy(settings, model.parameters, len(sizes))
        margin_db = realise_lib.margin_db(radio, settings.schedule)
        self.margin = float(units.db_to_ratio(-margin_db))  # of planned to known gains
        self.exact = realise_lib.is_exact(radio, settings.schedule)
        self.queues = queues.first_queues(len(sizes))
        if settings.schedule.warm_start and getattr(self.policy, "prices_delay", True):
            unit = queues.delay_unit_s(settings.schedule)
            price = warm_start.equilibrium_price(self)
            self.queues = self.queues._replace(delay=price * unit)

    def costs(self, conditions: Conditions) -> Costs:
        """Delay before, and energy of local training of, every client."""
        radio = self.settings.wireless
        examples = link.local_examples(self.sizes, self.settings.training, radio)
        world, cpu = self.world, conditions.cpu_hz
        down = link.downlink_delay(
            conditions.downlink_gain,
            world.downlink_noise_w,
            self.num_parameters,
            radio,
        )
        cycles = world.cycles_per_sample
        training_s = link.training_delay(examples, cycles, cpu)
        training_j = link.training_energy(examples, cycles, cpu, world.capacitance)
        if np.min(down + training_s) > _LONGEST_S:
            raise InputError(
                f"the fastest client takes {np.min(down + training_s):g} s to receive "
                "the model and train: raise powers, bandwidth or CPU speeds of the "
                "cell, or lower its noise."
            )
        return Costs(down + training_s, training_s, training_j)

    def observe(
        self, round_index: int, *, pilot: bool = False
    ) -> tuple[Observation, Costs]:
        """The round as the policy sees it: live clients only."""
        settings, radio = self.settings.schedule, self.settings.wireless
        seed = self.settings.seed
        conditions = observe(self.world, radio, seed, round_index, pilot=pilot)
        costs = self.costs(conditions)
        live = np.flatnonzero(self.ledger.live)
        problem = RoundProblem(
            weight=queues.selection_weights(settings, self.queues)[live],
            reward=np.zeros(len(live)),
            curvature=np.zeros(len(live)),
            delay_price=queues.delay_price(settings, self.queues),
            base_delay_s=costs.base_delay_s[live],
            snr_per_w=self._planned_snr(conditions, live),
            energy_j=settings.energy_j - costs.training_j[live],
            max_power_w=radio.max_power_w,
            bandwidth_hz=radio.bandwidth_hz,
            bits_fixed=self.bits_fixed,
            bits_per_rate=self.bits_per_rate,
            keep_min=settings.keep_rate or settings.keep_min,
            keep_max=np.full(len(live), settings.keep_rate or 1.0),
            full_keep=settings.keep_rate or 1.0,
            latest_s=settings.round_limit_s or np.inf,
            may_idle=settings.clients == "worthwhile",
        )
        problem = self._with_rewards(problem, live)
        sizes = self.sizes[live]
        return Observation(round_index, live, sizes, problem, self.ledger), costs

    def _planned_snr(self, conditions: Conditions, live: NDArray[np.intp]) -> Array:
        """Gains over noise of live clients [L, N], less the margin."""
        snr = conditions.uplink_gain / self.world.uplink_noise_w
        if live.size < len(snr):
            snr = snr[live]
        return snr if self.margin == 1.0 else snr * self.margin

    def _with_rewards(
        self, problem: RoundProblem, live: NDArray[np.intp]
    ) -> RoundProblem:
        """Rewards lambda / K, K how many can send, and what noise makes of them."""
        settings = self.settings.schedule
        size = max(1, sifting.largest_size(problem, possible_edges))
        each = np.full(problem.num_clients, settings.tradeoff / size)
        if problem.may_idle and live.size:  # what one brings depends on no other one
            each = each * (self.sizes[live] / np.mean(self.sizes[live]))
        if not settings.noise_aware or settings.keep_rate:
            return problem._replace(reward=each)
        best = best_keep_rate(self.settings, self.noise_energy[live], 1 / size)
        cap = np.clip(best, settings.keep_min, 1.0)
        return problem._replace(
            reward=each, keep_max=cap, curvature=1 / np.maximum(best, cap)
        )

    def step(self, round_index: int) -> RoundPlan:
        """Plans a round and moves queues, ledger and policy on."""
        observation, costs = self.observe(round_index)
        random = rng.host_stream(self.settings.seed, "policy", round_index)
        allocation, self.state = self.policy.plan(self.state, observation, random)
        if np.isnan(allocation.value):
            allocation = allocation._replace(value=self._value(observation, allocation))
        delay_queue = self.queues.delay
        client = observation.client[allocation.client]
        selected = np.zeros(len(self.sizes), bool)
        selected[client] = True
        uploads = self._send(observation, allocation, costs.base_delay_s[client])
        slowest = float(np.max(uploads.delay_s, initial=0.0))
        self.queues = queues.update(
            self.settings.schedule,
            self.queues,
            selected=selected,
            delay_s=slowest,
            rates=self.rates,
        )
        if not np.isfinite(slowest + np.sum(uploads.upload_j)):
            raise InputError(
                f"round {round_index + 1} would take {slowest:g} s: bandwidth, powers, "
                "distances or CPU speeds of the cell are too extreme to be computed."
            )
        self.ledger = self.ledger.charge(client)
        return self._record(allocation, uploads, client, costs, delay_queue)

    def _value(self, observation: Observation, allocation: Allocation) -> float:
        """V of an allocation, with the weights p of those that it chose."""
        rows = allocation.client
        reward = np.zeros(len(observation.client))
        weights = observation.size[rows] / np.sum(observation.size[rows])
        reward[rows] = self.settings.schedule.tradeoff * weights
        problem = observation.problem._replace(reward=reward)
        return value_of(problem, rows, allocation.keep_rate, allocation.delay_s)

    def _send(
        self, observation: Observation, allocation: Allocation, base_delay_s: Array
    ) -> Uploads:
        """How the planned uploads go; exactly as planned if all gains are known."""
        settings, problem = self.settings, observation.problem
        planned = allocation.delay_s - base_delay_s
        if self.exact:
            energy = allocation.power_w * planned
            late = np.zeros(planned.shape, bool)
            return Uploads(allocation.delay_s, planned, energy, late, ~late)
        shape = (len(self.sizes), problem.num_channels)
        edge = observation.client[allocation.client], allocation.channel
        true = true_channel(
            settings.wireless, settings.seed, observation.round_index, shape, edge
        )
        known = problem.snr_per_w[allocation.client, allocation.channel]
        return realise(
            settings.schedule.on_late,
            snr=allocation.power_w * known / self.margin * true.gain_error,
            outage=true.outage,
            bandwidth_hz=problem.bandwidth_hz,
            bits=self.bits_fixed + self.bits_per_rate * allocation.keep_rate,
            power_w=allocation.power_w,
            base_delay_s=base_delay_s,
            planned_upload_s=planned,
            deadline_s=float(np.max(allocation.delay_s, initial=0.0)),
        )

    def _record(
        self,
        allocation: Allocation,
        uploads: Uploads,
        client: NDArray[np.intp],
        costs: Costs,
        delay_queue: float,
    ) -> RoundPlan:
        channels = self.settings.wireless.num_channels

        def slots(values: NDArray[Any], idle: float = 0.0) -> NDArray[Any]:
            filled = np.full(channels, idle, values.dtype)
            filled[allocation.channel] = values
            return filled

        bits = self.bits_fixed + self.bits_per_rate * allocation.keep_rate
        return RoundPlan(
            client=slots(client, IDLE),
            keep_rate=slots(allocation.keep_rate),
            power_w=slots(allocation.power_w),
            delay_s=slots(uploads.delay_s),
            training_s=slots(costs.training_s[client]),
            upload_s=slots(uploads.upload_s),
            upload_j=slots(uploads.upload_j),
            training_j=slots(costs.training_j[client]),
            bits=slots(bits),
            late=slots(uploads.late),
            arrived=slots(uploads.arrived),
            round_delay_s=float(np.max(uploads.delay_s, initial=0.0)),
            planned_delay_s=float(np.max(allocation.delay_s, initial=0.0)),
            delay_queue=delay_queue,
            value=allocation.value,
            lower_bound=allocation.lower_bound,
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


def wanted_rounds(settings: LengthConfig, schedule: Schedule) -> int:
    """After how many of its rounds a run ends: before too few clients are left.

    Rounds in which fewer clients send count for nothing if better ones follow: a
    channel may idle at any time. What is planned depends on no record, so neither does
    the end.
    """
    good = np.sum(schedule.sends, axis=1) >= settings.least_channels
    if settings.least_live:
        states = schedule.client_states()
        live = [np.mean(state.before < schedule.affordable) for state in states]
        good &= np.array(live) >= settings.least_live
    return int(np.max(np.flatnonzero(good), initial=-1)) + 1


def _check_length(planner: Planner) -> None:
    """Refuses a schedule that is too long to be kept."""
    channels = planner.settings.wireless.num_channels
    rounds = int(np.sum(planner.ledger.affordable, dtype=np.float64)) // channels
    rounds = min(rounds, planner.settings.length.rounds or rounds)
    memory.require(
        rounds * _SLOT_BYTES * channels,
        f"a schedule of {rounds:,} rounds of {channels:,} channels",
        "set length.rounds, or lower data.num_clients",
    )


def plan(planner: Planner) -> Schedule:
    """The whole schedule of a run; empty if nobody is live."""
    first = planner.ledger
    _check_length(planner)
    rounds = list(stream(planner))
    whole = join(
        rounds,
        num_channels=planner.settings.wireless.num_channels,
        last_delay_queue=planner.queues.delay,
        affordable=first.affordable,
        budget=first.budget,
        rate=planner.rates,
        fairness=planner.settings.schedule.fairness,
        epsilon_curve=first.curves,
        group=first.group,
        reason=planner.reason,
    )
    kept = wanted_rounds(planner.settings.length, whole)
    if kept == len(rounds):
        return whole
    reason = (
        f"stopped after {kept} of {len(rounds)} rounds, before too few clients are left"
    )
    return dataclasses.replace(first_rounds(whole, kept), reason=reason)


def reachable_delay_s(planner: Planner, rounds: int = 20) -> float:
    """Mean over some rounds of the least round delay at the least keep rate."""
    channels = planner.settings.wireless.num_channels
    rounds = warm_start.at_most(rounds, len(planner.sizes), channels)
    delays = []
    for index in range(rounds):
        found = sifting.quickest(planner.observe(index)[0].problem, _first_s)
        if found.size:
            delays.append(found.least_s)
    return float(np.mean(delays)) if delays else np.inf


def _first_s(problem: RoundProblem) -> Array:
    """Earliest deadlines of all edges [L, N]."""
    return make_edges(problem).first_s


def delay_warning(planner: Planner) -> str:
    """A sentence if the delay target cannot be met even at the least keep rate."""
    target = planner.settings.schedule.delay_target_s
    least = reachable_delay_s(planner)
    if least <= target:
        return ""
    limit = planner.settings.schedule.round_limit_s
    if np.isinf(least) and limit:
        return (
            f"No client can send within the limit of {limit:g} s a round: raise "
            "schedule.round_limit_s, or the energy budget (schedule.energy_power_w)."
        )
    if np.isinf(least):
        return (
            "No client can send even at the least keep rate: raise the energy budget "
            "(schedule.energy_power_w) or lower the cost of local training."
        )
    return (
        f"The delay target of {target:g} s cannot be met: even at the least keep rate "
        f"the fastest clients take {least:.0f} s a round on average."
    )
