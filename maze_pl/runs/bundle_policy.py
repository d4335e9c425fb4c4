"""Bundles as policies of rollouts."""

from __future__ import annotations

import contextlib
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces

from maze_pl.config.factories import Factory
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import PolicyBatch, PolicyStep
from maze_pl.core.spaces import space_from_dict, space_to_dict, without_integer_types
from maze_pl.core.spec import Spec
from maze_pl.distributions import (
    BetaProbabilityDistribution,
    DeterministicProbabilityDistribution,
    SquashedGaussianProbabilityDistribution,
)
from maze_pl.envs.building import class_of
from maze_pl.envs.wrappers import SplitActionsWrapper
from maze_pl.runs.action_bounds import warn_of_other_bounds
from maze_pl_runtime import BundleError, Policy
from maze_pl_runtime.bundle_file import MANIFEST

_NAME_OFFSET: Final = 30  # of a member's name in an archive
_ARCHIVE_DAMAGES: Final = (zipfile.BadZipFile, NotImplementedError, ValueError, struct.error)
"""Errors of `zipfile` for files that are not archives, and for damaged lists of members."""
_BOUNDED: Final = (
    BetaProbabilityDistribution.__name__,
    DeterministicProbabilityDistribution.__name__,
    SquashedGaussianProbabilityDistribution.__name__,
)
"""Distributions whose actions depend on bounds; earlier versions had them in other modules."""


class BundlePolicy:
    """The policy of a bundle, for rollouts in environments without the wrappers that it contains.

    Args:
        path: The file.
        data: Its content, if it was read before.

    Attributes:
        path: The file.
        manifest: Description of the bundle.

    Raises:
        BundleError: The file was changed, is of a newer version, or its graphs do not fit.
    """

    def __init__(self, path: str | Path, data: bytes | None = None) -> None:
        self.path = Path(path).resolve()
        self._data = _content(path) if data is None else data
        self._policy = Policy.load(path, data=self._data)
        self.manifest = self._policy.manifest
        _require_roles(path, self.manifest)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy the content of the file, as sessions of ONNX Runtime cannot be copied."""
        return BundlePolicy, (self.path, self._data)

    @property
    def included(self) -> list[str]:
        """Names of the wrappers that the bundle contains."""
        return [role["name"] for role in self.manifest["wrappers"] if role["is_included"]]

    @property
    def unbounded(self) -> dict[StepKey, frozenset[str]]:
        """Observations that the bundle clips first, so that they may be infinite, by sub-step."""
        found: dict[StepKey, frozenset[str]] = {}
        for key, step in self._policy.spec.items():
            clipped = [name for name, space in step["observations"].items() if space.get("clipped")]
            found[key] = frozenset(clipped)
        return found

    @property
    def has_state(self) -> bool:
        """True if decisions depend on earlier ones, by a recurrent network or a stack of observations."""
        return any(step["state"] for step in self._policy.spec.values())

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
        _require_no_temperature(temperature)
        step = self._policy.spec[batch.step_key]
        shape = (len(batch.agent_id), step["n_uniforms"])
        uniforms = torch.rand(shape, dtype=torch.float64, generator=generator).numpy()
        decision = self._policy.decide(
            batch.observation,
            batch.step_key,
            batch.policy_state,
            deterministic,
            uniforms=uniforms,
            agent_id=self._agents(batch),
            check_masks=False,  # rollouts play on, as with the policy that was exported
        )
        return PolicyStep(decision.action, policy_state=decision.state or None)

    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        """Compute the probabilities of the options of discrete heads, as `TorchPolicy.probabilities` does.

        Raises:
            ConfigurationError: The bundle splits actions, so that its heads are not those of the
                environment.
            ValueError: The temperature is not 1.
        """
        split = f"{SplitActionsWrapper.__module__}.{SplitActionsWrapper.__qualname__}"
        if any(class_of(name) == split for name in self.included):
            fault = "its SplitActionsWrapper makes heads that the environment does not have"
            raise ConfigurationError(f"{self.path} has no probabilities of the environment's actions: {fault}")
        _require_no_temperature(temperature)
        step = self._policy.spec[batch.step_key]
        decision = self._policy.decide(
            batch.observation,
            batch.step_key,
            batch.policy_state,
            agent_id=self._agents(batch),
            check_masks=False,
        )
        found: dict[str, Any] = {}
        for head, space in step["actions"].items():
            if space["type"] == "box":
                continue
            probability = np.exp(decision.parameters[head])  # [B, options of all choices]
            if space["type"] == "multi_binary":
                found[head] = probability[:, 1::2].reshape(-1, *space["shape"])
            elif space["type"] == "multi_discrete":
                found[head] = np.split(probability, np.cumsum(step["heads"][head]["choices"])[:-1], axis=1)
            else:
                found[head] = probability
        return found

    def _agents(self, batch: PolicyBatch) -> Any:
        """Agents that act, or 0 if they share a network."""
        return np.asarray(batch.agent_id) if self._policy.spec[batch.step_key]["separate_networks"] else 0

    def require_fit(self, spec: Spec) -> None:
        """Refuse an environment whose observations or actions differ from those of the bundle.

        Other bounds of actions are only warned of.

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
            warn_of_other_bounds(str(self.path), key, self._filled(key), step.action_space)

    def _filled(self, key: StepKey) -> dict[str, spaces.Space[Any]]:
        """Return the spaces of heads whose actions depend on bounds, except heads that wrappers make."""
        step = self._policy.spec[key]
        found = {}
        for head, part in step["heads"].items():
            distribution = str(part.get("distribution")).rpartition(".")[2]
            if distribution in _BOUNDED and head in step["actions"]:
                found[head] = space_from_dict(step["actions"][head])
        return found


def _require_roles(path: str | Path, manifest: Mapping[str, Any]) -> None:
    """Raise BundleError if a manifest does not list the wrappers as `maze-pl export` does."""
    wrappers = manifest.get("wrappers")
    if not isinstance(wrappers, list) or not all(_is_role(value) for value in wrappers):
        fault = "its manifest has no list `wrappers` of dicts with a text `name` and a bool `is_included`"
        raise BundleError(f"{path} is not a valid bundle: {fault}")


def _is_role(value: Any) -> bool:
    """True if an entry of a manifest names a wrapper, and whether the bundle contains it."""
    if not isinstance(value, dict):
        return False
    return isinstance(value.get("name"), str) and isinstance(value.get("is_included"), bool)


def _content(path: str | Path) -> bytes:
    """Read a file once, as another bundle may replace it at any time."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from None


def _require_no_temperature(temperature: float) -> None:
    if temperature != 1.0:
        raise ValueError(f"temperature={temperature}: a bundle has the distributions of training; leave it at 1")


def is_bundle(path: str | Path) -> bool:
    """True if a file is a bundle, which may be damaged, cut off or empty."""
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as file:
        start = file.read(_NAME_OFFSET + len(MANIFEST))
    if not start:
        return Path(path).suffix != ".ckpt"
    if start[_NAME_OFFSET:] == MANIFEST.encode():  # the first member of a bundle
        return True
    with contextlib.suppress(*_ARCHIVE_DAMAGES), zipfile.ZipFile(path) as archive:
        return MANIFEST in archive.namelist()
    return False


def bundle_policy(policy: Any, temperature: float = 1.0) -> BundlePolicy | None:
    """Return the policy of a bundle if an argument is one, or names the file of one; None otherwise.

    Raises:
        BundleError: The file is not a valid bundle.
        ValueError: The temperature at which the bundle is to act is not 1.
    """
    path = policy.class_path if isinstance(policy, Factory) else policy
    if isinstance(path, str | Path) and Path(path).is_file():
        policy = BundlePolicy(path)
    if not isinstance(policy, BundlePolicy):
        return None
    _require_no_temperature(temperature)
    return policy


def _shape(space: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description of a space without bounds, clipping and integer types, which networks do not need."""
    plain = without_integer_types(space)
    return {name: value for name, value in plain.items() if name not in ("low", "high", "clipped")}
