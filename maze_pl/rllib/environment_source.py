"""Environments of a run, as RLlib's workers make them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.core.spec import Spec
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.rllib.training_env import TrainingEnv


@dataclass(frozen=True)
class EnvironmentSource:
    """Description of the environments of a run.

    Attributes:
        factory: Makes an environment with its wrappers.
        spec: Observations and actions of the agents.
        seed: Seed of the run.
        wrapper_statistics: Statistics of the wrappers, by name.
    """

    factory: Callable[[], LogStatsWrapper]
    spec: Spec
    seed: int
    wrapper_statistics: Mapping[str, Any]


class EnvironmentMaker:
    """Makes the environments of a worker of RLlib.

    Args:
        source: The environments.
        first_episode: Number of the first episode of each environment.
        n_per_worker: Environments of each worker.
    """

    def __init__(self, source: EnvironmentSource, first_episode: int, n_per_worker: int) -> None:
        # the factory may be a lambda or a local class
        self._source = cloudpickle.dumps(source)
        self._first_episode = first_episode
        self._n_per_worker = n_per_worker
        self._n_made = 0

    def __call__(self, context: Any) -> Any:
        """Make the next environment of the worker.

        Args:
            context: RLlib's `EnvContext` with the number of the worker, 0 for this process.
        """
        from maze_pl.rllib.flat_env import FlatEnv
        from maze_pl.rllib.multi_agent_env import StructuredMultiAgentEnv

        source: EnvironmentSource = cloudpickle.loads(self._source)
        worker = max(0, context.worker_index - 1)
        env_index = worker * self._n_per_worker + self._n_made % self._n_per_worker
        self._n_made += 1
        options = (source.seed, env_index, self._first_episode, source.wrapper_statistics)
        env = TrainingEnv(source.factory, source.spec, *options)
        return FlatEnv(env) if source.spec.is_flat else StructuredMultiAgentEnv(env)
