"""The policy of a bundle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import default_rng

from .bundle_file import BundleError, read_bundle
from .inputs import Array, converted, inputs_of, read_space

_LOWEST = np.finfo(np.float32).min  # a graph's log-probability of an impossible option
_ONNX_NAMES = {"float32": "float", "float64": "double"}  # of types that NumPy calls otherwise


class Decision(NamedTuple):
    """A decision for one observation, or decisions for a batch [B, ...]."""

    action: dict[str, Any]
    """Head -> action, as the environment takes it."""
    state: dict[str, Array]
    """Name -> policy state after this act; empty if the policy has none."""
    parameters: dict[str, Array]
    """Head -> parameters of its distribution, as the manifest describes them."""


class Policy:
    """A trained policy and its wrappers, without the library that trained it. Threads may share it.

    Attributes:
        manifest: Description of the bundle, as plain values.
        spec: Step key -> observations, actions, masks, heads and state of the sub-step.
    """

    def __init__(self, manifest: dict[str, Any], graphs: Mapping[str, bytes], n_threads: int = 1) -> None:
        self.manifest = manifest
        self.spec: dict[int | str, dict[str, Any]] = {one["key"]: one for one in manifest["steps"]}
        if not self.spec or not all(isinstance(key, int | str) for key in self.spec):
            raise ValueError(f"its sub-steps are {[*self.spec]}, expected integers or texts")
        steps = self.spec.items()
        self._steps = {key: _Step(step, graphs[step["graph"]], n_threads) for key, step in steps}

    @classmethod
    def load(cls, path: str | Path, n_threads: int = 1, data: bytes | None = None) -> "Policy":
        """Load a bundle, from its `data` if the file was read before.

        Raises:
            BundleError: It was changed or is of a newer version, or its graphs do not fit.
            ValueError: The number of threads is not valid.
        """
        if not isinstance(n_threads, int | np.integer) or n_threads < 0:
            raise ValueError(f"n_threads={n_threads!r} must be an integer, 0 or more")
        try:
            return cls(*read_bundle(path, data), n_threads)
        except (BundleError, ImportError, MemoryError):  # an ImportError of ONNX Runtime
            raise
        except Exception as error:  # of a manifest that is not that of a bundle
            raise BundleError(f"{path} is not a valid bundle: {type(error).__name__}: {error}") from error

    def act(
        self,
        observation: Mapping[str, Any],
        step_key: int | str | None = None,
        state: Mapping[str, Array] | None = None,
        deterministic: bool = True,
        **options: Any,
    ) -> Any:
        """Return head -> action, with the new state in a tuple if there is one. See `decide`."""
        decision = self.decide(observation, step_key, state, deterministic, **options)
        return (decision.action, decision.state) if decision.state else decision.action

    def decide(
        self,
        observation: Mapping[str, Any],
        step_key: int | str | None = None,
        state: Mapping[str, Array] | None = None,
        deterministic: bool = True,
        *,
        uniforms: Any = None,
        agent_id: Any = 0,
        check_masks: bool = True,
    ) -> Decision:
        """Decide on an observation, or on a batch.

        Args:
            observation: Name -> array [*shape], or [B, *shape] for a batch.
            step_key: Sub-step that acts; optional if there is only one.
            state: Policy state after this actor's previous act, or after that of each row; None at
                the start of an episode.
            deterministic: Take the most likely action instead of sampling.
            uniforms: [n_uniforms] numbers in [0, 1), or [B, n_uniforms], that determine a sampled
                action; random if None.
            agent_id: Agent that acts, or that of each row; matters for separate networks.
            check_masks: Refuse masks that allow no option of a choice. If False, all options of
                such a choice are equally likely.

        Raises:
            ValueError: The sub-step is unknown, an argument has a wrong name, shape or value, a
                mask allows nothing, the graph fails, or the result is not a number.
        """
        if step_key is None and len(self._steps) == 1:
            (step_key,) = self._steps
        if not isinstance(step_key, int | str | np.integer) or step_key not in self._steps:
            raise ValueError(f"step_key={step_key!r} must be one of the sub-steps {[*self._steps]}")
        return self._steps[step_key].decide(observation, state, deterministic, uniforms, agent_id, check_masks)


class _Step:
    """A sub-step: its graph, and the arrays that go in and out."""

    def __init__(self, step: Mapping[str, Any], graph: bytes, n_threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = n_threads
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # of classes of ONNX Runtime
            raise ValueError(f"its graph {step['graph']} cannot be loaded: {error}") from None
        self._inputs = inputs_of(step)
        state = step["state"].items()
        self._state = {key: (np.dtype(part["dtype"]), tuple(part["shape"])) for key, part in state}
        self._n_agents = step["separate_networks"]
        self._n_uniforms = step["n_uniforms"]
        self._is_discrete = {head: bool(part["choices"]) for head, part in step["heads"].items()}
        self._is_integer = {head: space["type"] == "discrete" for head, space in step["actions"].items()}
        parameters = [f"parameters/{head}" for head in self._is_discrete]
        rest = parameters + [f"next_state/{name}" for name in self._state]
        self._sampled = [f"sample/{head}" for head in self._is_integer] + rest
        self._most_likely = [f"action/{head}" for head in self._is_integer] + rest
        self._require_fit(step)

    def _require_fit(self, step: Mapping[str, Any]) -> None:
        """Raise ValueError if the manifest contradicts itself or its graph."""
        expected = {f"observation/{one.name}": _node(one.dtype, one.shape) for one in self._inputs}
        for name, described in self._state.items():
            expected[f"state/{name}"] = expected[f"next_state/{name}"] = _node(*described)
        if type(self._n_uniforms) is not int or not isinstance(self._n_agents, int | None):
            raise ValueError("n_uniforms and separate_networks must be integers")
        if self._n_uniforms:
            expected["uniforms"] = _node("float64", [self._n_uniforms])
        if self._n_agents:
            expected["agent_id"] = _node("int64", [])
        for head, part in step["heads"].items():
            expected[f"parameters/{head}"] = _node("float32", [part["size"]])
            choices = part["choices"] or [part["size"]]
            if min(choices) < 1 or sum(choices) != part["size"]:
                raise ValueError(f"{part['size']} parameters of {head!r} have choices {choices}")
        for head, space in step["actions"].items():
            expected[f"action/{head}"] = expected[f"sample/{head}"] = _node(*read_space(space)[:2])
        nodes = [*self._session.get_inputs(), *self._session.get_outputs()]
        found = {node.name: (node.type, node.shape[1:]) for node in nodes}
        for name in sorted(expected.keys() | found.keys()):
            if found.get(name) != expected.get(name):
                fault = f"{name} is {found.get(name)}, expected {expected.get(name)}"
                raise ValueError(f"its graph {step['graph']} does not fit its manifest: {fault}")

    def decide(
        self, observation: Any, state: Any, deterministic: bool, uniforms: Any, agent_id: Any, check_masks: bool
    ) -> Decision:
        """Decide; arguments as for `Policy.decide`."""
        self._require_names(observation)
        feed: dict[str, Array] = {}
        shapes = set()
        for part in self._inputs:
            array, is_batch = part(observation[part.name], check_masks)
            feed[f"observation/{part.name}"] = array
            shapes.add((len(array),) if is_batch else ())
        if len(shapes) != 1:
            raise ValueError("all observations must be single ones, or batches of the same size")
        (leading,) = shapes
        if state is not None and not isinstance(state, Mapping):
            raise ValueError(f"state must be a dict, not {type(state).__name__}")
        if state is not None and state.keys() != self._state.keys():
            raise ValueError(f"the policy state has entries {[*state]}, expected {[*self._state]}")
        for name, (dtype, shape) in self._state.items():
            value = np.zeros((*leading, *shape), dtype) if state is None else state[name]
            array = self._add(feed, f"state/{name}", value, dtype, leading, shape)
            if dtype.kind == "f" and not np.isfinite(array).all():
                raise ValueError(f"state/{name} has values that are not finite")
        if self._n_agents:
            given = converted(agent_id, np.dtype(np.int64), leading, "agent_id")
            of_rows = given if given.shape else np.full(leading, given)
            agents = self._add(feed, "agent_id", of_rows, given.dtype, leading, ())
            if not ((agents >= 0) & (agents < self._n_agents)).all():
                raise ValueError(f"agent_id={agent_id!r} must be from 0 to {self._n_agents - 1}")
        if self._n_uniforms and (deterministic or uniforms is None):
            shape = (*(leading or (1,)), self._n_uniforms)
            feed["uniforms"] = np.full(shape, 0.5) if deterministic else default_rng().random(shape)
        elif self._n_uniforms:
            self._add(feed, "uniforms", uniforms, np.dtype("f8"), leading, (self._n_uniforms,))
            if not ((feed["uniforms"] >= 0) & (feed["uniforms"] < 1)).all():
                raise ValueError("uniforms must be at least 0 and below 1")
        kind, names = ("action", self._most_likely) if deterministic else ("sample", self._sampled)
        try:
            outputs = dict(zip(names, self._session.run(names, feed), strict=True))
        except Exception as error:  # of classes of ONNX Runtime
            raise ValueError(f"the policy cannot be computed for these inputs: {error}") from None
        for name, value in outputs.items():
            is_parameter = name.startswith("parameters/")  # which may be infinite
            if value.dtype.kind == "f" and not (~np.isnan(value) if is_parameter else np.isfinite(value)).all():
                raise ValueError(f"the policy's {name} has values that are not numbers, or infinite: {value!r:.80}")
        if not leading:
            outputs = {name: value[0] for name, value in outputs.items()}
        action: dict[str, Any] = {}
        for head, is_integer in self._is_integer.items():
            value = outputs[f"{kind}/{head}"]
            action[head] = int(value) if is_integer and not leading else value
        next_state = {name: outputs[f"next_state/{name}"] for name in self._state}
        parameters: dict[str, Array] = {}
        for head, is_discrete in self._is_discrete.items():
            value = outputs[f"parameters/{head}"]
            parameters[head] = np.where(value <= _LOWEST, np.float32(-np.inf), value) if is_discrete else value
        return Decision(action, next_state, parameters)

    def _require_names(self, observation: Any) -> None:
        """Raise ValueError if observations are missing; further ones are ignored."""
        known = {part.name for part in self._inputs}
        expected = f"expected a dict of the observations {sorted(known)}"
        if not isinstance(observation, Mapping):
            raise ValueError(f"{expected}, got {type(observation).__name__}")
        if missing := sorted(known - observation.keys()):
            further = sorted(str(name)[:80] for name in observation if name not in known)[:10]
            got = f"; the names {further} are unknown" if further else ""
            raise ValueError(f"observations {missing} are missing: {expected}{got}")

    def _add(self, feed: dict[str, Array], name: str, value: Any, dtype: Any, leading: Any, shape: Any) -> Array:
        """Add an input other than an observation, with batch dimension."""
        array = converted(value, dtype, (*leading, *shape), name)
        if array.shape != (*leading, *shape):
            raise ValueError(f"{name} has shape {array.shape}, expected {(*leading, *shape)}")
        feed[name] = array if leading else array[None]
        return array


def _node(dtype: Any, shape: Any) -> tuple[str, list[int]]:
    name = np.dtype(dtype).name
    return f"tensor({_ONNX_NAMES.get(name, name)})", list(shape)
