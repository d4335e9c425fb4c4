"""The structured flexible job shop: one actor chooses the job, a second one the alternative."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.core_env import RewardAggregatorInterface
from maze_pl.envs.job_shop.core_environment import Instances
from maze_pl.envs.job_shop.environment import job_shop_factory
from maze_pl.envs.job_shop.objects import JobShopMazeState
from maze_pl.envs.job_shop.option_features import N_FEATURES
from maze_pl.envs.job_shop.simulation import Choices
from maze_pl.envs.job_shop.sub_step_observations import MASKS, jobs_observation, sub_step_spaces
from maze_pl.envs.structured_env import Action, Observation, StructuredEnv
from maze_pl.envs.two_decisions_wrapper import TwoDecisionsWrapper
from maze_pl.envs.wrapper import Wrapper


class StructuredJobShopEnvironment(TwoDecisionsWrapper):
    """Splits each step of the flat environment into two sub-steps, 0 and 1, with masks.

    Sub-step 0 observes the best option of each job and chooses a job, with reward 0. The best
    option is the allowed one that completes first. Sub-step 1 observes all options of that job,
    chooses one and completes the step. Each of the two actors is credited with half of the reward.
    A job that is not allowed shows all of its alternatives as forbidden, and the simulation replaces the choice.

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

    def get_simulation_state(self) -> Any:
        """Return the state that rules get, in sub-step 1 with options of the chosen job only."""
        state: JobShopMazeState = self.env.get_simulation_state()
        return state if self.first_decision is None else state.of_job(int(self.first_decision["job"]))

    def first_observation(self, flat: Observation) -> Observation:
        """Show each job with its best option."""
        return jobs_observation(flat, *self._shape)

    def second_observation(self, flat: Observation, first: Action) -> Observation:
        """Show the alternatives of the chosen job; zeros for a job that does not exist."""
        n, k = self._shape
        job = int(first["job"])
        alternatives = np.zeros((k, N_FEATURES), np.float32)
        mask = np.zeros(k, np.float32)
        if 0 <= job < n:
            alternatives[...] = flat["options"][job * k : (job + 1) * k]
            mask[...] = flat["option_mask"][job * k : (job + 1) * k]
        return {"alternatives": alternatives, "alternative_mask": mask, "summary": flat["summary"].copy()}

    def joined_action(self, first: Action, second: Action) -> Action:
        """Return the option of a job and an alternative."""
        return {"option": int(first["job"]) * self._shape[1] + int(second["alternative"])}

    def split_action(self, flat: Action) -> tuple[Action, Action]:
        """Return the job and the alternative of an option."""
        job, alternative = divmod(int(flat["option"]), self._shape[1])
        return {"job": job}, {"alternative": alternative}

    @property
    def action_masks_dict(self) -> Mapping[StepKey, Mapping[str, str]]:
        """The masks of both sub-steps."""
        return dict(MASKS)


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
