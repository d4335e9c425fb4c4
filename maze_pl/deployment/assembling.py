"""Parts of a deployment from instances, configuration, or a run."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import gymnasium
from torch import nn

from maze_pl.config.factories import Factory
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.actor_id import StepKey
from maze_pl.core.observation_sample import ObservationSample
from maze_pl.core.policy import Policy
from maze_pl.core.spec import Spec
from maze_pl.envs.building import load_shared_states, wrapper_stack
from maze_pl.envs.contract import describe
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.observation_normalization_wrapper import ObservationNormalizationWrapper, normalizers_of
from maze_pl.runs.bundle_policy import BundlePolicy, bundle_policy
from maze_pl.runs.checkpoint import read_checkpoint, wrapper_statistics_in
from maze_pl.runs.contained_wrappers import MakeWithout, StackWithout
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.policies import make_policy
from maze_pl.runs.recorders import RECORDERS
from maze_pl.runs.searching import make_search_policy

if TYPE_CHECKING:
    from maze_pl.datamodules.environment_maker import Description

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
    is_trained = policy is None or isinstance(policy, BundlePolicy)
    must_fit = is_trained and wrappers is not None and known["env"] is not None
    make = MakeDeployed(
        known["env"] if env is None else env,
        known["wrappers"] if wrappers is None else wrappers,
        statistics,
        others.pop("action_masks"),
        contained,
        are_others=wrappers is not None,
        training=_description(known) if must_fit else None,
    )
    kept = checkpoint.get("callbacks", {}).get(_CALLBACK)
    if kept is not None and not contained:  # a bundle with wrappers gets observations before them
        sample = ObservationSample()
        sample.load_state_dict(kept)
        others.setdefault("training_observations", sample)
    agent = load(run, trust=trust) if policy is None else policy
    return {**others, "policy": agent, "env": make, "wrappers": ()}


def _description(options: Mapping[str, Any]) -> "Description":
    """Describe the environment of training.

    Args:
        options: `rollout_options` of the run's data.
    """
    from maze_pl.datamodules.environment_maker import EnvironmentMaker

    return EnvironmentMaker(**options, check="fast", step_timeout=None, owner="run").description


def to_factory(part: Any) -> Any:
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


def to_factories(wrappers: Any) -> list[Any]:
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
    return [to_factory(wrapper) for wrapper in wrappers]


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
    bundle = bundle_policy(to_factory(policy), temperature)
    return (policy, []) if bundle is None else (bundle, bundle.included)


@dataclass(frozen=True)
class MakeDeployed:
    """Makes the environment of a deployment, with frozen wrapper statistics.

    Attributes:
        env: An environment, a callable that makes one, or its configuration.
        wrappers: As in `to_factories`.
        wrapper_statistics: Statistics by wrapper; None leaves those that the wrappers have.
        action_masks: Action head -> observation, in addition to the declared masks.
        contained: Names of wrappers that are left out, because the policy contains them.
        are_others: Whether these are not the wrappers of training, some of which may be missing.
        training: The environment of training, if its normalisation may not be missing.
    """

    env: Any
    wrappers: Any
    wrapper_statistics: Mapping[str, Any] | None
    action_masks: Mapping[str, str] | None
    contained: Sequence[str] = ()
    are_others: bool = False
    training: "Description | None" = None

    def __call__(self) -> LogStatsWrapper:
        """Make an environment.

        Raises:
            ConfigurationError: It has only some of the contained wrappers, or lacks a normalisation.
            TypeError: Something is neither an environment nor a wrapper.
            ValueError: A wrapper needs statistics, and there are none.
        """
        source = to_factory(self.env)
        if not isinstance(source, gymnasium.Env) and not callable(source):
            expected = "expected an environment, a callable that makes one, or a class_path"
            raise TypeError(f"env is {describe(self.env)}; {expected}")
        make: Callable[[], Any] = (lambda: source) if isinstance(source, gymnasium.Env) else source
        wrappers = to_factories(self.wrappers)
        built = MakeWithout(make, wrappers, self.action_masks, self.contained).build()
        env = built.env
        stack = wrapper_stack(env)
        if self.training is not None:
            _require_known_statistics(stack, self.training, built)
        if self.wrapper_statistics is not None:
            statistics = built.statistics_of(self.wrapper_statistics)
            if self.are_others:
                statistics = {name: state for name, state in statistics.items() if name in stack}
            load_shared_states(stack, statistics)
        for wrapper in stack.values():
            wrapper.freeze()
            wrapper.prepare_deployment()
        for normalizer in normalizers_of(env):
            if missing := normalizer.missing_statistics:
                fault = f"ObservationNormalizationWrapper has no statistics of {missing}"
                remedy = "take them from a run by AgentDeployment.from_run"
                raise ValueError(f"{fault}: give wrapper_statistics, or {remedy}")
        return env


def _require_known_statistics(stack: Mapping[str, Wrapper], training: "Description", built: StackWithout) -> None:
    """Refuse wrappers that lack a normalisation of training, or configure other statistics of it.

    Args:
        stack: The wrappers by name, before statistics are loaded.
        training: The environment of training.
        built: The environment, without the wrappers that a bundle contains.

    Raises:
        ConfigurationError: They do, so that observations would not mean what they did in training.
    """
    from maze_pl.datamodules.taken_statistics import require_known_statistics

    expected = training._replace(
        wrappers=built.statistics_of(training.wrappers),
        configured_statistics=built.statistics_of(training.configured_statistics),
        with_statistics=tuple(built.statistics_of(dict.fromkeys(training.with_statistics))),
    )
    configured: dict[str, dict[str, Any]] = {}
    for name, wrapper in stack.items():
        if issubclass(type(wrapper), ObservationNormalizationWrapper):
            normalizer = cast(ObservationNormalizationWrapper, wrapper)
            estimated = normalizer.shared_state()
            known = normalizer.get_normalization_statistics()
            if given := {key: values for key, values in known.items() if key not in estimated}:
                configured[name] = given
    found = expected._replace(
        wrappers={name: type(wrapper) for name, wrapper in stack.items()},
        configured_statistics=configured,
        with_statistics=(),  # others than those of training are found when statistics are loaded
    )
    try:
        require_known_statistics("the deployment", expected, found)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def acting_policy(
    policy: Any, spec: Spec, env: LogStatsWrapper, search: str | None, make: MakeDeployed, seed: int | None
) -> Policy:
    """Make the policy of a deployment: a copy in evaluation mode if it has networks.

    Args:
        policy: A policy, a trained module, or a configuration.
        spec: Observations and actions of the actors.
        env: The environment of the deployment.
        search: Search before each decision, such as `puct:64`; None for no search.
        make: Makes further environments, for the search.
        seed: Source of all randomness of the search; None gives different results each time.

    Raises:
        ValueError: A search needs further environments, and there is only one.
    """
    acting = make_policy(to_factory(policy), spec, env)
    if isinstance(acting, nn.Module):
        acting = copy.deepcopy(acting).eval()
    if search is None:
        return acting
    if isinstance(make.env, gymnasium.Env):
        raise ValueError("search needs further environments: give env as a callable or its configuration")

    def make_copied() -> Any:
        return without_statistics(make())

    return make_search_policy(search, policy, acting, spec, env, make_copied, seed)


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
