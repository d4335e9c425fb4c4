"""Environment time and episode identity: the one object that an environment, its wrappers and its events share."""

import time
import uuid


class EnvironmentContext:
    """Where in its life an environment is.

    Environment time counts environment steps, not the acts (sub-steps) that they consist of.

    Attributes:
        env_time: Environment steps completed in the running episode.
        env_step_incremented: Whether the latest act completed an environment step. Whoever steps the environment sets
            it to False before each act.
        episode_started: When the running episode began, in seconds of Unix time; evaluations play the same episodes
            again and again, and this tells them apart.
        is_logged: Whether what happens belongs into raw logs; not so while it only serves to estimate statistics, or
            to get back to where a run was.
    """

    def __init__(self) -> None:
        self.is_logged = True
        self.reset_episode()

    def reset_episode(self, seed: int | None = None) -> None:
        """Start an episode at time 0.

        Args:
            seed: Seed that the episode is reset with; None gives an id that is not reproducible.
        """
        self._episode_id: str | None = None
        self._seed, self.episode_started = seed, time.time()
        self.env_time = 0
        self.env_step_incremented = False

    @property
    def episode_id(self) -> str:
        """UUID of the running episode; the same seed gives the same id. Made when it is first asked for."""
        if self._episode_id is None:
            seed = self._seed
            self._episode_id = str(uuid.uuid4() if seed is None else uuid.uuid5(uuid.NAMESPACE_OID, f"maze_pl/{seed}"))
        return self._episode_id

    def increment_env_step(self) -> None:
        """Complete an environment step: called in the act that finishes it."""
        self.env_time += 1
        self.env_step_incremented = True
