"""Policies that search, in rollouts."""

import copy
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import torch

from maze_pl.agents.torch_state_critic import StateCritic
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import Policy
from maze_pl.core.spec import Spec
from maze_pl.core.training_data import DeclaresDiscount
from maze_pl.envs.wrappers.time_limit_wrapper import TimeLimitWrapper
from maze_pl.runs.bundle_policy import BundlePolicy
from maze_pl.runs.other_sizes import in_sizes_of
from maze_pl.runs.policies import make_policy
from maze_pl.search import SearchOptions, SearchPolicy
from maze_pl.search.search_error import SearchError
from maze_pl.search.simulation import Simulation


@dataclass(frozen=True)
class MakeSearchable:
    """Makes environments for the simulations of a search in rollouts.

    Attributes:
        make: Makes an environment in which episodes are played, without recorders.
    """

    make: Callable[[], Any]

    def __call__(self) -> Any:
        """Make an environment without statistics."""
        return searchable(self.make())


def searchable(env: Any) -> Any:
    """Return the part of an environment that search copies: without statistics and recorders.

    Args:
        env: An environment whose outermost wrapper below these is a `TimeLimitWrapper`.
    """
    while type(env) is not TimeLimitWrapper:
        env = env.env
    return env


def require_copies(make: Callable[[], Any], spec: Spec) -> None:
    """Refuse environments that cannot be copied, before anything is played.

    Args:
        make: Makes an environment for simulations.
        spec: Observations and actions of the actors.

    Raises:
        SearchError: They cannot be copied.
    """
    with closing(make()) as env, closing(make()) as other:
        observation, _ = env.reset(seed=0)
        Simulation(other, spec).start(env, observation, 0)


def check_search(search: str | SearchOptions) -> SearchOptions:
    """Return the options of a search.

    Raises:
        ConfigurationError: The text is malformed.
    """
    try:
        return search if isinstance(search, SearchOptions) else SearchOptions.parse(search)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def make_search_policy(
    search: str | SearchOptions,
    agent: Any,
    policy: Policy,
    spec: Spec,
    sample: Any,
    make: Callable[[], Any],
    seed: int | None,
) -> SearchPolicy:
    """Make a policy that searches before it acts.

    Args:
        search: Method and budget, such as `puct:64`.
        agent: The agent as the user gave it: a trained module has a critic and a discount.
        policy: Its policy.
        spec: Observations and actions of the actors.
        sample: An environment.
        make: Makes an environment for simulations, like those that are given to the policy.
        seed: Source of all randomness; None gives different results each time.

    Raises:
        ConfigurationError: The text is malformed, or policy or environment cannot be searched.
    """
    options = check_search(search)
    if seed is None:
        seed = int(torch.Generator().seed() % 2**31)
    rule = None
    if options.rule not in (None, "policy"):
        rule = make_policy(options.rule, spec, sample)
    if any(isinstance(one, BundlePolicy) and one.has_state for one in (policy, rule)):
        fault = "the bundle has a policy state (a recurrent network, or a stack of observations)"
        raise SearchError(f"{fault}: search keeps no policy states in its simulations")
    agent = in_sizes_of(agent, spec)
    critic = getattr(getattr(agent, "networks", None), "critic", None)
    is_usable = isinstance(critic, StateCritic) and critic.kind != "delta" and not critic.recurrent
    return SearchPolicy(
        policy,
        options,
        spec,
        make,
        seed,
        rule=rule,
        critic=copy.deepcopy(critic) if is_usable else None,  # which a training may change meanwhile
        gamma=float(agent.gamma) if isinstance(agent, DeclaresDiscount) else 1.0,
    )
