"""Policies from instances, classes, names and configuration."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from torch import nn

from maze_pl.agents import TorchPolicy
from maze_pl.config.factories import Factory
from maze_pl.config.search_path import suggestion
from maze_pl.config.trust import UntrustedError
from maze_pl.core.calls_by_name import call_by_name
from maze_pl.core.class_path import import_object
from maze_pl.core.policy import Policy
from maze_pl.core.spec import Spec
from maze_pl.envs.contract import name_of
from maze_pl.runs.action_bounds import warn_of_policy_bounds
from maze_pl.runs.bundle_policy import BundlePolicy
from maze_pl.runs.compatibility import require_same_spaces
from maze_pl.runs.other_sizes import described_sizes, in_sizes_of

_TRUST_REMEDY: Final = "if you trust its origin, use --policy.trust true, or trust=True in Python"


def make_policy(policy: Any, spec: Spec, env: Any) -> Policy:
    """Make a policy.

    Args:
        policy: A policy; a trained module; a class path or callable that makes a policy from any of
            `action_spaces_dict`, `masks` (by sub-step), `spec` and `env`; `random`; or `heuristic`
            for the policy that the environment names.
        spec: Specification of the environment.
        env: The environment.

    Raises:
        TypeError: It is not a policy.
        ValueError: There is no such policy, it is for other spaces, or loading it needs trust.
    """
    if isinstance(policy, str):
        policy = Factory(policy)
    if isinstance(policy, Factory):
        policy = _with_class_path(policy, env)
    if isinstance(policy, type) or not isinstance(policy, Policy):
        policy = _made(policy, spec, env)
    sized = in_sizes_of(policy, spec)
    if sized is not policy:
        from pytorch_lightning.utilities import rank_zero_info

        rank_zero_info(described_sizes(policy, sized))
        warn_of_policy_bounds(policy.policy, spec)
        policy = sized
    if isinstance(policy, nn.Module):
        policy = getattr(policy, "policy", policy)  # of an algorithm
    if isinstance(policy, BundlePolicy):
        policy.require_fit(spec)
    if isinstance(policy, TorchPolicy):
        require_same_spaces(policy.spec.to_dict(), spec.to_dict(), "the policy")
        warn_of_policy_bounds(policy, spec)
    if not isinstance(policy, Policy):
        raise TypeError(f"policy={policy!r} is not a policy: it has no method act")
    return policy


def _with_class_path(factory: Factory, env: Any) -> Factory:
    """Replace `random` and `heuristic` by the class paths that they stand for.

    Raises:
        ValueError: There is no such class or function.
    """
    path = factory.class_path
    if path == "random":
        path = "maze_pl.agents.RandomPolicy"
    elif path == "heuristic" and env.heuristic_policy is not None:
        path = env.heuristic_policy
        if not isinstance(path, str):
            fault = f"heuristic_policy of {name_of(env)} is {path!r}"
            raise ValueError(f"{fault}; give the class path as text, such as 'package.module.MyRule'")
    try:
        import_object(path)
    except ImportError as error:
        fault = f"no policy {factory.class_path!r} for {name_of(env)}: {error}"
        if path == "heuristic":
            fault = f"no policy 'heuristic' for {name_of(env)}: it has no heuristic_policy"
            raise ValueError(f"{fault}; use random, a class path, or a bundle") from error
        known = "use random, heuristic (where the environment has a heuristic_policy), a class path, or a bundle"
        raise ValueError(f"{fault}; {known}{suggestion(path, ('random', 'heuristic'))}") from error
    return replace(factory, class_path=path)


def _made(maker: Callable[..., Any], spec: Spec, env: Any) -> Any:
    """Call a class, function or factory with what it takes of spec, spaces, masks and environment."""
    available = {
        "action_spaces_dict": {key: step.action_space for key, step in spec.steps.items()},
        "masks": {key: step.masks for key, step in spec.steps.items()},
        "spec": spec,
        "env": env,
    }
    try:
        return call_by_name(maker, available)
    except UntrustedError as error:  # of `maze_pl.load`, which takes options of the policy
        raise UntrustedError(error.fault, _TRUST_REMEDY) from None
