"""Keeps what an environment shows, and compares it with what it shows when the same is done again."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import EnvContractError, check_observation, check_reset, check_step
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.wrapper import Wrapper, wrappers_of


class Act(NamedTuple):
    """What an environment showed after a reset or a step.

    Attributes:
        actor: Who acts next.
        reward: What came of the action.
        terminated: Whether the episode terminated.
        truncated: Whether it was cut off.
        env_time: Environment steps since it began.
        returned: The observation itself.
        kept: Its arrays as they were when it was returned.
        action: What led here, None after a reset.
        seed: What the environment was reset with.
        seconds: How long the step took.
    """

    actor: ActorID
    reward: float
    terminated: bool
    truncated: bool
    env_time: int
    returned: Observation
    kept: Observation
    action: Action | None
    seed: int | None = None
    seconds: float = 0.0


class Recorder(Wrapper):
    """Keeps all that an environment shows, and refuses what nobody can act on.

    Args:
        env: The environment.
        masks: Action head -> observation, beyond the masks that the environment declares.
        before: Told each action before it is taken.

    Attributes:
        acts: All resets and steps.
        fired: Topic and event of all that happened.
        sub_steps: What is seen and done in each sub-step.
    """

    def __init__(
        self, env: StructuredEnv, masks: Mapping[str, str], before: Callable[[Action], None] | None = None
    ) -> None:
        super().__init__(env)
        spec = Spec.of(env, {key: 1 for key, count in env.agent_counts_dict.items() if count < 0}, masks)
        spec.to_dict()  # refuses what checkpoints cannot hold
        self.sub_steps, self._before = spec.steps, before
        self.acts: list[Act] = []
        self.fired: set[tuple[type, Any]] = set()

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """For each sub-step, action head -> observation that masks it."""
        return {key: step.masks for key, step in self.sub_steps.items()}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode."""
        result = self.env.reset(seed=seed, options=options)
        check_reset(result, self.env)
        self._keep((result[0], 0.0, False, False), None, seed=seed)
        return result

    def step(self, action: Action) -> Any:
        """Perform an act."""
        if self._before is not None:
            self._before(action)
        began = time.perf_counter()
        result = self.env.step(action)
        seconds = time.perf_counter() - began
        check_step(result, self.env)
        self._keep(result, action, seconds=seconds)
        return result

    def _keep(self, result: Any, action: Action | None, **further: Any) -> None:
        observation, reward, terminated, truncated, *_ = result
        actor = self.env.actor_id()
        if actor.step_key not in self.sub_steps:
            raise EnvContractError(f"actor_id() names sub-step {actor.step_key!r}; declared are {list(self.sub_steps)}")
        step = self.sub_steps[actor.step_key]
        what = f"the observation of sub-step {actor.step_key!r} by {self.makers(actor.step_key)}"
        check_observation(observation, step.observation_space, what)
        for head, name in step.masks.items():
            space = step.action_space.spaces[head]
            ends = np.cumsum(space.nvec)[:-1].tolist() if isinstance(space, spaces.MultiDiscrete) else []
            is_free = isinstance(space, spaces.MultiBinary) or terminated or truncated
            if not is_free and not all(part.any() for part in np.split(observation[name], ends)):
                raise EnvContractError(f"mask {name!r} in {what} allows nothing for {head!r} (act {len(self.acts)})")
        kept = {name: np.array(value) for name, value in observation.items()}
        outcome = float(reward), bool(terminated), bool(truncated), self.env.get_env_time()
        self.acts.append(Act(actor, *outcome, observation, kept, action, **further))
        self.fired |= {(record.topic, record.event) for record in self.env.get_step_events()}

    def makers(self, key: StepKey) -> str:
        """Who makes the observations of a sub-step: its conversion, and wrappers."""
        inner: Any = self.unwrapped
        makers = [inner.observation_conversion_dict.get(key), *list(wrappers_of(self.env))[:0:-1]]
        return ", ".join(type(maker).__name__ for maker in makers if maker is not None)

    def seconds(self) -> float:
        """How long a step took on average."""
        return float(np.mean([act.seconds for act in self.acts if act.action is not None]))

    def repeat(self, acts: Sequence[Act]) -> str | None:
        """Do again what was done, without keeping it, and say what is not as it was."""
        for act in acts:
            if act.action is None:
                self.reset(seed=act.seed)
            else:
                self.step(act.action)
            again = self.acts.pop()
            pairs = dict(zip(Act._fields[:5], zip(act[:5], again[:5], strict=True), strict=True))
            pairs |= {f"observation {name!r}": (array, again.kept.get(name)) for name, array in act.kept.items()}
            different = next((name for name, pair in pairs.items() if not same(*pair)), None)
            if different is not None:
                return f"another {different} at environment step {act.env_time}"
        return None


def same(one: Any, other: Any) -> bool:
    """Whether two arrays or numbers are equal, NaN being equal to itself."""
    one, other = np.asarray(one), np.asarray(other)
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f" == other.dtype.kind)
