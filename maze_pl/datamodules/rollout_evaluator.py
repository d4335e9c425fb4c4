"""Options of an evaluation: number of episodes, sampling of actions, rendering, environment and wrappers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle  # type: ignore[import-untyped]

from maze_pl.core.checks import MOST_EPISODES, check_count, check_room_for_environments
from maze_pl.datamodules.environment_maker import Env, require_callables

_BY_VALUE: Final = ("env", "wrappers")


@dataclass(frozen=True)
class RolloutEvaluator:
    """Plays whole episodes in separate environments, with the same seeds every time but in the final evaluation.

    Episodes are played to their end: add a `TimeLimitWrapper` if episodes may never end. Each begins
    with wrappers in their first state and with the current wrapper statistics, so that it does not
    depend on earlier evaluations.

    Args:
        n_episodes: Number of episodes, over all ranks.
        deterministic: Whether the policy takes its most likely action instead of sampling.
        n_envs: Number of episodes that one worker of the data module's engine plays in parallel, as
            a group; 0 means 8. Results depend on this, but not on the number of workers; several
            workers are useful if there are several groups.
        render: Whether to write each episode as a gif to `renderings/<evaluator>/` of the run
            directory (of the current folder in `maze-pl validate`). The next evaluation replaces
            it, as the seeds are the same; the final one adds others. A gymnasium environment must be made with
            render_mode='rgb_array' (`--data.env.dict_kwargs.render_mode rgb_array`, or
            `--data.evaluators.NAME.env.dict_kwargs...` if the evaluator has another one), a simulation
            needs a renderer. Rendering takes much longer than playing.
        env: Builds one environment of this evaluator, such as one with held-out instances; None means
            the environment of training. Its actions, agents, and shapes and kinds of observations must
            be those of training, and integers must not leave the bounds of training.
        wrappers: Callables that wrap the environment in this evaluator, the first one innermost; None
            means those of training, an empty list no wrapper. Statistics are those that training has
            for the same classes: others cannot be added, and those that change observations cannot
            be left out.
    """

    n_episodes: int = 8
    deterministic: bool = True
    n_envs: int = 0
    render: bool = False
    env: Callable[[], Env] | None = None
    wrappers: list[Callable[[Any], Env]] | None = None

    def __post_init__(self) -> None:
        require_callables(self.env, self.wrappers, " of an evaluator")
        check_count("n_episodes", self.n_episodes, 1, " of an evaluator", MOST_EPISODES)
        check_count("n_envs", self.n_envs, 0, " of an evaluator")
        check_room_for_environments("n_envs", min(self.n_envs, self.n_episodes), " of an evaluator")

    @property
    def has_env_of_training(self) -> bool:
        """True if it plays the environment of training, with the same wrappers."""
        return self.env is None and self.wrappers is None

    @property
    def groups(self) -> list[range]:
        """Indices of the episodes of each group."""
        size = self.n_envs or 8
        return [range(first, min(first + size, self.n_episodes)) for first in range(0, self.n_episodes, size)]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for spawned processes, also if environments are made by lambdas."""
        return {**self.__dict__, **{name: cloudpickle.dumps(vars(self)[name]) for name in _BY_VALUE}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, **{name: cloudpickle.loads(state[name]) for name in _BY_VALUE})


def checked_evaluators(
    evaluators: Mapping[str, RolloutEvaluator] | None, *, has_env: bool
) -> dict[str, RolloutEvaluator]:
    """Return the evaluators of a data module, by name.

    Args:
        evaluators: The evaluators; None means one named `eval`, or none without an environment.
        has_env: Whether the data module has an environment.

    Raises:
        TypeError: A name is not a text, or an evaluator is something else.
        ValueError: There is no environment to evaluate in, or a name is taken.
    """
    if evaluators is None:
        return {"eval": RolloutEvaluator()} if has_env else {}
    if not isinstance(evaluators, Mapping):
        example = "evaluators={'eval': RolloutEvaluator(n_episodes=20)}, for example"
        raise TypeError(f"evaluators={evaluators!r} must be a dict of evaluators by name; write {example}")
    for name, evaluator in evaluators.items():
        if not isinstance(name, str):
            raise TypeError(f"evaluators are named by text, not by {name!r}; write {str(name)!r} in quotes")
        if not isinstance(evaluator, RolloutEvaluator):
            raise TypeError(f"evaluators[{name!r}]={evaluator!r} must be a RolloutEvaluator")
    if evaluators and not has_env:
        remedy = "give one as env, or evaluators=null"
        raise ValueError(f"evaluators={list(evaluators)} need an environment, but there is none: {remedy}")
    for name in evaluators:
        if name == "train" or name.startswith("train_"):
            raise ValueError(f"no evaluator can be named {name!r}, as statistics of training are: choose another name")
        if "/" in name:
            fault = f"the evaluator {name!r} cannot have a slash in its name, which separates it from a value"
            raise ValueError(f"{fault}, as in eval/return: use a name such as {name.replace('/', '_')}")
    return dict(evaluators)
