"""Builders, which make networks from a template.

A template maps kinds of observations to blocks, and combines the outputs of the blocks. Networks
are made once the environment's observations are known.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gymnasium import spaces
from torch import nn

from maze_pl.agents.torch_state_critic import STEP_KEY_OBSERVATION
from maze_pl.core.actor_id import StepKey
from maze_pl.core.checks import check_at_least
from maze_pl.core.spec import Spec
from maze_pl.perception.blocks import InferenceBlock, LinearOutputBlock, PerceptionBlock
from maze_pl.perception.blocks.weight_init import make_module_init_normc
from maze_pl.perception.network_factories import Shapes, takes
from maze_pl.perception.template_blocks import BlockEntry, initialise, make_block, read_modality, shared_blocks
from maze_pl.perception.template_checks import (
    require_all_observations,
    require_further_inputs,
    require_known_heads,
    require_known_inputs,
    require_known_observations,
    require_known_sub_steps,
    require_used_modalities,
)


class BaseModelBuilder(ABC):
    """Makes networks from shapes of observations; a subclass defines the blocks up to "latent".

    Weights are drawn by `make_module_init_normc`, with norm 0.01 for linear heads of policies and
    1.0 for all other layers, except those that a block sets in `after_initialisation`. Blocks of
    heads keep the weights with which they are made.

    Args:
        modality_config: Modality -> `block_type`, a `PerceptionBlock` class or its path, and
            `block_params`, its arguments without keys and shapes. A modality with `{}` or null has
            no block; one with a list has several, each of which reads the output of the previous
            one. Options of the block may name further observations as inputs. `heads`, in
            addition or alone, maps action heads to a `block_type` and `block_params` each: blocks
            such as `PointerBlock`, which read the observation, the further observations that their
            options name, and "latent". All other heads are linear layers.
        observation_modality_mapping: Observation -> modality, or null for an observation that
            networks do not read.
        shared_embedding_keys: Tensors of the policy's network that the critic also uses, together
            with all blocks that lead to them; null for none. With `[latent]` the critic adds only
            its value head. A list holds for each sub-step; a dict has one list per sub-step, and
            sub-steps without an entry share nothing.
        further_inputs: Observation -> role -> another observation, which the blocks of the first
            one's modality read in addition, such as `{nodes: {graph: edges, mask: node_exists}}`.
            The first block reads all of them after the observation, in this order; others, and
            first ones where it matters, list the roles in their entry as `further_inputs`.
        auxiliary_outputs: Name -> size of further outputs of the policy's networks, linear in
            "latent", which losses can read.

    If `latent_blocks` has a further argument `observation_space`, it also gets the spaces.

    Attributes:
        stages: Entries of `modality_config` that are not modalities of observations.
        observation_modality_mapping: Observation -> modality, without `omitted_observations`.
        omitted_observations: Observations whose modality is null.

    Raises:
        ValueError: A block cannot be used, a modality is not configured, or further inputs do not
            fit the blocks.
    """

    stages: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        modality_config: Mapping[str, Mapping[str, Any] | Sequence[Mapping[str, Any]] | None],
        observation_modality_mapping: Mapping[str, str | None],
        shared_embedding_keys: list[str] | dict[StepKey, list[str]] | None = None,
        further_inputs: Mapping[str, Mapping[str, str]] | None = None,
        auxiliary_outputs: Mapping[str, int] | None = None,
    ) -> None:
        mapping = observation_modality_mapping
        self.observation_modality_mapping = {name: kind for name, kind in mapping.items() if kind is not None}
        self.omitted_observations = mapping.keys() - self.observation_modality_mapping.keys()
        self.shared_embedding_keys = shared_embedding_keys or []
        self.further_inputs = {name: dict(roles) for name, roles in (further_inputs or {}).items()}
        self.auxiliary_outputs = dict(auxiliary_outputs or {})
        check_at_least(1, **self.auxiliary_outputs)
        self._blocks: dict[str, list[BlockEntry]] = {}
        self._heads: dict[str, tuple[str, BlockEntry]] = {}  # head -> modality and block
        for name, entry in modality_config.items():
            if entry:
                self._read_entry(name, entry)
        for name, modality in self.observation_modality_mapping.items():
            if modality not in modality_config:
                known = list(modality_config)
                raise ValueError(f"observation {name!r} has the modality {modality!r}, expected one of {known}")
        for name in self.further_inputs:
            if name not in self.observation_modality_mapping:
                needed = "a modality in observation_modality_mapping"
                raise ValueError(f"further_inputs: the observation {name!r} needs {needed}")
        for name, modality in self.observation_modality_mapping.items():
            self._check_roles(name, modality)

    def _check_roles(self, name: str, modality: str) -> None:
        """Refuse further inputs that the blocks of an observation do not read, and missing ones."""
        roles = set(self.further_inputs.get(name, ()))
        read = {role for entry in self._blocks.get(modality, ()) for role in entry.roles(roles)}
        if read != roles:
            given = f"further_inputs of the observation {name!r} are {sorted(roles)}"
            raise ValueError(f"{given}, but the blocks of its modality {modality!r} read {sorted(read)}")

    def _read_entry(self, modality: str, entry: Any) -> None:
        """Note the blocks of a modality and those of its heads."""
        read = read_modality(modality, entry)
        for head, block in read.heads.items():
            if head in self._heads:
                raise ValueError(f"the head {head!r} belongs to {self._heads[head][0]!r} and {modality!r}; name one")
            self._heads[head] = (modality, block)
        if read.chain:
            self._blocks[modality] = read.chain

    @property
    def further_keys(self) -> list[str]:
        """Observations that are further inputs of blocks, such as masks of sets.

        They are named by `further_inputs`, or by options of the blocks.
        """
        keys: dict[str, None] = {}
        for roles in self.further_inputs.values():
            keys.update(dict.fromkeys(roles.values()))
        for entry in self._entries():
            keys.update(dict.fromkeys(entry.block_class.further_keys(entry.params)))
        return list(keys)

    def _entries(self) -> list[BlockEntry]:
        """Return classes and options of all configured blocks."""
        entries = [entry for several in self._blocks.values() for entry in several]
        return [*entries, *(block for _, block in self._heads.values())]

    def only_for_heads(self, observation: str) -> bool:
        """True if an observation is read by blocks of action heads only."""
        modality = self.observation_modality_mapping.get(observation)
        if modality is None:
            return observation in self.further_keys
        return modality not in self._blocks and any(name == modality for name, _ in self._heads.values())

    @abstractmethod
    def latent_blocks(self, obs_shapes: Shapes) -> dict[str, PerceptionBlock]:
        """Return blocks by name; the last one writes "latent".

        Args:
            obs_shapes: Shape of each observation that has a modality or is a further input; for
                critics also of "step_key", which names the current one of several sub-steps, and of
                the continuous heads of the action.
        """

    def check(self, spec: Spec) -> None:
        """Refuse a mapping that does not fit the observations of an environment.

        Observations that mask actions need no modality: policies apply them to the networks'
        outputs.

        Raises:
            ValueError: An observation has no modality, the mapping names an unknown observation, an
                option an unknown head or input, a configured modality is unused, or blocks are
                shared in an unknown sub-step.
        """
        mapped = self.observation_modality_mapping
        further = self.further_keys
        require_known_observations(spec, {*mapped, *self.omitted_observations})
        require_further_inputs(spec, self.further_inputs)
        require_known_inputs(spec, further)
        require_all_observations(spec, mapped, {*further, *self.omitted_observations})
        require_known_heads(spec, self._heads)
        configured = [*self._blocks, *(modality for modality, _ in self._heads.values())]
        require_used_modalities(configured, {*mapped.values(), *self.stages})
        if isinstance(self.shared_embedding_keys, dict):
            require_known_sub_steps(spec, self.shared_embedding_keys)

    def shared_keys(self, step_key: StepKey | None) -> list[str]:
        """Tensors of the policy's network of a sub-step that the critic also uses.

        Args:
            step_key: The sub-step; None if it is not known, which suffices for keys that hold for
                each sub-step.
        """
        keys = self.shared_embedding_keys
        if isinstance(keys, list):
            return keys
        by_name = {str(key): names for key, names in keys.items()}  # numbers are text in some configurations
        return by_name.get(str(step_key), [])

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
        auxiliary: dict[str, tuple[int, ...]] = {name: (size,) for name, size in self.auxiliary_outputs.items()}
        if clashing := sorted(auxiliary.keys() & action_logits_shapes.keys()):
            raise ValueError(f"auxiliary_outputs {clashing} have names of action heads: rename them")
        shapes = {**action_logits_shapes, **auxiliary}
        network = self._network(obs_shapes, shapes, 0.01, {}, observation_space)
        network.auxiliary_shapes = auxiliary
        return network

    def critic_network(
        self,
        obs_shapes: Shapes,
        policy_network: nn.Module | None = None,
        observation_space: spaces.Dict | None = None,
        step_key: StepKey | None = None,
    ) -> InferenceBlock:
        """Make a network that returns the value.

        Args:
            obs_shapes: Observation -> shape.
            policy_network: The policy's network, whose blocks may be shared.
            observation_space: Spaces of the observations, which distinguish categories from
                numbers.
            step_key: Sub-step of the policy's network; needed if sub-steps share different blocks.
        """
        shared = shared_blocks(policy_network, self.shared_keys(step_key))
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
        further: Shapes | None = None,
    ) -> PerceptionBlock:
        """Make the block of a modality that has exactly one.

        Args:
            modality: The modality.
            in_key: Name of the input.
            out_key: Name of the output.
            in_shape: Shape of the input.
            further: Tensor -> shape, inputs that options of the block may name.

        Raises:
            ValueError: The block cannot be made, or the modality has several.
        """
        where = f"modality_config: {modality!r}"
        entries = self._blocks[modality]
        if len(entries) > 1:
            raise ValueError(f"{where} can have only one block, got {len(entries)}")
        return make_block(entries[0], where, {in_key: in_shape}, out_key, further or {})

    def chain(self, name: str, key: str, obs_shapes: Shapes) -> list[PerceptionBlock]:
        """Make the blocks of an observation's modality, one after the other.

        Block and output of a class `<BlockType>` are named `<observation>_<BlockType>`, with a
        number if there are several of the class.

        Args:
            name: The observation.
            key: Tensor that the first block reads, the observation or an encoding of it.
            obs_shapes: Shape of this tensor and of all observations.
        """
        modality = self.observation_modality_mapping[name]
        names_by_role = self.further_inputs.get(name, {})
        chain: list[PerceptionBlock] = []
        classes: list[str] = []
        in_shape = obs_shapes[key]
        for entry in self._blocks[modality]:
            inputs = {key: in_shape}
            for role in entry.roles(names_by_role):
                inputs[names_by_role[role]] = obs_shapes[names_by_role[role]]
            class_name = entry.block_class.__name__
            classes.append(class_name)
            number = classes.count(class_name)
            out_key = f"{name}_{class_name}" if number == 1 else f"{name}_{class_name}_{number}"
            chain.append(make_block(entry, f"modality_config: {modality!r}", inputs, out_key, obs_shapes))
            key = out_key
            (in_shape,) = chain[-1].out_shapes()
        return chain

    def _head(self, head: str, shape: tuple[int, ...], std: float, tensors: Shapes) -> PerceptionBlock:
        """Make the block that writes a head, given the shapes of observations and "latent"."""
        latent = {"latent": tensors["latent"]}
        if head not in self._heads:
            linear = LinearOutputBlock("latent", head, [latent["latent"]], math.prod(shape))
            linear.apply(make_module_init_normc(std))
            return linear
        modality, entry = self._heads[head]
        mapping = self.observation_modality_mapping
        names = [name for name in tensors if mapping.get(name) == modality]
        where = f"modality_config: {modality!r}: heads: {head!r}"
        if len(names) != 1:
            raise ValueError(f"{where} needs one observation of this modality in its sub-step, not {names}")
        return make_block(entry, where, {names[0]: tensors[names[0]]} | latent, head, tensors)

    def _network(
        self,
        obs_shapes: Shapes,
        out_shapes: Shapes,
        head_std: float,
        shared: Mapping[str, PerceptionBlock],
        observation_space: spaces.Dict | None,
        action_shapes: Shapes | None = None,
    ) -> InferenceBlock:
        """Make a network of the template's blocks and its heads.

        Args:
            obs_shapes: Observation -> shape.
            out_shapes: Head -> shape.
            head_std: Norm of the heads' weights.
            shared: Blocks of the policy's network, which replace blocks of the same names.
            observation_space: Spaces of the observations.
            action_shapes: Continuous head of the action -> shape, further inputs.
        """
        known = {STEP_KEY_OBSERVATION, *self.observation_modality_mapping, *self.further_keys}
        if STEP_KEY_OBSERVATION in obs_shapes:  # indices of other sub-steps are zeros there, not items
            optional = {key for entry in self._entries() for key in entry.block_class.optional_keys(entry.params)}
            known -= optional - self.observation_modality_mapping.keys()
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
            initialise(block)
        blocks |= shared
        clashing = [head for head in out_shapes if head in blocks or head == "latent"]
        if clashing:
            found = f"the heads {clashing} have names of the template's blocks, {list(blocks)}"
            raise ValueError(f"{found}: rename the heads")
        tensors = {**in_shapes, "latent": latent_shapes[0]}
        for head, shape in out_shapes.items():
            blocks[head] = self._head(head, shape, head_std, tensors)
        return InferenceBlock(list(in_shapes), list(out_shapes), list(in_shapes.values()), blocks)
