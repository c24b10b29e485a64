"""Where the clients of a run are.

Records have no positions: they follow from the settings. So they are drawn only if what
else follows from them, how long the model takes to reach the clients, is what was
recorded; another version may have placed clients elsewhere.
"""

from typing import Any

import numpy as np

from dpsparfl_jax.client_values import client_values
from dpsparfl_jax.config import RunConfig
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.planning.schedule import Schedule
from dpsparfl_jax.records import RecordedRun
from dpsparfl_jax.report.traces import plain
from dpsparfl_jax.units import ratio_to_db
from dpsparfl_jax.wireless import link
from dpsparfl_jax.wireless.world import World, make_world, observe

MOST_CLIENTS = 2000  # of a map that can be read
_CHECKED_ROUNDS = 3


def cell_of(run: RecordedRun, plan: Schedule | None) -> dict[str, Any] | str:
    """Positions and mean gains for the page's script, or why there are none."""
    if plan is None:
        return "There is no map: the run has no schedule by which it could be checked."
    if len(plan.budget) > MOST_CLIENTS:
        return f"There is no map of more than {MOST_CLIENTS:,} clients."
    try:
        settings = run.settings
        world = make_world(settings.wireless, len(plan.budget), settings.seed)
        fits = _fits(world, settings, plan, run.manifest.get("num_parameters"))
    except (InputError, ValueError, TypeError):
        fits = False
    if not fits:
        return (
            "There is no map: positions that this version computes from the settings "
            "do not explain the delays that were recorded."
        )
    away = np.linalg.norm(world.clients_m - world.centre_m, axis=1)
    gain = ratio_to_db(np.mean(world.uplink_gain, axis=1))
    return {
        "clients": [plain(place, 4) for place in world.clients_m],
        "receivers": [plain(place, 4) for place in world.channels_m],
        "centre": plain(world.centre_m, 4),
        "metres": plain(np.round(away)),
        "gain_db": plain(np.round(gain, 1)),
    }


def _fits(world: World, settings: RunConfig, plan: Schedule, parameters: Any) -> bool:
    """Whether recorded downlinks are those of clients at these places."""
    radio, users = settings.wireless, len(plan.budget)
    given = client_values(radio, "downlink_gain", settings.seed, users)
    used = np.flatnonzero(plan.sends.any(axis=1))[:_CHECKED_ROUNDS]
    if parameters is None or not used.size or np.any(given > 0):
        return False  # nothing recorded depends on where clients are
    for t in used:
        conditions = observe(world, radio, settings.seed, int(t))
        delays = link.downlink_delay(
            conditions.downlink_gain, world.downlink_noise_w, int(parameters), radio
        )
        sends = plan.sends[t]
        told = (plan.delay_s - plan.training_s - plan.upload_s)[t, sends]
        rounding = 1e-9 * float(np.max(plan.delay_s[t]))
        if not np.allclose(told, delays[plan.client[t, sends]], 1e-6, rounding):
            return False
    return True
