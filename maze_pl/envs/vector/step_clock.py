"""Record of the running step or reset, from which another process detects a hanging environment."""

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

from maze_pl.envs.structured_env import Action, Array, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import Wrapper


class StepClock:
    """Record of the running step or reset, in memory that is shared with a supervising process.

    Args:
        fields: [4] float64, in shared memory: the start of the step or reset (seconds of the
            machine's monotonic clock, infinite between steps), the number of the environment, the
            index of its episode (`NO_EPISODE` while wrappers estimate their statistics, `MAKING`
            while the environment is made), and 1 for a reset.
    """

    N_FIELDS = 4
    NO_EPISODE = -1
    MAKING = -2

    def __init__(self, fields: Array) -> None:
        self._fields: Any = memoryview(cast(Any, fields))  # faster to write to than the array

    def begin(self, env: int, episode: int, is_reset: bool = False) -> None:
        """Record the start of a step or reset."""
        fields = self._fields
        fields[1] = env
        fields[2] = episode
        fields[3] = is_reset
        fields[0] = time.monotonic()

    def end(self) -> None:
        """Record the end of the step or reset."""
        self._fields[0] = math.inf

    def timed(self, envs: Iterable[int], episodes: Sequence[int]) -> Iterator[int]:
        """Yield the numbers of environments, and record the step of each one.

        Args:
            envs: The numbers.
            episodes: Index of the running episode of each environment.
        """
        for n in envs:
            self.begin(n, episodes[n])
            yield n
            self.end()

    def read(self) -> tuple[float, int, int, bool]:
        """Return the start, environment, episode, and True for a reset."""
        began, env, episode, is_reset = self._fields.tolist()
        return began, int(env), int(episode), bool(is_reset)


class TimedWrapper(Wrapper):
    """Records steps and resets of the first environment while wrappers estimate statistics."""

    def __init__(self, env: StructuredEnv, clock: StepClock) -> None:
        super().__init__(env)
        self._clock = clock

    def step(self, action: Action) -> StepResult:
        """Step, and record the start and end in the clock."""
        self._clock.begin(0, StepClock.NO_EPISODE)
        result = self.env.step(action)
        self._clock.end()
        return result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Reset, and record the start and end in the clock."""
        self._clock.begin(0, StepClock.NO_EPISODE, is_reset=True)
        result = self.env.reset(seed=seed, options=options)
        self._clock.end()
        return result
