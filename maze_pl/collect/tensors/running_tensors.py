"""Tensors of running episodes on a device, which checkpoints hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from maze_pl.envs.tensors.tensor_env import TensorEnv
from maze_pl.envs.tensors.tensor_wrapper import faults_within, tensor_wrappers_of


class RunningTensors:
    """Tensors of an environment, of its wrappers and of its collector that running episodes change.

    Options are left out. Flags of faults are part of them, but are not saved: they are read and
    lowered after each rollout.

    Args:
        env: The environment, just allocated.
        of_collector: Tensors of the collector, by name.
    """

    def __init__(self, env: TensorEnv, of_collector: Mapping[str, Tensor]) -> None:
        self._env = env
        self._of_collector = dict(of_collector)

    def tensors(self) -> dict[str, Tensor]:
        """Return all tensors, by name."""
        tensors = {f"state {name}": tensor for name, tensor in self._env.state_tensors().items()}
        return tensors | self._of_collector

    def state_dict(self) -> dict[str, Any]:
        """Return copies on the host: `tensors`, and `wrapper_tensors` by wrapper."""
        tensors, of_wrappers = self._saved()
        copies = {name: _copies(own) for name, own in of_wrappers.items()}
        return {"tensors": _copies(tensors), "wrapper_tensors": copies}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state_dict`; wrappers without saved tensors stay as they are.

        Raises:
            ValueError: The environment, or a wrapper, has other tensors.
        """
        tensors, of_wrappers = self._saved()
        innermost = self._innermost()
        names = {f"state {name}" for name in innermost.own_tensors()}
        _load(type(innermost).__name__, tensors, state["tensors"], names)
        saved = state.get("wrapper_tensors", {})
        for wrapper in tensor_wrappers_of(self._env):
            name = wrapper.statistics_name
            if name in saved:
                _load(name, of_wrappers[name], saved[name], set(wrapper.own_tensors()))

    def _saved(self) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
        """Return what is saved of the environment and the collector, and of wrappers by name."""
        flags = [tensor for flags in faults_within(self._env) for tensor in flags.values()]
        saved = {id(tensor) for tensor in self._env.state_tensors().values()} - set(map(id, flags))
        of_wrappers = {}
        for wrapper in tensor_wrappers_of(self._env):
            of_wrappers[wrapper.statistics_name] = _chosen(wrapper.own_tensors(), saved)
        of_env = _chosen(self._innermost().own_tensors(), saved)
        named = {f"state {name}": tensor for name, tensor in of_env.items()}
        return named | self._of_collector, of_wrappers

    def _innermost(self) -> TensorEnv:
        env = self._env
        for wrapper in tensor_wrappers_of(env):
            env = wrapper.env
        return env


def _chosen(tensors: Mapping[str, Tensor], ids: set[int]) -> dict[str, Tensor]:
    """Return the tensors whose ids are among some."""
    return {name: tensor for name, tensor in tensors.items() if id(tensor) in ids}


def _copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors on the host."""
    return {name: tensor.cpu().clone() for name, tensor in tensors.items()}


def _load(owner: str, tensors: Mapping[str, Tensor], saved: Mapping[str, Tensor], names: set[str]) -> None:
    """Restore tensors in place.

    Args:
        owner: Name of the environment or of the wrapper, for messages.
        tensors: The tensors, by name.
        saved: The saved ones.
        names: All tensors of the owner, also options, which earlier versions saved.

    Raises:
        ValueError: Other tensors were saved.
    """
    if tensors.keys() != saved.keys() - (names - tensors.keys()):
        came = f"{sorted(saved)}, but {owner} has {sorted(tensors)}"
        raise ValueError(f"the saved state consists of {came}; resume with the code that saved it")
    for name, tensor in tensors.items():
        if saved[name].shape != tensor.shape:
            shapes = f"{tuple(saved[name].shape)}, expected {tuple(tensor.shape)}"
            raise ValueError(f"the saved tensor {name!r} of {owner} has shape {shapes}")
        tensor.copy_(saved[name])
