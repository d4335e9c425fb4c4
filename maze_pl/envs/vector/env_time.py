"""Environment time of the environments of a vector, and checks that it advances."""

from typing import Any

from maze_pl.core.spec import Spec
from maze_pl.envs.contract import MAX_ACTS_PER_ENV_STEP, EnvContractError, name_of

_N_STANDSTILLS = 3  # episodes without an environment step: more than chance
_REMEDY = "call self.context.increment_env_step() in the act that completes an environment step"


class EnvTimes:
    """Environment times of the running episodes.

    Args:
        spec: Observation and action spaces of the agents.
        n_envs: Number of environments.

    Attributes:
        now: Time of each environment after its last act.
        began_at: Time of each environment at the start of its episode.
        n_idle: Acts of each environment since its time has advanced.
    """

    def __init__(self, spec: Spec, n_envs: int) -> None:
        self.now = [0] * n_envs
        self.began_at = [0] * n_envs
        self.n_idle = [0] * n_envs
        self._n_actors = sum(max(1, step.n_agents) for step in spec.steps.values())
        self._n_standstills: int | None = None if spec.is_flat else 0  # None once time has advanced anywhere

    def begin(self, n: int, env_time: int) -> None:
        """Start an episode of environment n.

        Args:
            n: Number of the environment.
            env_time: Its time.
        """
        self.now[n] = self.began_at[n] = env_time
        self.n_idle[n] = 0

    def wait(self, n: int, env: Any) -> None:
        """Count an act that did not advance environment time.

        Raises:
            EnvContractError: There were too many such acts in a row.
        """
        self.n_idle[n] += 1
        if self.n_idle[n] > MAX_ACTS_PER_ENV_STEP:
            fault = f"{name_of(env)} has made {MAX_ACTS_PER_ENV_STEP} acts without environment time advancing"
            raise EnvContractError(f"{fault}; {_REMEDY}")

    def end(self, n: int, env: Any) -> None:
        """Check at the end of an episode if environment time has ever advanced in any environment.

        A single episode may end before its first environment step is complete. Several episodes
        with at least as many acts as there are actors, and without any environment step, mean that
        the environment does not keep time.

        Raises:
            EnvContractError: Environment time never advances.
        """
        if self._n_standstills is None:
            return
        if any(now != then for now, then in zip(self.now, self.began_at, strict=True)):
            self._n_standstills = None
            return
        self._n_standstills += int(self.n_idle[n] >= self._n_actors)
        if self._n_standstills == _N_STANDSTILLS:
            fault = f"environment time of {name_of(env)} did not advance in {_N_STANDSTILLS} episodes"
            raise EnvContractError(f"{fault}, the last one of {self.n_idle[n]} acts; {_REMEDY}")
