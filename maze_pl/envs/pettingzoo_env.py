"""PettingZoo environments as structured environments: agents are actors, and policies are sub-steps.

Both interfaces of PettingZoo are supported: a parallel environment is played agent by agent on the same state, through
PettingZoo's conversion.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gymnasium import spaces

from maze_pl.core.actor_id import StepKey
from maze_pl.envs.contract import name_of
from maze_pl.envs.maze_env import MazeEnv
from maze_pl.envs.pettingzoo_action_conversion import PettingZooActionConversion
from maze_pl.envs.pettingzoo_core_env import Agent, PettingZooCoreEnv, Roles
from maze_pl.envs.pettingzoo_observation_conversion import MASK, PettingZooObservationConversion
from maze_pl.envs.structured_env import Action, Dicts, Observation, ResetResult, StepParts, StepResult

_FIRST_LOOKS = 20


class PettingZooMazeEnv(MazeEnv):
    """A PettingZoo environment as a structured environment, with a sub-step for each policy.

    Agents of one policy share its networks, and are told apart by their ids. Observations and
    actions are named as those of `GymMazeEnv`; an `action_mask` in the observations of a policy
    with `Discrete` actions is its mask. Masks in infos are not read, with a warning.

    Args:
        env: The environment, of either interface (AEC or parallel).
        policies: Agent, or a pattern of agents such as `good_*`, -> step key of its policy. By
            default agents whose names only differ in the number at the end share a policy.
        team_reward: Whether all agents learn from the sum of their rewards, for agents that
            cooperate; otherwise each learns from its own.

    Raises:
        TypeError: `env` is not a PettingZoo environment, or a space is not supported.
        ValueError: `policies` does not fit the agents, or agents of one policy differ in their
            spaces.

    Example:
        >>> import pettingzoo
        >>> env = PettingZooMazeEnv(pettingzoo.make("aec", "classic/tictactoe-v3"))
        >>> observation, info = env.reset(seed=1)
        >>> sorted(observation), env.actor_id()
        (['action_mask', 'observation'], ActorID(step_key='player', agent_id=0))
    """

    core_env: PettingZooCoreEnv

    def __init__(self, env: Any, policies: Mapping[Agent, StepKey] | None = None, team_reward: bool = False) -> None:
        env = _as_aec(env)
        roles = Roles.of(list(env.possible_agents), policies)
        observation_conversions: dict[StepKey, PettingZooObservationConversion] = {}
        action_conversions: dict[StepKey, PettingZooActionConversion] = {}
        for key in roles.counts():
            agents = [agent for agent, own in roles.step_keys.items() if own == key]
            observation_space, action_space = _common_spaces(env, key, agents)
            observation_conversions[key] = PettingZooObservationConversion(observation_space)
            has_mask = _is_mask(observation_conversions[key].space(), action_space)
            action_conversions[key] = PettingZooActionConversion(action_space, has_mask)
        core_env = PettingZooCoreEnv(env, roles, team_reward)
        super().__init__(core_env, action_conversions, observation_conversions)
        self._looks_for_masks = _FIRST_LOOKS  # that are left, after `reset` and after steps
        self.metadata = env.metadata
        self.render_mode = getattr(env.unwrapped, "render_mode", None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode; the options go to the PettingZoo environment."""
        self.core_env.reset_options = options
        result = super().reset(seed=seed)
        if self._looks_for_masks:
            self._look_for_masks()
        return result

    def step(self, action: Action) -> StepResult:
        """Let the agent whose turn it is act."""
        result = super().step(action)
        if self._looks_for_masks:
            self._look_for_masks()
        return result

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform `step` as a generator, in deployments, whose simulations have no infos to look at."""
        return super().step_in_parts(action)

    def _look_for_masks(self) -> None:
        """Warn once of masks that are not read, as they are in infos instead of observations."""
        self._looks_for_masks -= 1
        if not isinstance(self.core_env, PettingZooCoreEnv):  # in a deployment
            return
        env = self.core_env.env
        for agent, info in env.infos.items():
            if MASK in info and not self.action_masks_dict[self.core_env.step_key_of(agent)]:
                self._looks_for_masks = 0
                fault = f"{name_of(self)} has the {MASK} of {agent!r} in infos, where it is not read"
                space = env.action_space(agent)
                remedy = "add it to the observations of this agent"
                if not isinstance(space, spaces.Discrete):
                    remedy = "masks are for Discrete actions only, "
                    remedy += f"and those of this agent are {space}"
                warnings.warn(f"{fault}; {remedy}", stacklevel=3)
                return

    def render(self) -> Any:
        """Render the environment in the `render_mode` that it was made with."""
        return self.core_env.env.render()

    def get_observation_and_action_dicts(self, maze_state: Any, maze_action: Any, first_step_in_episode: bool) -> Dicts:
        """Convert a recorded state and action to those of the agent whose turn it was.

        Raises:
            ValueError: There is no state, which alone tells the acting agent.
        """
        if maze_state is None:
            raise ValueError("an action alone does not tell which agent took it; give the state, too")
        key = self.core_env.step_key_of(maze_state["agent"])
        observations: dict[StepKey, Observation] = {
            key: self.observation_conversion_dict[key].maze_to_space(maze_state)
        }
        actions: dict[StepKey, Action] | None = None
        if maze_action is not None:
            actions = {key: self.action_conversion_dict[key].maze_to_space(maze_action)}
        return observations, actions


def make_pettingzoo_env(
    name: str,
    policies: dict[str, StepKey] | None = None,
    team_reward: bool = False,
    **kwargs: Any,
) -> PettingZooMazeEnv:
    """Make a PettingZoo environment by name, for configuration files.

    Args:
        name: Name of a registered environment, such as `classic/tictactoe-v3`, or the module of
            another package, such as `mpe2.simple_spread_v3`.
        policies: See `PettingZooMazeEnv`.
        team_reward: See `PettingZooMazeEnv`.
        kwargs: Passed to `pettingzoo.make`, or to the `env` function of the module.

    Raises:
        ImportError: PettingZoo, the module, or a package that it needs is not installed.
        ValueError: PettingZoo does not know the name, it is neither that of an environment nor of a
            module in a package, or the module does not make environments.
    """
    if "/" not in name and "." not in name:  # of a module that `maze_pl.config.trust` does not find
        expected = "expected a registered one such as classic/tictactoe-v3, or a module such as mpe2.simple_spread_v3"
        raise ValueError(f"{name!r} does not name a PettingZoo environment: {expected}")
    try:
        if "/" in name:
            return PettingZooMazeEnv(_make_registered(name, kwargs), policies, team_reward)
        module = import_module(name)
    except ImportError as error:
        remedy = 'pip install "maze-pl[pettingzoo]", and the requirements of the environment'
        raise ImportError(f"the PettingZoo environment {name!r} cannot be imported ({error}): {remedy}") from error
    if not callable(make_env := getattr(module, "env", None)):
        raise ValueError(f"{name} has no function env, as the modules of PettingZoo environments have")
    return PettingZooMazeEnv(make_env(**kwargs), policies, team_reward)


def _make_registered(name: str, kwargs: dict[str, Any]) -> Any:
    """Make an environment of PettingZoo's registry.

    Raises:
        ImportError: A package that the environment needs is not installed.
        ValueError: The registry has no such environment.
    """
    from pettingzoo import make  # type: ignore[import-untyped]
    from pettingzoo.env_registry.exceptions import PettingZooRegistryError  # type: ignore[import-untyped]

    try:
        return make("aec", name, **kwargs)
    except PettingZooRegistryError as error:
        if isinstance(error.__cause__, ImportError):
            raise ImportError(str(error)) from error
        raise ValueError(f"PettingZoo has no environment {name!r}: {error}") from error


def _as_aec(env: Any) -> Any:
    """Return an environment in which agents act one after the other.

    Raises:
        ImportError: PettingZoo is not installed.
        TypeError: `env` is not a PettingZoo environment.
    """
    try:
        from pettingzoo import AECEnv, ParallelEnv
        from pettingzoo.utils.conversions import parallel_to_aec  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError('PettingZoo is not installed: pip install "maze-pl[pettingzoo]"') from error
    if isinstance(env, ParallelEnv):
        env = parallel_to_aec(env)
    if not isinstance(env, AECEnv):
        raise TypeError(f"expected a PettingZoo environment (AECEnv or ParallelEnv), got {type(env).__name__}")
    return env


def _common_spaces(env: Any, key: StepKey, agents: list[Agent]) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Return the observation and action space that all agents of a policy have.

    Raises:
        ValueError: They differ.
    """
    first = agents[0]
    for agent in agents[1:]:
        for kind in ("observation_space", "action_space"):
            own, other = getattr(env, kind)(first), getattr(env, kind)(agent)
            if own != other:
                fault = f"the {kind} of {first} is {own}, that of {agent} {other}"
                remedy = "give them separate policies by policies={agent: policy}"
                raise ValueError(f"agents of policy {key!r} must have equal spaces, but {fault}; {remedy}")
    return env.observation_space(first), env.action_space(first)


def _is_mask(observation_space: spaces.Dict, action_space: spaces.Space[Any]) -> bool:
    """True if the observations have a mask that fits the actions."""
    mask = observation_space.spaces.get(MASK)
    return isinstance(action_space, spaces.Discrete) and mask is not None and mask.shape == (int(action_space.n),)
