"""Parts of a deployment from instances, configuration, or a run."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import gymnasium
from torch import nn

from maze_pl.config.factories import Factory
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_object
from maze_pl.core.observation_sample import ObservationSample
from maze_pl.core.policy import Policy
from maze_pl.core.spec import Spec
from maze_pl.envs.building import class_of, load_shared_states, wrapper_stack
from maze_pl.envs.contract import describe
from maze_pl.envs.wrapper import ObservationWrapper, wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.observation_normalization_wrapper import normalizers_of
from maze_pl.runs.bundle_policy import BundlePolicy, bundle_policy
from maze_pl.runs.checkpoint import read_checkpoint, wrapper_statistics_in
from maze_pl.runs.contained_wrappers import MakeWithout
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.policies import make_policy
from maze_pl.runs.recorders import RECORDERS
from maze_pl.runs.searching import make_search_policy

_CALLBACK: Final = "TrainingObservations"
"""Callback that keeps the sample, by the name of its state in checkpoints."""


def arguments_of_run(
    run: str | Path, trust: bool, policy: Any, env: Any, wrappers: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a deployment with the parts of a run, or others in their place.

    Args:
        run: A run directory or a checkpoint.
        trust: Whether it may name any class.
        policy: The policy; None for the run's.
        env: The environment; None for the run's.
        wrappers: The wrappers; None for the run's.
        options: Further arguments.

    Raises:
        ConfigurationError: There is no checkpoint, it was not written by `maze-pl`, or it needs
            trust.
    """
    checkpoint = read_checkpoint(run)
    policy, contained = with_bundle(policy, options.get("temperature", 1.0))
    known = load_data(run, trust=trust).rollout_options
    others = {"wrapper_statistics": wrapper_statistics_in(checkpoint, run), **known, **options}
    statistics = others.pop("wrapper_statistics")
    needed: list[str] | None = None
    if wrappers is not None:
        is_trained = policy is None or isinstance(policy, BundlePolicy)
        needed = _that_change_observations(statistics or (), trust) if is_trained else []
    make = partial(
        make_env,
        known["env"] if env is None else env,
        known["wrappers"] if wrappers is None else wrappers,
        statistics,
        others.pop("action_masks"),
        needed=needed,
        contained=contained,
    )
    kept = checkpoint.get("callbacks", {}).get(_CALLBACK)
    if kept is not None and not contained:  # a bundle with wrappers gets observations before them
        sample = ObservationSample()
        sample.load_state_dict(kept)
        others.setdefault("training_observations", sample)
    agent = load(run, trust=trust) if policy is None else policy
    return {**others, "policy": agent, "env": make, "wrappers": ()}


def made(part: Any) -> Any:
    """Return the factory that a configuration describes; anything else as it is."""
    if isinstance(part, str):
        return Factory(part)
    if isinstance(part, Mapping):
        if "class_path" not in part:
            raise ValueError(
                f"configuration {dict(part)} names no class: write class_path, and init_args for arguments"
            )
        return Factory.of(part)
    return part


def made_wrappers(wrappers: Any) -> list[Any]:
    """Return the factories of wrappers.

    Args:
        wrappers: Callables or configurations, the first one innermost; or a mapping from class paths to
            arguments, as in Maze.

    Raises:
        ValueError: A configuration names no class.
    """
    if isinstance(wrappers, Mapping) and "class_path" not in wrappers:
        wrappers = [{"class_path": path, "init_args": arguments or {}} for path, arguments in wrappers.items()]
    elif isinstance(wrappers, str | Mapping):
        wrappers = [wrappers]
    return [made(wrapper) for wrapper in wrappers]


def with_bundle(policy: Any, temperature: float = 1.0) -> tuple[Any, list[str]]:
    """Load a bundle if a policy is one.

    Args:
        policy: The policy.
        temperature: Temperature at which it is to act.

    Returns:
        The bundle, and the names of the wrappers that it contains, which must not be applied a
        second time; any other policy as it is, and no names.

    Raises:
        BundleError: The file of the bundle is not valid.
        ValueError: The temperature is not above 0, or not 1 for a bundle.
    """
    if not temperature >= 1e-9:
        raise ValueError(f"temperature={temperature} must be above 0")
    bundle = bundle_policy(made(policy), temperature)
    return (policy, []) if bundle is None else (bundle, bundle.included)


def make_env(
    env: Any,
    wrappers: Any,
    wrapper_statistics: Mapping[str, Any] | None,
    action_masks: Mapping[str, str] | None,
    needed: Sequence[str] | None = None,
    contained: Sequence[str] = (),
) -> LogStatsWrapper:
    """Make the environment of a deployment, with frozen wrapper statistics.

    Args:
        env: An environment, a callable that makes one, or its configuration.
        wrappers: As in `made_wrappers`.
        wrapper_statistics: Statistics by wrapper; None leaves those that the wrappers have.
        action_masks: Action head -> observation, in addition to the declared masks.
        needed: Names of the wrappers that may not be missing if there are statistics of them; None for all.
        contained: Names of wrappers that are left out, because the policy contains them.

    Raises:
        ConfigurationError: The environment has only some of the contained wrappers, or lacks one that is needed.
        TypeError: Something is neither an environment nor a wrapper.
        ValueError: A wrapper needs statistics, and there are none.
    """
    source = made(env)
    if not isinstance(source, gymnasium.Env) and not callable(source):
        raise TypeError(f"env is {describe(env)}; expected an environment, a callable that makes one, or a class_path")
    make: Callable[[], Any] = (lambda: source) if isinstance(source, gymnasium.Env) else source
    built = MakeWithout(make, made_wrappers(wrappers), action_masks, contained).made()
    wrapped = built.env
    if wrapper_statistics is not None:
        statistics = built.statistics_of(wrapper_statistics)
        stack = wrapper_stack(wrapped)
        if needed is not None:
            if missing := [name for name in built.statistics_of(dict.fromkeys(needed)) if name not in stack]:
                fault = f"the wrappers lack {missing}, with which the policy is trained"
                raise ConfigurationError(f"{fault}: add as many of each class as the run has, which has statistics")
            statistics = {name: state for name, state in statistics.items() if name in stack}
        load_shared_states(stack, statistics)
    for wrapper in wrappers_of(wrapped):
        wrapper.freeze()
        wrapper.prepare_deployment()
    for normalizer in normalizers_of(wrapped):
        if normalizer.missing_statistics:
            needed = f"ObservationNormalizationWrapper has no statistics of {normalizer.missing_statistics}"
            raise ValueError(f"{needed}: give wrapper_statistics, or take them from a run by AgentDeployment.from_run")
    return wrapped


def _that_change_observations(names: Iterable[str], trust: bool) -> list[str]:
    """Return the names of wrappers that change observations.

    Args:
        names: Names of wrappers of a run.
        trust: Whether classes from outside of maze_pl may be imported; without it, the run has none.
    """
    found = []
    for name in names:
        path = class_of(name)
        if (trust or path.startswith("maze_pl.")) and issubclass(import_object(path), ObservationWrapper):
            found.append(name)
    return found


@dataclass(frozen=True)
class SearchFor:
    """Search before the decisions of a deployment.

    Attributes:
        search: Method and budget, such as `puct:64`.
        env: The environment as the user gave it.
        make: Makes an environment like that of the deployment.
        seed: Source of all randomness; None gives different results each time.
    """

    search: str
    env: Any
    make: Callable[[], LogStatsWrapper]
    seed: int | None


def acting_policy(policy: Any, spec: Spec, env: LogStatsWrapper, search: SearchFor | None) -> Policy:
    """Make the policy of a deployment: a copy in evaluation mode if it has networks.

    Args:
        policy: A policy, a trained module, or a configuration.
        spec: Observations and actions of the actors.
        env: The environment of the deployment.
        search: Search before each decision; None for no search.

    Raises:
        ValueError: A search needs further environments, and there is only one.
    """
    acting = make_policy(made(policy), spec, env)
    if isinstance(acting, nn.Module):
        acting = copy.deepcopy(acting).eval()
    if search is None:
        return acting
    if isinstance(search.env, gymnasium.Env):
        raise ValueError("search needs further environments: give env as a callable or its configuration")
    make = search.make
    return make_search_policy(search.search, policy, acting, spec, env, lambda: without_statistics(make()), search.seed)


def without_statistics(env: Any) -> Any:
    """Return the part of an environment that a search copies: without statistics and recorders around it."""
    while issubclass(type(env), (LogStatsWrapper, *RECORDERS)):
        env = env.env
    return env


def spec_of(env: LogStatsWrapper, max_agents: Mapping[StepKey, int] | None) -> Spec:
    """Return the specification; numbers of agents that change need no limit, as nothing is stored."""
    limits = dict(max_agents or {})
    for key, count in env.agent_counts_dict.items():
        if count < 0:
            limits.setdefault(key, 1)
    return Spec.of(env, limits)
