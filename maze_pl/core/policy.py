"""The policy protocol, common to trained, random, heuristic and replaying policies."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from maze_pl.core.actor_id import StepKey

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(slots=True)
class PolicyBatch:
    """Actors of one sub-step that act now, at most one per environment.

    Attributes:
        step_key: Key of the sub-step, which names the policy.
        observation: Name -> [B, ...].
        agent_id: [B] agent of the sub-step that each row belongs to.
        policy_state: Name -> [B, ...], policy state after each actor's last act, zero for actors that have
            not acted in their episode. None: zero for all.
        is_first: [B] whether this is the actor's first act in its episode.
        maze_state: [B] states of the simulations, in rollouts of a `MazeStatePolicy`.
        envs: [B] environments, in rollouts of an `EnvPolicy`, which may copy them but not change them.
        episode_index: [B] episode that each row belongs to, if whole episodes are played.
        n_acts: [B] acts of all actors in that episode before this one.
        noise_state: Exploration noise of the actors after their last acts, without entries if none has
            acted; zero for actors that have not acted in their episode. None if the caller does not keep it, so that a
            policy explores independently in each act.
        env_index: [B] environment of the vector that each row belongs to, if whole episodes are played.
    """

    step_key: StepKey
    observation: dict[str, Array]
    agent_id: Array
    policy_state: dict[str, Array] | None = None
    is_first: Array | None = None
    maze_state: list[Any] | None = None
    episode_index: Array | None = None
    n_acts: Array | None = None
    noise_state: dict[str, Array] | None = None
    envs: list[Any] | None = None
    env_index: Array | None = None


@dataclass(slots=True)
class PolicyStep:
    """Decision of a policy.

    Attributes:
        action: Head -> [B, ...], as sampled; unbounded distributions may exceed the bounds of
            boxes.
        log_prob: [B] log-probability of the whole action, if it was requested.
        policy_state: Name -> [B, ...], policy state after this act, for recurrent policies.
        noise_state: Name -> [B, ...], exploration noise after this act, for policies that keep it for
            several acts.
    """

    action: dict[str, Array]
    log_prob: Array | None = None
    policy_state: dict[str, Array] | None = None
    noise_state: dict[str, Array] | None = None


@runtime_checkable
class Policy(Protocol):
    """Anything that chooses actions."""

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Choose one action for each actor of the batch.

        Args:
            batch: The actors and their observations.
            deterministic: Take the most likely action instead of sampling.
            temperature: Above 1 flattens the distributions, below 1 sharpens them.
            generator: Source of all randomness of this call.
        """
        ...


class MazeStatePolicy(Policy):
    """Base of policies that use `PolicyBatch.maze_state`, regardless of observation wrappers."""

    def states_of(self, batch: PolicyBatch) -> list[Any]:
        """Return the states of the simulations, [B].

        Raises:
            ValueError: The batch has none.
        """
        if batch.maze_state is None:
            name = type(self).__name__
            raise ValueError(f"{name} needs the states of the simulation, which this batch does not have")
        return batch.maze_state


class EnvPolicy(Policy):
    """Base of policies that use `PolicyBatch.envs`, such as those that try actions in copies of them."""


@contextlib.contextmanager
def evaluation_mode(policy: object) -> Iterator[None]:
    """Switch networks to evaluation mode (no dropout etc.), then restore the mode of every module.

    Args:
        policy: A module; other objects are left unchanged. A module with a part that overrides
            `train` is switched by its `eval` and `train` methods.
    """
    if not isinstance(policy, nn.Module):
        yield
        return
    modules: list[nn.Module] = [policy]
    for module in modules:  # grows during the loop; `Module.modules` and `Module.train` take ten times as long
        modules += [child for child in module._modules.values() if child is not None]
    unusual = torch.jit.ScriptModule  # its mode is not a Python attribute
    plain = all(type(m).train is nn.Module.train and not isinstance(m, unusual) for m in modules)
    before = [(module, module.training) for module in modules if module.training or not plain]
    if plain:
        for module, _ in before:
            object.__setattr__(module, "training", False)
    else:
        policy.eval()
    try:
        yield
    finally:
        if not plain:
            policy.train(before[0][1])
        set_mode = object.__setattr__ if plain else setattr  # `object.__setattr__` is faster
        for module, mode in before:  # overrides the mode that `train` has given to its parts
            set_mode(module, "training", mode)


if not TYPE_CHECKING:  # type checkers report names that are missing

    def __getattr__(name: str) -> Any:
        """Return `RandomPolicy`, which configurations of earlier versions name in this module."""
        if name == "RandomPolicy":
            from maze_pl.core.random_policy import RandomPolicy

            return RandomPolicy
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
