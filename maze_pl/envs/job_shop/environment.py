"""The flat job shop: one actor chooses the operation and its machine together."""

from maze_pl.envs.core_env import (
    ActionConversionInterface,
    CoreEnv,
    ObservationConversionInterface,
    RewardAggregatorInterface,
)
from maze_pl.envs.job_shop.action_conversion import ActionConversion
from maze_pl.envs.job_shop.core_environment import Instances, JobShopCoreEnvironment
from maze_pl.envs.job_shop.observation_conversion import ObservationConversion
from maze_pl.envs.job_shop.simulation import Choices
from maze_pl.envs.maze_env import MazeEnv


class JobShopEnvironment(MazeEnv):
    """The job shop with one actor.

    Args:
        core_env: The simulation.
        action_conversion: Conversion of actions.
        observation_conversion: Conversion of states.
    """

    heuristic_policy = "maze_pl.envs.job_shop.dispatching_rule_policy.DispatchingRulePolicy"

    def __init__(
        self,
        core_env: CoreEnv,
        action_conversion: ActionConversionInterface,
        observation_conversion: ObservationConversionInterface,
    ) -> None:
        super().__init__(core_env, {0: action_conversion}, {0: observation_conversion})


def job_shop_factory(
    instances: Instances,
    max_jobs: int | None = None,
    max_alternatives: int | None = None,
    choices: Choices = "active",
    reward_aggregator: RewardAggregatorInterface | None = None,
) -> MazeEnv:
    """Make the flat environment; with one alternative per operation, an action is a job.

    Args:
        instances: Names of published instances (`ta01`, spans such as `ta01-ta10`), random ones
            (`random(15x15)`), or files; one is drawn for each episode, with equal probabilities.
        max_jobs: Maximum number of jobs; the largest number of `instances` if None.
        max_alternatives: Maximum number of alternatives of an operation; the largest number of
            `instances` if None.
        choices: Options that may be chosen: "active", "non_delay" or "all", see
            `JobShopSimulation`.
        reward_aggregator: Computes rewards; `LowerBoundRewardAggregator()` if None.
    """
    core_env = JobShopCoreEnvironment(instances, max_jobs, max_alternatives, choices, reward_aggregator)
    n, k = core_env.max_jobs, core_env.max_alternatives
    return JobShopEnvironment(core_env, ActionConversion(n, k), ObservationConversion(n, k))
