"""Builders, which make networks from a template.

A template maps kinds of observations to blocks, and combines the outputs of the blocks. Networks
are made once the environment's observations are known.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from gymnasium import spaces
from torch import nn

from maze_pl.agents.torch_state_critic import STEP_KEY_OBSERVATION
from maze_pl.core.class_path import import_class
from maze_pl.core.spec import Spec
from maze_pl.perception.blocks import (
    InferenceBlock,
    LinearOutputBlock,
    OneHotBlock,
    PerceptionBlock,
    UnsqueezeBlock,
)
from maze_pl.perception.blocks.weight_init import make_module_init_normc
from maze_pl.perception.network_factories import Shapes, takes


class BaseModelBuilder(ABC):
    """Makes networks from shapes of observations; a subclass defines the blocks up to "latent".

    Weights are drawn by `make_module_init_normc`, with norm 0.01 for the heads of policies and 1.0
    for all other layers.

    Args:
        modality_config: Modality -> `block_type`, a `PerceptionBlock` class or its path, and
            `block_params`, its arguments without keys and shapes. A modality with `{}` or null has
            no block.
        observation_modality_mapping: Observation -> modality.
        shared_embedding_keys: Tensors of the policy's network that the critic also uses, together
            with all blocks that lead to them; null for none. With `[latent]` the critic adds only
            its value head.

    If `latent_blocks` has a further argument `observation_space`, it also gets the spaces.

    Attributes:
        stages: Entries of `modality_config` that are not modalities of observations.

    Raises:
        ValueError: A block cannot be used, or a modality is not configured.
    """

    stages: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        modality_config: Mapping[str, Mapping[str, Any] | None],
        observation_modality_mapping: Mapping[str, str],
        shared_embedding_keys: list[str] | None = None,
    ) -> None:
        self.observation_modality_mapping = observation_modality_mapping
        self.shared_embedding_keys = shared_embedding_keys or []
        self._blocks = {name: _block_class(name, entry) for name, entry in modality_config.items() if entry}
        for name, modality in observation_modality_mapping.items():
            if modality not in modality_config:
                known = list(modality_config)
                raise ValueError(f"observation {name!r} has the modality {modality!r}, none of {known}")

    @abstractmethod
    def latent_blocks(self, obs_shapes: Shapes) -> dict[str, PerceptionBlock]:
        """Return blocks by name; the last one writes "latent".

        Args:
            obs_shapes: Shape of each observation that has a modality; for critics also of
                "step_key", which names the current one of several sub-steps, and of the continuous
                heads of the action.
        """

    def check(self, spec: Spec) -> None:
        """Refuse a mapping that does not fit the observations of an environment.

        Observations that mask actions need no modality: policies apply them to the networks'
        outputs.

        Raises:
            ValueError: An observation has no modality, the mapping names an unknown observation, or
                a configured modality is unused.
        """
        option = "observation_modality_mapping"
        mapped = self.observation_modality_mapping.keys()
        known = {STEP_KEY_OBSERVATION}
        for step in spec.steps.values():
            known.update(step.observation_shapes)
            for head, space in step.action_space.items():
                if isinstance(space, spaces.Box):  # an input of state-action critics
                    known.add(head)
        unknown = sorted(mapped - known)
        if unknown:
            raise ValueError(f"{option} names {unknown}; the observations are {sorted(known)}")
        for key, step in spec.steps.items():
            optional = set(step.masks.values())
            missing = [name for name in step.observation_shapes if name not in mapped and name not in optional]
            if missing:
                raise ValueError(f"observations {missing} of sub-step {key!r}: {option} lacks them")
            if not mapped & step.observation_shapes.keys():
                raise ValueError(f"{option} leaves sub-step {key!r} without any observation")
        usable = {*self.observation_modality_mapping.values(), *self.stages}
        unused = [name for name in self._blocks if name not in usable]
        if unused:
            remedy = f"in use may be {sorted(usable)}"
            raise ValueError(f"modality_config has {unused}, which nothing uses; {remedy}")

    def policy_network(
        self,
        obs_shapes: Shapes,
        action_logits_shapes: Shapes,
        observation_space: spaces.Dict | None = None,
    ) -> InferenceBlock:
        """Make a network that returns the logits of all heads.

        Args:
            obs_shapes: Observation -> shape.
            action_logits_shapes: Head -> shape of its logits.
            observation_space: Spaces of the observations, which distinguish categories from
                numbers.
        """
        return self._network(obs_shapes, action_logits_shapes, 0.01, {}, observation_space)

    def critic_network(
        self,
        obs_shapes: Shapes,
        policy_network: nn.Module | None = None,
        observation_space: spaces.Dict | None = None,
    ) -> InferenceBlock:
        """Make a network that returns the value.

        Args:
            obs_shapes: Observation -> shape.
            policy_network: The policy's network, whose blocks may be shared.
            observation_space: Spaces of the observations, which distinguish categories from
                numbers.
        """
        shared = self._shared(policy_network)
        return self._network(obs_shapes, {"value": (1,)}, 1.0, shared, observation_space)

    def state_action_network(
        self,
        obs_shapes: Shapes,
        action_shapes: Shapes,
        q_shapes: Shapes,
        observation_space: spaces.Dict | None = None,
    ) -> InferenceBlock:
        """Make a Q-network.

        Args:
            obs_shapes: Observation -> shape.
            action_shapes: Continuous head of the action -> shape. Heads need no modality.
            q_shapes: Output -> shape.
            observation_space: Spaces of the observations, which distinguish categories from
                numbers.
        """
        return self._network(obs_shapes, q_shapes, 1.0, {}, observation_space, action_shapes)

    def block(
        self,
        modality: str,
        in_key: str,
        out_key: str,
        in_shape: tuple[int, ...],
    ) -> PerceptionBlock:
        """Make the block of a modality that has one."""
        block_class, params = self._blocks[modality]
        try:
            block = block_class(in_key, out_key, in_shape, **params)
            block.out_shapes()  # may fail, too
            return block
        except Exception as error:  # any exception, as the block may be user code
            where = f"modality_config: {modality!r}"
            refused = f"{where} cannot be made for {in_key!r} of shape {in_shape}"
            raise ValueError(f"{refused}: {type(error).__name__}: {error}") from error

    def _network(
        self,
        obs_shapes: Shapes,
        out_shapes: Shapes,
        head_std: float,
        shared: Mapping[str, PerceptionBlock],
        observation_space: spaces.Dict | None,
        action_shapes: Shapes | None = None,
    ) -> InferenceBlock:
        """Make a network of the template's blocks and linear heads.

        Args:
            obs_shapes: Observation -> shape.
            out_shapes: Head -> shape.
            head_std: Norm of the heads' weights.
            shared: Blocks of the policy's network, which replace blocks of the same names.
            observation_space: Spaces of the observations.
            action_shapes: Continuous head of the action -> shape, further inputs.
        """
        known = {STEP_KEY_OBSERVATION, *self.observation_modality_mapping}
        in_shapes = {name: shape for name, shape in obs_shapes.items() if name in known}
        in_shapes.update(action_shapes or {})
        options: dict[str, Any] = {}
        if takes(self.latent_blocks, "observation_space"):
            options["observation_space"] = observation_space
        blocks = self.latent_blocks(in_shapes, **options)
        latent_shapes = list(blocks.values())[-1].out_shapes()
        if len(latent_shapes[0]) != 1:
            found = f"'latent' has the shape {latent_shapes[0]}, expected a vector, from {in_shapes}"
            remedy = "use blocks that give vectors, such as FlattenDenseBlock or VGGConvolutionDenseBlock"
            raise ValueError(f"{found}: {remedy}")
        for block in blocks.values():
            block.apply(make_module_init_normc(1.0))
        blocks |= shared
        clashing = [head for head in out_shapes if head in blocks or head == "latent"]
        if clashing:
            found = f"the heads {clashing} have names of the template's blocks, {list(blocks)}"
            raise ValueError(f"{found}: rename the heads")
        for head, shape in out_shapes.items():
            linear = LinearOutputBlock("latent", head, latent_shapes, math.prod(shape))
            blocks[head] = linear.apply(make_module_init_normc(head_std))
        return InferenceBlock(list(in_shapes), list(out_shapes), list(in_shapes.values()), blocks)

    def _shared(self, policy_network: nn.Module | None) -> dict[str, PerceptionBlock]:
        """Return the blocks of the policy's network that lead to the shared keys."""
        wanted = set(self.shared_embedding_keys)
        if not wanted:
            return {}
        if not isinstance(policy_network, InferenceBlock):
            found = f"the policy's {type(policy_network).__name__} is not made from a template"
            raise ValueError(f"shared_embedding_keys: {found}")
        blocks = policy_network.perception_blocks
        known: list[str] = []
        for block in blocks.values():
            known += [key for key in block.out_keys if key not in policy_network.out_keys]
        unknown = sorted(wanted - set(known))
        if unknown:
            found = f"there is no {unknown}; tensors of the policy are {known}"
            raise ValueError(f"shared_embedding_keys: {found}")
        shared = {}
        for name, block in reversed(blocks.items()):  # each block comes after its inputs
            if wanted & {*block.out_keys}:
                shared[name] = block
                wanted |= {*block.in_keys}
        return shared


def vector_encoder(name: str, shape: tuple[int, ...], space: spaces.Space[Any] | None) -> PerceptionBlock | None:
    """Make a block that encodes categories or a scalar as a vector; None if no encoding is needed.

    Args:
        name: Name of the observation; the block writes `<name>_<BlockType>`.
        shape: Shape of the observation.
        space: Space of the observation, None if unknown.
    """
    if isinstance(space, spaces.Discrete):
        return OneHotBlock(name, f"{name}_OneHotBlock", shape, int(space.n), int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = space.nvec.flatten().tolist()
        starts = space.start.flatten().tolist()
        return OneHotBlock(name, f"{name}_OneHotBlock", shape, sizes, starts)
    return None if shape else UnsqueezeBlock(name, f"{name}_UnsqueezeBlock", shape, 0)


def _block_class(modality: str, entry: Mapping[str, Any]) -> tuple[type[PerceptionBlock], Mapping[str, Any]]:
    """Return class and arguments of a modality's block."""
    block_class: type[nn.Module] = nn.Module
    is_entry = isinstance(entry, Mapping) and "block_type" in entry
    if is_entry and entry.keys() <= {"block_type", "block_params"}:
        block_class = import_class(entry["block_type"], nn.Module)
    if not issubclass(block_class, PerceptionBlock):
        needed = "block_type, a PerceptionBlock, and block_params"
        raise ValueError(f"{modality!r} needs {needed}; got {entry}")
    return block_class, entry.get("block_params") or {}
