"""The structured flexible job shop: one actor chooses the job, a second one the alternative."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.job_shop.core_environment import Instances
from maze_pl.envs.job_shop.environment import job_shop_factory
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.option_features import N_FEATURES
from maze_pl.envs.job_shop.simulation import Choices
from maze_pl.envs.job_shop.sub_step_observations import MASKS, jobs_observation, sub_step_spaces
from maze_pl.envs.structured_env import Action, Array, Dicts, Observation, ResetResult, StepParts, StructuredEnv
from maze_pl.envs.wrapper import Wrapper


class StructuredJobShopEnvironment(Wrapper):
    """Splits each step of the flat environment into two sub-steps, 0 and 1, with masks.

    Sub-step 0 observes the best option of each job and chooses a job, with reward 0. The best option
    is the allowed one that completes first. Sub-step 1 observes all options of that job, chooses one
    and completes the step. Each of the two actors is credited with half of the reward. A job that is
    not allowed shows all of its alternatives as forbidden, and the simulation replaces the choice.

    Args:
        maze_env: The flat environment, with or without wrappers; wrappers must not change the
            options.

    Raises:
        ValueError: The observations or actions differ from those of the flat job shop.

    Example:
        >>> env = structured_job_shop_factory(["random(4x3, alternatives=2)"])
        >>> observation, _ = env.reset(seed=0)
        >>> sorted(observation), observation["jobs"].shape
        (['exists', 'job_mask', 'jobs', 'summary'], (4, 15))
        >>> observation, reward, *_ = env.step({"job": 0})
        >>> sorted(observation), observation["alternatives"].shape, reward
        (['alternative_mask', 'alternatives', 'summary'], (2, 15), 0.0)
    """

    def __init__(self, maze_env: StructuredEnv) -> None:
        super().__init__(maze_env)
        flat: Any = maze_env.observation_spaces_dict.get(0, ())
        heads: Any = maze_env.action_spaces_dict.get(0, ())
        if not {"options", "option_mask", "exists", "summary"} <= set(flat) or set(heads) != {"option"}:
            wanted = "the flat job shop, with options, option_mask, exists and summary among its observations"
            raise ValueError(f"{type(self).__name__} wraps {wanted}; got {maze_env}, which shows {sorted(flat)}")
        core_env: Any = maze_env.core_env
        n = core_env.max_jobs
        k = core_env.max_alternatives
        self._shape = (n, k)
        self._observation_spaces, self._action_spaces = sub_step_spaces(flat, n, k)
        self._flat_observation: Observation | None = None
        self._job: int | None = None  # chosen in sub-step 0, None before
        self._reward = 0.0

    def step_in_parts(self, action: Action) -> StepParts:
        """Choose a job (sub-step 0) or one of its alternatives (sub-step 1)."""
        if self._flat_observation is None:
            raise ResetNeeded(f"step of {type(self).__name__} was called before reset; start an episode first")
        if self._job is None:
            self.begin_env_step()
            self._job = int(action["job"])
            observation = self._alternatives_observation(self._flat_observation, self._job)
            return observation, 0.0, False, False, {}
        option = self._job * self._shape[1] + int(action["alternative"])
        self._flat_observation, self._reward, terminated, truncated, info = yield {"option": option}
        self._job = None
        observation = self._jobs_observation(self._flat_observation)
        return observation, self._reward, terminated, truncated, info

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode with the choice of a job."""
        self._flat_observation, info = self.env.reset(seed=seed, options=options)
        self._job = None
        return self._jobs_observation(self._flat_observation), info

    def get_simulation_state(self) -> Any:
        """Return the state that rules get, in sub-step 1 with options of the chosen job only."""
        state: JobShopMazeState = self.env.get_simulation_state()
        return state if self._job is None else state.of_job(self._job)

    def _jobs_observation(self, flat: Observation) -> Observation:
        """Observation of sub-step 0."""
        return jobs_observation(flat, *self._shape)

    def _alternatives_observation(self, flat: Observation, job: int) -> Observation:
        """Observation of sub-step 1; zeros for a job that does not exist."""
        n, k = self._shape
        alternatives = np.zeros((k, N_FEATURES), np.float32)
        mask = np.zeros(k, np.float32)
        if 0 <= job < n:
            alternatives[...] = flat["options"][job * k : (job + 1) * k]
            mask[...] = flat["option_mask"][job * k : (job + 1) * k]
        return {"alternatives": alternatives, "alternative_mask": mask, "summary": flat["summary"].copy()}

    def actor_id(self) -> ActorID:
        """Agent 0 of sub-step 0 or 1."""
        return ActorID(0 if self._job is None else 1, 0)

    @property
    def agent_counts_dict(self) -> Mapping[StepKey, int]:
        """Number of agents of each sub-step: one in both."""
        return {0: 1, 1: 1}

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """The masks of both sub-steps."""
        return dict(MASKS)

    def get_actor_rewards(self) -> Array:
        """Rewards of the two actors: half of the finished step's reward each."""
        return np.full(2, self._reward / 2)

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action; without the action, only sub-step 0 is converted."""
        flat = self.env.get_observation_and_action_dicts(maze_state, maze_action, first_step_in_episode)
        flat_observations, flat_actions = flat
        observations: dict[StepKey, Observation] | None = None
        actions: dict[StepKey, Action] | None = None
        if flat_observations is not None:
            observations = {0: self._jobs_observation(flat_observations[0])}
        if flat_actions is not None:
            job, alternative = divmod(int(flat_actions[0]["option"]), self._shape[1])
            actions = {0: {"job": job}, 1: {"alternative": alternative}}
            if observations is not None and flat_observations is not None:
                observations[1] = self._alternatives_observation(flat_observations[0], job)
        return observations, actions


def structured_job_shop_factory(
    instances: Instances,
    max_jobs: int | None = None,
    max_alternatives: int | None = None,
    choices: Choices = "active",
    reward_aggregator: RewardAggregatorInterface | None = None,
) -> Wrapper:
    """Make the structured environment; see `job_shop_factory`."""
    flat_env = job_shop_factory(instances, max_jobs, max_alternatives, choices, reward_aggregator)
    return StructuredJobShopEnvironment(flat_env)
