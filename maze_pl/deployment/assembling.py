"""Parts of a deployment from instances, configuration, or a run."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import gymnasium
from torch import nn

from maze_pl.core.actor_id import StepKey
from maze_pl.core.observation_sample import ObservationSample
from maze_pl.core.policy import Policy
from maze_pl.core.spec import Spec
from maze_pl.deployment.trained_wrappers import TrainedWrappers
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.building import adapted, load_shared_states, wrapper_stack
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.observation_normalization_wrapper import normalizers_of
from maze_pl.runs.bundle_policy import BundlePolicy, bundle_policy
from maze_pl.runs.checkpoint_files import read_checkpoint, wrapper_statistics_in
from maze_pl.runs.closed_on_error import closed_on_error
from maze_pl.runs.contained_wrappers import MakeWithout, StackWithout, class_path_of
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.part_factories import env_or_factory, to_factories, to_factory
from maze_pl.runs.policies import make_policy
from maze_pl.runs.recorders import RECORDERS
from maze_pl.runs.searching import make_search_policy

_CALLBACK: Final = "TrainingObservations"
"""Callback that keeps the sample, by the name of its state in checkpoints."""
_REMEDY: Final = "give wrapper_statistics, or take them from a run by AgentDeployment.from_run"


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
    estimated = wrapper_statistics_in(checkpoint, run)
    others = {"wrapper_statistics": estimated, **known, **options}
    statistics = others.pop("wrapper_statistics")
    training = None
    is_bundle = isinstance(policy, BundlePolicy)
    if is_bundle or (policy is None and wrappers is not None and known["env"] is not None):
        names = [role["name"] for role in policy.manifest["wrappers"]] if is_bundle else None
        listed = known["wrappers"] or ()
        with_states = list(estimated or ())
        training = TrainedWrappers.of_run(listed, with_states, trust=trust, keeps_env=env is None, bundle=names)
    make = MakeDeployed(
        known["env"] if env is None else env,
        known["wrappers"] if wrappers is None else wrappers,
        statistics,
        others.pop("action_masks"),
        contained,
        drops_statistics=wrappers is not None and "wrapper_statistics" not in options,
        training=training,
    )
    kept = checkpoint.get("callbacks", {}).get(_CALLBACK)
    if kept is not None and not contained:  # a bundle with wrappers gets observations before them
        sample = ObservationSample()
        sample.load_state_dict(kept)
        others.setdefault("training_observations", sample)
    agent = load(run, trust=trust) if policy is None else policy
    return {**others, "policy": agent, "env": make, "wrappers": ()}


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
    bundle = bundle_policy(to_factory(policy, "policy"), temperature)
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
        drops_statistics: Whether statistics of wrappers that the environment lacks are dropped.
        training: The wrappers of training, if its normalisations may not be missing.
    """

    env: Any
    wrappers: Any
    wrapper_statistics: Mapping[str, Any] | None
    action_masks: Mapping[str, str] | None
    contained: Sequence[str] = ()
    drops_statistics: bool = False
    training: TrainedWrappers | None = None

    @classmethod
    def of(
        cls,
        env: Any,
        wrappers: Any,
        wrapper_statistics: Mapping[str, Any] | None,
        action_masks: Mapping[str, str] | None,
        contained: Sequence[str],
    ) -> "MakeDeployed":
        """Return the maker of a deployment's environment; that of a run is complete, and returned.

        Args:
            env: As in the class, or what `arguments_of_run` returns.
            wrappers: As in the class.
            wrapper_statistics: As in the class.
            action_masks: As in the class.
            contained: As in the class.
        """
        if isinstance(env, MakeDeployed):
            return env
        return cls(env, wrappers, wrapper_statistics, action_masks, contained)

    @property
    def is_given(self) -> bool:
        """True if the environment is one of the caller, of which there is only one."""
        return isinstance(self.env, gymnasium.Env | ArrayEnv)

    def __call__(self) -> LogStatsWrapper:
        """Make an environment.

        Raises:
            ConfigurationError: It has only some of the contained wrappers, lacks a normalisation of the
                training, or has another one.
            TypeError: Something is neither an environment nor a wrapper.
            ValueError: A wrapper needs statistics, and there are none, or only those before training.
        """
        source = env_or_factory(self.env)
        inner: list[str] = []

        def make_base() -> Any:
            base = adapted(source if self.is_given else source())
            inner.extend(class_path_of(type(wrapper)) for wrapper in wrappers_of(base))
            return base

        wrappers, contained = to_factories(self.wrappers), self.contained
        built = MakeWithout(make_base, wrappers, self.action_masks, contained, self.is_given).build()
        with closed_on_error(built.env, self.is_given):
            if self.training is not None:
                self.training.require(built, inner)
            self._prepare(built)
        return built.env

    def _prepare(self, built: StackWithout) -> None:
        """Load the statistics of the wrappers of an environment, and freeze them."""
        stack = wrapper_stack(built.env)
        if self.wrapper_statistics is not None:
            statistics = built.statistics_of(self.wrapper_statistics)
            if self.drops_statistics:
                statistics = {name: state for name, state in statistics.items() if name in stack}
            load_shared_states(stack, statistics)
        for wrapper in stack.values():
            wrapper.freeze()
            wrapper.prepare_deployment()
        for normalizer in normalizers_of(built.env):
            if missing := normalizer.missing_statistics:
                fault = f"{type(normalizer).__name__} has no statistics of {missing}"
                raise ValueError(f"{fault}: {_REMEDY}")
            if first := normalizer.statistics_before_training:
                fault = f"{type(normalizer).__name__} has those statistics of {first} with which training begins"
                raise ValueError(f"{fault}, not those of a trained policy: {_REMEDY}")


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
    acting = make_policy(to_factory(policy, "policy"), spec, env)
    if isinstance(acting, nn.Module):
        acting = copy.deepcopy(acting).eval()
    if search is None:
        return acting
    if make.is_given:
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
