"""The policy that a server decides with: checks requests, and decides on several of them at once."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from maze_pl.config.search_path import suggestion
from maze_pl.serving.decoding import Array
from maze_pl.serving.request_error import RequestError
from maze_pl_runtime import BundleError, Decision, Policy
from maze_pl_runtime.inputs import Input, converted, inputs_of

StepKey = int | str
FIELDS: Final = ("observation", "step_key", "deterministic", "state", "uniforms", "agent_id", "with_parameters")


@dataclass(frozen=True)
class CheckedRequest:
    """A request that was checked: observations of one sub-step to decide on, as a batch.

    Attributes:
        step_key: The sub-step.
        deterministic: Whether the most likely actions are taken.
        observation: Name -> [n, ...].
        state: Name -> [n, ...] policy states before the acts; empty if the policy has none.
        uniforms: [n, n_uniforms] numbers that determine sampled actions.
        agent_id: [n] agents that act.
        is_batch: Whether the request has a batch dimension.
        with_parameters: Whether the answer contains parameters of distributions.
    """

    step_key: StepKey
    deterministic: bool
    observation: dict[str, Array]
    state: dict[str, Array]
    uniforms: Array
    agent_id: Array
    is_batch: bool
    with_parameters: bool

    @property
    def n_observations(self) -> int:
        """Number of observations."""
        return len(self.agent_id)


class ServedPolicy:
    """A bundle that is served.

    Args:
        path: The bundle.
        max_batch: Largest number of observations of a request.

    Attributes:
        policy: The policy.
        digest: SHA-256 of the file.

    Raises:
        BundleError: The file is not a valid bundle.
    """

    def __init__(self, path: str | Path, max_batch: int) -> None:
        try:
            data = Path(path).read_bytes()  # once, as another bundle may replace the file at any time
        except OSError as error:
            raise BundleError(f"{path} cannot be read: {error.strerror}") from None
        self.policy = Policy.load(path, data=data)
        self.digest = hashlib.sha256(data).hexdigest()
        self.max_batch = max_batch
        self._inputs: dict[StepKey, list[Input]] = {}
        for key, step in self.policy.spec.items():
            self._inputs[key] = inputs_of(step)

    @property
    def n_arrays(self) -> int:
        """Largest number of arrays that a request may need."""
        sizes = [len(step["observations"]) + len(step["state"]) for step in self.policy.spec.values()]
        return max(sizes, default=0) + len(FIELDS)

    @property
    def state_shapes(self) -> dict[StepKey, Any]:
        """Step key -> the description of its policy state."""
        return {key: step["state"] for key, step in self.policy.spec.items()}

    # ---------------------------------------------------------------------------------------------- requests

    def checked(self, content: Mapping[str, Any]) -> CheckedRequest:
        """Check the fields of a request.

        Raises:
            RequestError: A field is unknown, missing or has a wrong value.
        """
        for name in content:
            if name not in FIELDS:
                near = suggestion(name[:80], FIELDS)
                expected = f"expected some of {', '.join(FIELDS)}{near}"
                raise RequestError(f"unknown field {name[:80]!r}: {expected}", name[:80])
        step_key = self._step_key(content.get("step_key"))
        step = self.policy.spec[step_key]
        observation, n_observations, is_batch = self._observation(step_key, content.get("observation"))
        deterministic = _flag(content, "deterministic", True)
        return CheckedRequest(
            step_key=step_key,
            deterministic=deterministic,
            observation=observation,
            state=self._state(step["state"], content.get("state"), n_observations, is_batch),
            uniforms=self._uniforms(step["n_uniforms"], content.get("uniforms"), n_observations, is_batch),
            agent_id=self._agent_id(step["separate_networks"], content.get("agent_id"), n_observations, is_batch),
            is_batch=is_batch,
            with_parameters=_flag(content, "with_parameters", False),
        )

    def _step_key(self, given: Any) -> StepKey:
        known = list(self.policy.spec)
        if given is None and len(known) == 1:
            return known[0]
        if isinstance(given, bool) or not isinstance(given, int | str) or given not in self.policy.spec:
            raise RequestError(f"step_key={given!r:.80} must be one of the sub-steps {known}", "step_key")
        return given

    def _observation(self, step_key: StepKey, given: Any) -> tuple[dict[str, Array], int, bool]:
        """Return the observations [n, ...], n, and whether the request has a batch dimension."""
        inputs = self._inputs[step_key]
        names = [part.name for part in inputs]
        if not isinstance(given, Mapping):
            raise RequestError(f"observation must be an object with {names}, not {given!r:.80}", "observation")
        observation: dict[str, Array] = {}
        leading: dict[str, tuple[bool, int]] = {}
        for part in inputs:
            field = f"observation/{part.name}"
            if part.name not in given:
                raise RequestError(f"observation {part.name!r} is missing; this sub-step needs {names}", field)
            _require_no_text(given[part.name], field)
            try:
                array, is_batch = part(given[part.name])
            except (ValueError, OverflowError) as error:
                raise RequestError(str(error), field) from None
            observation[part.name] = array
            leading[part.name] = (is_batch, len(array))
        if len(set(leading.values())) != 1:
            shapes = {name: array.shape for name, array in observation.items()}
            expected = "single ones, or batches of the same size"
            raise RequestError(f"observations must be {expected}, not {shapes}", "observation")
        ((is_batch, n_observations),) = set(leading.values())
        if n_observations > self.max_batch:
            fault = f"a batch of {n_observations} observations is too large"
            raise RequestError(f"{fault}: at most {self.max_batch}", "observation")
        return observation, n_observations, is_batch

    def _state(self, described: Mapping[str, Any], given: Any, n_observations: int, is_batch: bool) -> dict[str, Array]:
        if given is None:
            given = {}
        elif not isinstance(given, Mapping) or (given and given.keys() != described.keys()):
            raise RequestError(f"state must be null or have the entries {sorted(described)}", "state")
        state: dict[str, Array] = {}
        for name, part in described.items():
            shape = (n_observations, *part["shape"])
            if not given:
                state[name] = np.zeros(shape, part["dtype"])
            else:
                state[name] = _numbers(given[name], f"state/{name}", part["dtype"], shape, is_batch)
        return state

    def _uniforms(self, n_uniforms: int, given: Any, n_observations: int, is_batch: bool) -> Array:
        shape = (n_observations, n_uniforms)
        if given is None:
            return np.random.default_rng().random(shape)
        uniforms = _numbers(given, "uniforms", "float64", shape, is_batch)
        if not ((uniforms >= 0) & (uniforms < 1)).all():
            raise RequestError("uniforms must be at least 0 and below 1", "uniforms")
        return uniforms

    def _agent_id(self, n_agents: int | None, given: Any, n_observations: int, is_batch: bool) -> Array:
        if given is None:
            return np.zeros(n_observations, np.int64)
        agents = _numbers(given, "agent_id", "int64", (n_observations,), is_batch)
        if (agents < 0).any() or (n_agents is not None and (agents >= n_agents).any()):
            limit = "" if n_agents is None else f" to {n_agents - 1}"
            raise RequestError(f"agent_id must be from 0{limit}", "agent_id")
        return agents

    # --------------------------------------------------------------------------------------------- decisions

    def decide(self, requests: Sequence[CheckedRequest]) -> list[Decision]:
        """Decide on several requests of one sub-step, which are either all deterministic or all sampled.

        Returns:
            A decision for each request, with arrays [n, ...] also for requests without a batch dimension.

        Raises:
            RequestError: A decision is not a number, since the numbers of a request are too large.
        """
        first = requests[0]
        step = self.policy.spec[first.step_key]
        try:
            decision = self.policy.decide(
                _joined([request.observation for request in requests]),
                first.step_key,
                _joined([request.state for request in requests]) if step["state"] else None,
                first.deterministic,
                uniforms=None if first.deterministic else np.concatenate([request.uniforms for request in requests]),
                agent_id=np.concatenate([request.agent_id for request in requests]),
                check_masks=False,  # each request was checked
            )
        except ValueError as error:  # the requests were checked: the decision is not a number
            raise RequestError(str(error), "observation") from None
        ends = np.cumsum([request.n_observations for request in requests]).tolist()
        parts = []
        for start, stop in zip([0, *ends], ends, strict=False):
            kinds = []
            for values in decision:
                kinds.append({name: array[start:stop] for name, array in values.items()})
            parts.append(Decision(*kinds))
        return parts


def _joined(parts: Sequence[dict[str, Array]]) -> dict[str, Array]:
    """Concatenate arrays by name."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _flag(content: Mapping[str, Any], name: str, default: bool) -> bool:
    value = content.get(name, default)
    if not isinstance(value, bool | np.bool_):
        raise RequestError(f"{name} must be true or false, not {value!r:.80}", name)
    return bool(value)


def _require_no_text(given: Any, field: str) -> None:
    """Refuse lists with a text: NumPy would make an array of texts, in which each number takes as much memory as it."""
    values = [given] if type(given) is list else []
    while values:
        if str in set(map(type, values)):
            raise RequestError(f"{field} has a text, expected numbers only", field)
        values = list(itertools.chain.from_iterable(part for part in values if type(part) is list))


def _numbers(given: Any, field: str, dtype: str, shape: tuple[int, ...], is_batch: bool) -> Array:
    """Return numbers as an array with a batch dimension.

    Args:
        given: What came.
        field: The field, for messages.
        dtype: Type of the numbers.
        shape: Expected shape, with the batch dimension.
        is_batch: Whether the request has a batch dimension.
    """
    expected = shape if is_batch else shape[1:]
    _require_no_text(given, field)
    try:
        array = converted(given, np.dtype(dtype), expected, field)
    except ValueError as error:
        raise RequestError(str(error), field) from None
    if array.shape != expected or not np.isfinite(array).all():
        raise RequestError(f"{field} must be finite numbers of shape {expected}, not {given!r:.80}", field)
    return array.reshape(shape)
