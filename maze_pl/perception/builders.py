"""Templates of networks: which blocks process which kind of observation, and how what they give is put together.

What an environment shows is known when its networks are made, so that a configuration only says what is done with each
kind of observation.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

from maze_pl.agents.torch_state_critic import STEP_KEY_OBSERVATION
from maze_pl.core.spec import Spec
from maze_pl.perception.blocks import ConcatenationBlock, InferenceBlock, LinearOutputBlock, PerceptionBlock
from maze_pl.perception.module_class import module_class
from maze_pl.perception.weight_init import make_module_init_normc

ObsShapes = Mapping[str, tuple[int, ...]]


class BaseModelBuilder(ABC):
    """Makes networks from the shapes of observations; a subclass says which blocks lead to the tensor "latent".

    Weights are drawn by `make_module_init_normc`: with norm 0.01 for the heads of policies, 1.0 for all else.

    Args:
        modality_config: Modality -> `block_type`, a `PerceptionBlock` class or its path, and `block_params`, its
            arguments without keys and shapes; a modality without them, `{}` or null, has no block.
        observation_modality_mapping: Observation -> modality.
        shared_embedding_keys: Tensors of the policy's network that the critic uses too, together with all blocks that
            lead to them; null for none. `[latent]` leaves nothing but the value itself to the critic.

    Attributes:
        stages: Entries of `modality_config` that belong to no observation.

    Raises:
        ValueError: A block cannot be used, or a modality is not configured.
    """

    stages: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        modality_config: dict[str, dict[str, Any] | None],
        observation_modality_mapping: dict[str, str],
        shared_embedding_keys: list[str] | None = None,
    ) -> None:
        self.observation_modality_mapping = observation_modality_mapping
        self.shared_embedding_keys = shared_embedding_keys or []
        self._blocks = {name: _block_class(name, entry) for name, entry in modality_config.items() if entry}
        for name, modality in observation_modality_mapping.items():
            if modality not in modality_config:
                raise ValueError(f"observation {name!r} has the modality {modality!r}, none of {[*modality_config]}")

    @abstractmethod
    def latent_blocks(self, obs_shapes: ObsShapes) -> dict[str, PerceptionBlock]:
        """Blocks by name, the last of which writes "latent".

        Args:
            obs_shapes: Shape of each observation that has a modality, and of "step_key", by which critics of several
                sub-steps know which one it is.
        """

    def check(self, spec: Spec) -> None:
        """Refuse a mapping that does not fit the observations of an environment.

        Observations that mask actions need no modality: policies apply them to what networks give.

        Raises:
            ValueError: An observation has no modality, one that has one does not exist, or nothing uses a modality.
        """
        mapped = self.observation_modality_mapping.keys()
        known = {STEP_KEY_OBSERVATION, *(name for step in spec.steps.values() for name in step.observation_shapes)}
        if unknown := sorted(mapped - known):
            raise ValueError(f"observation_modality_mapping names {unknown}; the observations are {sorted(known)}")
        for key, step in spec.steps.items():
            if missing := [name for name in step.observation_shapes if name not in {*mapped, *step.masks.values()}]:
                raise ValueError(f"observations {missing} of sub-step {key!r}: observation_modality_mapping lacks them")
            if not mapped & step.observation_shapes.keys():
                raise ValueError(f"observation_modality_mapping leaves sub-step {key!r} without any observation")
        used = {*self.observation_modality_mapping.values(), *self.stages}
        if unused := [name for name in self._blocks if name not in used]:
            raise ValueError(f"modality_config has {unused}, which nothing uses; in use may be {sorted(used)}")

    def policy_network(self, obs_shapes: ObsShapes, action_logits_shapes: ObsShapes) -> InferenceBlock:
        """A network that gives the logits of all heads."""
        sizes = {head: math.prod(shape) for head, shape in action_logits_shapes.items()}
        return self._network(obs_shapes, sizes, 0.01, {})

    def critic_network(self, obs_shapes: ObsShapes, policy_network: nn.Module | None = None) -> InferenceBlock:
        """A network that gives the value.

        Args:
            obs_shapes: Observation -> shape.
            policy_network: Has the blocks that are shared, if any are.
        """
        return self._network(obs_shapes, {"value": 1}, 1.0, self._shared(policy_network))

    def block(self, modality: str, in_key: str, out_key: str, in_shape: tuple[int, ...]) -> PerceptionBlock:
        """The block of a modality that has one."""
        block_class, params = self._blocks[modality]
        try:
            block = block_class(in_key, out_key, in_shape, **params)
            block.out_shapes()  # here too a block may fail
            return block
        except Exception as error:  # of any kind, since the block may be the user's
            what = f"modality_config: {modality!r} cannot be made for {in_key!r} of shape {in_shape}"
            raise ValueError(f"{what}: {type(error).__name__}: {error}") from error

    def _network(
        self, obs_shapes: ObsShapes, sizes: Mapping[str, int], head_std: float, shared: Mapping[str, PerceptionBlock]
    ) -> InferenceBlock:
        known = {STEP_KEY_OBSERVATION, *self.observation_modality_mapping}
        seen = {name: shape for name, shape in obs_shapes.items() if name in known}
        blocks = self.latent_blocks(seen)
        shapes = [*blocks.values()][-1].out_shapes()
        for block in blocks.values():
            block.apply(make_module_init_normc(1.0))
        blocks |= shared
        if taken := [head for head in sizes if head in blocks or head == "latent"]:
            raise ValueError(f"the heads {taken} have names of the template's blocks, {[*blocks]}: rename the heads")
        for head, size in sizes.items():
            blocks[head] = LinearOutputBlock("latent", head, shapes, size).apply(make_module_init_normc(head_std))
        return InferenceBlock([*seen], [*sizes], [*seen.values()], blocks)

    def _shared(self, policy_network: nn.Module | None) -> dict[str, PerceptionBlock]:
        """The blocks of the policy's network that lead to the shared keys."""
        wanted = set(self.shared_embedding_keys)
        if not wanted:
            return {}
        if not isinstance(policy_network, InferenceBlock):
            raise ValueError(f"shared_embedding_keys: the policy's {type(policy_network).__name__} is of no template")
        blocks = policy_network.perception_blocks
        known = [key for block in blocks.values() for key in block.out_keys if key not in policy_network.out_keys]
        if unknown := wanted - {*known}:
            raise ValueError(f"shared_embedding_keys: there is no {sorted(unknown)}; tensors of the policy are {known}")
        shared = {}
        for name, block in reversed(blocks.items()):  # each block comes after those that it reads from
            if wanted & {*block.out_keys}:
                shared[name] = block
                wanted |= {*block.in_keys}
        return shared


class ConcatModelBuilder(BaseModelBuilder):
    """A block for each observation, what they give in one vector, and then the blocks `hidden` and `recurrence`.

        latent = recurrence(hidden(concat(block_1(observation_1), block_2(observation_2), ...)))

    Blocks are called `<observation>_<BlockType>`, `concat`, `hidden` and `recurrence`, and so are the tensors that they
    write, but for the last one, which is `latent`. Observations whose modality has no block are concatenated as they
    are.

    Args:
        modality_config: Modality -> `block_type`, a `PerceptionBlock` class or its path, and `block_params`, its
            arguments without keys and shapes. The entries `hidden` and `recurrence` process what comes after the
            concatenation; they may be `{}` or null, or be left out.
        observation_modality_mapping: Observation -> modality.
        shared_embedding_keys: Tensors of the policy's network that the critic uses too, together with all blocks that
            lead to them; null for none. `[latent]` leaves nothing but the value itself to the critic.

    Example:
        >>> feature = {"block_type": "maze_pl.perception.DenseBlock", "block_params": {"hidden_units": [32, 32]}}
        >>> builder = ConcatModelBuilder({"feature": feature, "hidden": {}}, {"observation": "feature"})
        >>> builder.policy_network({"observation": (4,)}, {"action": (2,)}).block_names
        ['observation_DenseBlock', 'concat', 'action']
    """

    stages = ("hidden", "recurrence")

    def latent_blocks(self, obs_shapes: ObsShapes) -> dict[str, PerceptionBlock]:
        """See `BaseModelBuilder.latent_blocks`."""
        blocks, joined = dict[str, PerceptionBlock](), dict[str, tuple[int, ...]]()
        for name, shape in obs_shapes.items():
            modality = self.observation_modality_mapping.get(name, "")
            if modality in self._blocks:
                key = f"{name}_{self._blocks[modality][0].__name__}"
                blocks[key] = self.block(modality, name, key, shape)
                joined[key] = blocks[key].out_shapes()[0]
            else:
                joined[name] = shape
        stages = ["concat", *(name for name in self.stages if name in self._blocks)]
        tensors = [*stages[:-1], "latent"]
        blocks["concat"] = ConcatenationBlock([*joined], tensors[0], [*joined.values()], concat_dim=-1)
        for stage, in_key, out_key in zip(stages[1:], tensors, tensors[1:], strict=False):
            blocks[stage] = self.block(stage, in_key, out_key, blocks[in_key].out_shapes()[0])
        return blocks


def _block_class(modality: str, entry: Mapping[str, Any]) -> tuple[type[PerceptionBlock], Mapping[str, Any]]:
    """Class and arguments of a modality's block."""
    known = isinstance(entry, Mapping) and "block_type" in entry.keys() <= {"block_type", "block_params"}
    found = module_class(entry["block_type"]) if known else nn.Module
    if not issubclass(found, PerceptionBlock):
        raise ValueError(f"{modality!r} needs block_type, a PerceptionBlock, and block_params; got {entry}")
    return found, entry.get("block_params") or {}
