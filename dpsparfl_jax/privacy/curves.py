"""Epsilon over participations: computed once a mechanism, looked up after that.

A curve is an array: entry k is epsilon after k participations (entry 0 is what setup
costs). Curves are kept in memory and, if a folder is given, in a small JSON file each,
whose name is a hash of every input that matters.
"""

import dataclasses
import hashlib
import json
import logging
import os
import pathlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsparfl_jax import storage
from dpsparfl_jax.errors import InputError
from dpsparfl_jax.privacy.accountants import Accountant
from dpsparfl_jax.privacy.mechanism import Mechanism

Curve = NDArray[np.float64]
_CHUNK = 64  # participations computed before looking whether the curve is long enough
_NOISE = (1e-3, 1e5)  # multipliers: beyond them accountants leave float64
_LOG = logging.getLogger(__name__)


def affordable(curve: Curve, budget: float, limit: int) -> int:
    """Participations T-hat within `budget`, at most `limit`; 0 if not even one.

    Paper: section IV, T-hat.  Departs: BUILD_NOTES "affordable participations".
    """
    return int(affordable_each(curve, budget, limit))


def affordable_each(curve: Curve, budgets: ArrayLike, limit: int) -> NDArray[np.int64]:
    """`affordable` of every one of these budgets."""
    return np.clip(np.searchsorted(curve, budgets, side="right") - 1, 0, limit)


def check_noise(mechanism: Mechanism) -> None:
    """Refuses noise for which accountants leave the range of their numbers."""
    low, high = _NOISE
    for release in filter(None, (mechanism.participation, mechanism.setup)):
        if not low <= release.noise_multiplier <= high:
            raise InputError(
                f"the noise multiplier must lie between {low:g} and {high:g} to be "
                f"accounted for, but is {release.noise_multiplier:g}."
            )


class CurveStore:
    """Curves of one accountant, in memory and optionally in a folder.

    A folder that cannot be used, or a file in it that is damaged, costs time and a line
    in the log, never a result.
    """

    def __init__(self, accountant: Accountant, folder: str | os.PathLike[str] = ""):
        """Keeps curves in `folder` (made when needed); empty keeps them nowhere."""
        self.accountant = accountant
        self._folder = pathlib.Path(os.path.expanduser(folder)) if folder else None
        self._curves: dict[Mechanism, Curve] = {}

    def curve(self, mechanism: Mechanism, *, max_epsilon: float, limit: int) -> Curve:
        """Epsilon after 0, 1, 2, ... participations.

        Goes on until an entry exceeds `max_epsilon` or entry `limit` is there; may be
        longer where more is already known.
        """
        if not max_epsilon >= 0 or limit < 1:
            raise InputError("a curve needs an epsilon >= 0 and a limit >= 1.")
        check_noise(mechanism)
        kept = self._curves.get(mechanism)
        if kept is None:
            kept = self._read(mechanism)
        curve = self._extend(mechanism, kept, max_epsilon, limit)
        if len(curve) > len(kept):
            self._write(mechanism, curve)
        self._curves[mechanism] = curve
        return curve

    def _extend(
        self, mechanism: Mechanism, curve: Curve, max_epsilon: float, limit: int
    ) -> Curve:
        while len(curve) <= limit and not (len(curve) and curve[-1] > max_epsilon):
            counts = np.arange(len(curve), min(len(curve) + _CHUNK, limit + 1))
            more = self.accountant.epsilon(mechanism, counts)
            # Rounding must not make a curve fall: the larger value is a bound as well.
            curve = np.maximum.accumulate(np.concatenate([curve, more]))
        return curve

    def _key(self, mechanism: Mechanism) -> dict[str, object]:
        """Every input that matters."""
        return {
            "accountant": self.accountant.name,
            "version": self.accountant.version,
            "mechanism": dataclasses.asdict(mechanism),
        }

    def _path(self, mechanism: Mechanism) -> pathlib.Path:
        assert self._folder is not None
        text = json.dumps(self._key(mechanism), sort_keys=True)
        return self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def _read(self, mechanism: Mechanism) -> Curve:
        nothing = np.zeros(0)
        if self._folder is None:
            return nothing
        path = self._path(mechanism)
        try:
            text = path.read_text()
        except FileNotFoundError:
            return nothing
        except (OSError, ValueError) as reason:
            _LOG.warning("%s cannot be read (%s); computing it again.", path, reason)
            return nothing
        try:
            content = json.loads(text)
            curve = np.array(content["epsilon"], np.float64)
            good = (
                content["key"] == self._key(mechanism)
                and content["sum"] == _checksum(curve)
                and curve.ndim == 1
            )
        except (ValueError, KeyError, TypeError):
            good = False
        if not good:
            _LOG.warning("%s is damaged; computing it again.", path)
            return nothing
        return curve

    def _write(self, mechanism: Mechanism, curve: Curve) -> None:
        """Replaces the file as a whole, so that no reader sees half of it."""
        if self._folder is None:
            return
        content = {
            "key": self._key(mechanism),
            "sum": _checksum(curve),
            "epsilon": curve.tolist(),
        }
        path = self._path(mechanism)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with storage.replacing(path) as part:
                part.write_text(json.dumps(content))
        except (OSError, ValueError) as reason:
            _LOG.warning(
                "epsilon curves are not kept on disk (%s): they will be computed anew "
                "next time.",
                reason,
            )
            self._folder = None


def _checksum(curve: Curve) -> str:
    return hashlib.sha256(curve.tobytes()).hexdigest()[:32]
