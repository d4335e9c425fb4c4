"""The graphs of all sub-steps of a policy in its environment, and their description."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import torch

from maze_pl.agents import TorchPolicy
from maze_pl.bundle.onnx_graphs import to_onnx
from maze_pl.bundle.step_graph import StepGraph
from maze_pl.bundle.wrapper_roles import WrapperRoles, wrapper_roles
from maze_pl.core.actor_id import StepKey
from maze_pl.envs.wrapper import Wrapper

_N_TRACED: Final = 3
"""Actors in the inputs of a trace; the graphs take any number."""


@dataclass(frozen=True)
class TracedPolicy:
    """A policy and its wrappers as graphs.

    Attributes:
        roles: Roles of the wrappers.
        graphs: Step key -> module.
        members: Name of a member of the bundle -> ONNX graph.
    """

    roles: WrapperRoles
    graphs: dict[StepKey, StepGraph]
    members: dict[str, bytes]

    def described(self) -> dict[str, Any]:
        """Return the part of the manifest about sub-steps and wrappers."""
        steps: list[dict[str, Any]] = []
        for name, graph in zip(self.members, self.graphs.values(), strict=True):
            steps.append({"key": graph.key, "graph": name, **_described(graph)})
        return {"steps": steps, "wrappers": [asdict(role) for role in self.roles.roles]}


def traced(policy: TorchPolicy, env: Wrapper) -> TracedPolicy:
    """Trace a policy in evaluation mode.

    Args:
        policy: The policy.
        env: The environment with all its wrappers and their final statistics.

    Raises:
        ExportError: An operation or a distribution cannot be exported.
    """
    roles = wrapper_roles(env)
    graphs: dict[StepKey, StepGraph] = {}
    members: dict[str, bytes] = {}
    for number, key in enumerate(policy.spec.step_keys):
        graphs[key] = StepGraph(policy, key, roles).eval()
        members[f"graphs/{number}.onnx"] = _traced(graphs[key])
    return TracedPolicy(roles, graphs, members)


def _traced(graph: StepGraph) -> bytes:
    """Translate the graph of a sub-step."""
    inputs = graph.example(_N_TRACED, torch.Generator().manual_seed(0))
    with torch.inference_mode():
        outputs = list(graph(inputs))
    return to_onnx(graph, inputs, outputs, f"the policy of sub-step {graph.key!r}")


def _described(graph: StepGraph) -> dict[str, Any]:
    """Describe the inputs and outputs of a graph."""
    heads = {}
    for head, outputs in graph.heads.items():
        heads[head] = {
            "distribution": graph.distribution_of(head),
            "parameters": outputs.description,
            "size": outputs.size,
            "n_uniforms": outputs.n_uniforms,
            "choices": list(outputs.choices),
        }
    state = {name: {"dtype": dtype.name, "shape": list(shape)} for name, (dtype, shape) in graph.state.items()}
    return {
        "observations": graph.observations,
        "actions": graph.actions,
        "masks": graph.masks,
        "heads": heads,
        "n_uniforms": graph.n_uniforms,
        "state": state,
        "separate_networks": graph.n_networks if graph.n_networks > 1 else None,
        "exploration": graph.exploration,
    }
