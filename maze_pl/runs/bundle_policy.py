"""Bundles as policies of rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from maze_pl.config.factories import Factory
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spaces import space_to_dict
from maze_pl.core.spec import Spec
from maze_pl.envs.building import wrapper_stack
from maze_pl.envs.wrapper import Wrapper
from maze_pl_runtime import Policy


class BundlePolicy:
    """The policy of a bundle, for rollouts in environments without the wrappers that it contains.

    Args:
        path: The file.

    Attributes:
        path: The file.
        manifest: Description of the bundle.

    Raises:
        BundleError: The file was changed, is of a newer version, or its graphs do not fit.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self._policy = Policy.load(path)
        self.manifest = self._policy.manifest

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy the path: other processes load the file, as sessions of ONNX Runtime cannot be copied."""
        return BundlePolicy, (self.path,)

    @property
    def included(self) -> list[str]:
        """Names of the wrappers that the bundle contains."""
        return [role["name"] for role in self.manifest["wrappers"] if role["is_included"]]

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Choose one action for each actor of the batch; see `Policy.act` of `maze_pl.core.policy`.

        Raises:
            ValueError: The temperature is not 1.
        """
        if temperature != 1.0:
            raise ValueError(f"temperature={temperature}: a bundle has the distributions of training; leave it at 1")
        step = self._policy.spec[batch.step_key]
        shape = (len(batch.agent_id), step["n_uniforms"])
        uniforms = torch.rand(shape, dtype=torch.float64, generator=generator).numpy()
        agents = np.asarray(batch.agent_id) if step["separate_networks"] else 0
        decision = self._policy.decide(
            batch.observation, batch.step_key, batch.policy_state, deterministic, uniforms=uniforms, agent_id=agents
        )
        return PolicyStep(decision.action, policy_state=decision.state or None)

    def require_fit(self, spec: Spec) -> None:
        """Refuse an environment whose observations or actions differ from those of the bundle.

        Args:
            spec: Spaces of the environment, without the wrappers that the bundle contains.

        Raises:
            ConfigurationError: They differ; the message names the first difference.
        """
        steps = self._policy.spec
        if set(spec.step_keys) != set(steps):
            raise ConfigurationError(f"{self.path} is for sub-steps {[*steps]}, but there are {[*spec.step_keys]}")
        for key, step in spec.steps.items():
            parts = {"observations": step.observation_space, "actions": step.action_space}
            for what, space in parts.items():
                here = {name: _shape(space_to_dict(part)) for name, part in space.spaces.items()}
                there = {name: _shape(part) for name, part in steps[key][what].items()}
                if here != there:
                    both = f"expects {there}, but there are {here}"
                    raise ConfigurationError(
                        f"{self.path}: the bundle does not fit: in {what} of sub-step {key!r} it {both}"
                    )


def bundle_policy(policy: Any) -> BundlePolicy | None:
    """Return the policy of a bundle if an argument is one, or names the file of one; None otherwise."""
    if isinstance(policy, BundlePolicy):
        return policy
    path = policy.class_path if isinstance(policy, Factory) else policy
    if isinstance(path, str | Path) and Path(path).is_file():
        return BundlePolicy(path)
    return None


def without_wrappers(env: Wrapper, names: list[str]) -> Wrapper:
    """Take wrappers out of a stack.

    Args:
        env: The environment with all its wrappers; it is changed.
        names: Wrappers that are taken out, as named by `wrapper_stack`; if it has none of them,
            nothing is changed.

    Raises:
        ConfigurationError: It has only some of them.
    """
    stack = wrapper_stack(env)
    if missing := [name for name in names if name not in stack]:
        if len(missing) == len(names):
            return env
        raise ConfigurationError(f"the bundle contains {names}, of which the environment lacks {missing}: add them all")
    removed = [stack[name] for name in names]
    for wrapper in stack.values():
        while any(wrapper.env is one for one in removed):
            wrapper.env = wrapper.env.env  # type: ignore[attr-defined]
    return env


def _shape(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description of a space without bounds, which do not matter to networks."""
    return {name: value for name, value in space.items() if name not in ("low", "high")}
