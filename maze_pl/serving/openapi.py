"""OpenAPI description of a server, from the manifest of its bundle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from maze_pl.core.version import __version__
from maze_pl.serving.decoding import JSON, NPZ
from maze_pl_runtime.inputs import read_space

_LARGEST: Final = float(np.finfo(np.float32).max)
_BOOLEAN: Final = {"type": "boolean"}
_NUMBER: Final = {"type": "number", "minimum": -_LARGEST, "maximum": _LARGEST}
_ERROR: Final = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "field": {"type": "string"}},
    "required": ["error", "field"],
}
_REFUSALS: Final = {
    "400": "The body cannot be read.",
    "401": "The token is missing or wrong.",
    "403": "A web page of another origin sent the request, or the server has no token, which the request needs.",
    "408": "The body did not arrive in time.",
    "413": "The body is too large.",
    "415": "The content type is unknown.",
    "422": "A field is wrong; `field` names it.",
    "500": "The request failed by a fault of the policy or the server, which its log describes.",
    "503": "There are too many episodes, or their policy states take too much memory.",
}
_REFUSALS_OF_ACTS: Final = [code for code in _REFUSALS if code != "503"]
_EPISODE: Final = {"name": "episode", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _array(item: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Schema of an array of a fixed shape."""
    schema = dict(item)
    for size in reversed(shape):
        schema = {"type": "array", "items": schema, "minItems": size, "maxItems": size}
    return schema


def _space(space: Mapping[str, Any], is_mask: bool) -> dict[str, Any]:
    """Schema of a value of a space."""
    dtype, shape, low, high = read_space(dict(space))
    if is_mask:
        return _array({"type": "integer", "minimum": 0, "maximum": 1}, shape)
    if dtype.kind == "f":
        return _array({"type": "number"} if space.get("clipped") else _NUMBER, shape)
    if space["type"] == "box":
        limits = np.iinfo(dtype)
        return _array({"type": "integer", "minimum": int(limits.min), "maximum": int(limits.max)}, shape)
    return _choices(np.broadcast_to(low, shape), np.broadcast_to(high, shape))


def _choices(low: np.ndarray[Any, Any], high: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Schema of an array of integers, each within its bounds."""
    if (low == low.flat[0]).all() and (high == high.flat[0]).all():
        return _array({"type": "integer", "minimum": int(low.flat[0]), "maximum": int(high.flat[0])}, low.shape)
    parts = [_choices(*bounds) for bounds in zip(low, high, strict=True)]
    return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}


def _sized(schema: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
    """Schema of a batch of at most `limit` values; that of a single value if None."""
    if limit is None:
        return dict(schema)
    return {"type": "array", "items": dict(schema), "minItems": 1, "maxItems": limit}


def _requests(step: Mapping[str, Any], max_batch: int, is_only: bool, in_episode: bool) -> list[dict[str, Any]]:
    """Schemas of a request in a sub-step: single ones, and batches."""
    masks = step["masks"].values()
    observation: dict[str, Any] = {}
    for name, space in step["observations"].items():
        observation[name] = _space(space, name in masks)
    state: dict[str, Any] = {}
    for name, part in step["state"].items():
        state[name] = _array(_NUMBER, tuple(part["shape"]))
    most_agents = step["separate_networks"]
    agent = {"type": "integer", "minimum": 0, "maximum": 2**31 if most_agents is None else most_agents - 1}
    uniform = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
    common = {"step_key": {"enum": [step["key"]]}, "deterministic": _BOOLEAN, "with_parameters": _BOOLEAN}
    sizes = [False] if in_episode else [False, True]
    schemas = []
    for is_batch in sizes:
        limit = max_batch if is_batch else None
        parts = {name: _sized(schema, limit) for name, schema in observation.items()}
        properties: dict[str, Any] = dict(common)
        properties["observation"] = {"type": "object", "properties": parts, "required": list(parts)}
        properties["uniforms"] = _sized(_array(uniform, (step["n_uniforms"],)), limit)
        properties["agent_id"] = _sized(agent, limit)
        if state and not in_episode:
            parts = {name: _sized(schema, limit) for name, schema in state.items()}
            properties["state"] = {"type": ["object", "null"], "properties": parts, "required": list(parts)}
        required = ["observation"] if is_only else ["observation", "step_key"]
        schemas.append(
            {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        )
    return schemas


def _answers(codes: Mapping[str, Mapping[str, Any]], *refused: str) -> dict[str, Any]:
    """Descriptions of answers: given ones, and refusals."""
    answers = dict(codes)
    for code in refused:
        content = {JSON: {"schema": _ERROR}}
        answers[code] = {"description": _REFUSALS.get(code, "Refused."), "content": content}
    return answers


def _object(description: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """Description of an answer that is a JSON object."""
    schema = {"type": "object", "properties": dict(properties)}
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _act(steps: Sequence[Mapping[str, Any]], max_batch: int, in_episode: bool) -> dict[str, Any]:
    """Description of a request for a decision.

    Args:
        steps: The sub-steps in the manifest.
        max_batch: Largest number of observations of a request.
        in_episode: Whether the server keeps the policy states.
    """
    schemas = []
    for step in steps:
        schemas += _requests(step, max_batch, len(steps) == 1, in_episode)
    decision = {"action": {"type": "object"}, "state": {"type": "object"}, "parameters": {"type": "object"}}
    decided = _object("The decision: head -> action, and the new policy state if there is one.", decision)
    archive = {"schema": {"type": "string", "format": "binary"}}
    decided["content"][NPZ] = archive
    body = {"required": True, "content": {JSON: {"schema": {"anyOf": schemas}}, NPZ: archive}}
    if not in_episode:
        return {
            "summary": "Decide on an observation, or on a batch",
            "requestBody": body,
            "responses": _answers({"200": decided}, *_REFUSALS_OF_ACTS),
        }
    return {
        "summary": "Decide on the next observation of an episode",
        "parameters": [_EPISODE],
        "requestBody": body,
        "responses": _answers({"200": decided}, *_REFUSALS_OF_ACTS, "404", "503"),
    }


def description_of(manifest: Mapping[str, Any], max_batch: int, with_token: bool) -> dict[str, Any]:
    """Describe a server.

    Args:
        manifest: The manifest of its bundle.
        max_batch: Largest number of observations of a request.
        with_token: Whether requests need a token.
    """
    steps = manifest["steps"]
    begun = _object("The episode has begun.", {"episode": {"type": "string"}, "max_age": {"type": "number"}})
    text = {"description": "Metrics of Prometheus.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    ended = {"204": {"description": "The episode has ended."}}
    paths: dict[str, Any] = {
        "/act": {"post": _act(steps, max_batch, in_episode=False)},
        "/episodes": {
            "post": {"summary": "Begin an episode", "responses": _answers({"201": begun}, "401", "403", "503")},
        },
        "/episodes/{episode}": {
            "delete": {
                "summary": "End an episode",
                "parameters": [_EPISODE],
                "responses": _answers(ended, "401", "403", "404"),
            }
        },
        "/episodes/{episode}/act": {"post": _act(steps, max_batch, in_episode=True)},
        "/health": {"get": {"summary": "State of the server", "responses": {"200": _object("It decides.", {})}}},
        "/spec": {
            "get": {"summary": "Manifest", "responses": _answers({"200": _object("Manifest.", {})}, "401", "403")}
        },
        "/metrics": {"get": {"summary": "Metrics", "responses": _answers({"200": text}, "401", "403")}},
        "/reload": {
            "post": {
                "summary": "Reload the bundle from its file",
                "responses": _answers({"200": _object("The bundle that decides now.", {})}, "401", "403", "409", "500"),
            }
        },
    }
    described: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "Decisions of a maze_pl policy", "version": __version__},
        "paths": paths,
    }
    if with_token:
        described["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        described["security"] = [{"token": []}]
    return described
