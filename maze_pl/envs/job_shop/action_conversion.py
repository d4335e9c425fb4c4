"""Actions of the flat job shop."""

from collections.abc import Mapping

from gymnasium import spaces

from maze_pl.envs.core_env import ActionConversionInterface
from maze_pl.envs.job_shop.objects import JobShopMazeAction, JobShopMazeState
from maze_pl.envs.structured_env import Action


class ActionConversion(ActionConversionInterface):
    """Actions of one masked choice: the option j * K + k, alternative k of job j.

    Args:
        max_jobs: Maximum number of jobs, N.
        max_alternatives: Maximum number of alternatives of an operation, K; with 1, an option is a job.
    """

    def __init__(self, max_jobs: int, max_alternatives: int) -> None:
        self.max_jobs = max_jobs
        self.max_alternatives = max_alternatives

    @property
    def action_masks(self) -> Mapping[str, str]:
        """`option_mask` allows what the simulation allows."""
        return {"option": "option_mask"}

    def space(self) -> spaces.Dict:
        """`option`, discrete, of N * K options."""
        return spaces.Dict(option=spaces.Discrete(self.max_jobs * self.max_alternatives))

    def space_to_maze(self, action: Action, maze_state: JobShopMazeState) -> JobShopMazeAction:
        """Convert an action to the simulation's action."""
        job, alternative = divmod(int(action["option"]), self.max_alternatives)
        return JobShopMazeAction(job, alternative)

    def maze_to_space(self, maze_action: JobShopMazeAction) -> Action:
        """Convert the simulation's action to an agent's action."""
        return {"option": maze_action.job * self.max_alternatives + maze_action.alternative}
