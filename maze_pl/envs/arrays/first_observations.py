"""Full checks of the first observations of array environments."""

from __future__ import annotations

from typing import Final

import numpy as np

from maze_pl.core.spec import Spec
from maze_pl.envs.arrays.array_checks import ArrayChecks, as_numpy, slots_for_checks
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.arrays.array_step import ArrayStep
from maze_pl.envs.structured_env import Array

_N_CHECKED: Final = 2  # results with observations of a sub-step, as in single episodes


class FirstObservations:
    """Checks that the first observations of each sub-step lie within their spaces, and that none is additional.

    Args:
        env: The environment without wrappers, allocated.
    """

    def __init__(self, env: ArrayEnv) -> None:
        spec = Spec.of(env, slots_for_checks(env))
        self._n_envs = env.n_envs
        self._checks = ArrayChecks(spec, env.n_envs, env.first_env_index, type(env).__name__, True)
        self._keys = spec.step_keys
        self._remaining = dict.fromkeys(spec.step_keys, _N_CHECKED)

    def check(self, result: ArrayStep, which: Array | slice) -> None:
        """Check the observations of the next actors, unless enough have been checked.

        Args:
            result: Result of a reset or a step that was found to be well-formed.
            which: The environments that were reset or stepped.

        Raises:
            EnvContractError: Observations are missing, malformed, additional, or outside of their space.
        """
        numbers = np.arange(self._n_envs)[which]
        places = np.zeros(self._n_envs, np.int64) if result.next_key is None else as_numpy(result.next_key)
        for place, key in enumerate(self._keys):
            observing = numbers[places[numbers] == place]
            if key in self._remaining and len(observing):
                self._checks.observation_of(result, key, observing)
                self._remaining[key] -= 1
                if not self._remaining[key]:
                    del self._remaining[key]

    @property
    def is_done(self) -> bool:
        """True if no further observations are to be checked."""
        return not self._remaining
