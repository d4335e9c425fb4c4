"""Concatenates the outputs of one block per observation, then applies `hidden` and `recurrence`."""

from typing import Any

from gymnasium import spaces

from maze_pl.perception.blocks import (
    ConcatenationBlock,
    FlattenBlock,
    PerceptionBlock,
)
from maze_pl.perception.builders import BaseModelBuilder, vector_encoder
from maze_pl.perception.network_factories import Shapes


class ConcatModelBuilder(BaseModelBuilder):
    """Concatenates the outputs of one block per observation, then applies `hidden` and `recurrence`.

        latent = recurrence(hidden(concat(block_1(observation_1), block_2(observation_2), ...)))

    Blocks are named `<observation>_<BlockType>`, `concat`, `hidden` and `recurrence`. Their outputs
    have the same names, except for the last one, `latent`. Observations whose modality has no block
    are concatenated unchanged. So are, flattened, the continuous action heads that a critic takes.

    Discrete and MultiDiscrete observations are encoded as one-hot vectors, and scalars as
    one-element vectors, unless the block of the modality declares `takes_numbers`.

    Args:
        modality_config: Modality -> `block_type`, a `PerceptionBlock` class or its path, and
            `block_params`, its arguments without keys and shapes. The entries `hidden` and
            `recurrence` process the concatenation; they may be `{}` or null, or be omitted.
        observation_modality_mapping: Observation -> modality.
        shared_embedding_keys: Tensors of the policy's network that the critic also uses, together
            with all blocks that lead to them; null for none. With `[latent]` the critic adds only
            its value head.

    Example:
        >>> params = {"hidden_units": [32, 32]}
        >>> feature = {"block_type": "maze_pl.perception.DenseBlock", "block_params": params}
        >>> builder = ConcatModelBuilder({"feature": feature}, {"observation": "feature"})
        >>> builder.policy_network({"observation": (4,)}, {"action": (2,)}).block_names
        ['observation_DenseBlock', 'concat', 'action']
    """

    stages = ("hidden", "recurrence")

    def latent_blocks(
        self, obs_shapes: Shapes, observation_space: spaces.Dict | None = None
    ) -> dict[str, PerceptionBlock]:
        """See `BaseModelBuilder.latent_blocks`."""
        blocks: dict[str, PerceptionBlock] = {}
        joined: dict[str, tuple[int, ...]] = {}  # tensors to concatenate -> shape
        for name, shape in obs_shapes.items():
            space = None if observation_space is None else observation_space.spaces.get(name)
            chain = self._chain(name, shape, space)
            for block in chain:
                blocks[block.out_keys[0]] = block
            if chain:
                joined[chain[-1].out_keys[0]] = chain[-1].out_shapes()[0]
            else:
                joined[name] = shape
        stages = [stage for stage in self.stages if stage in self._blocks]
        in_key = "concat" if stages else "latent"
        blocks["concat"] = ConcatenationBlock(list(joined), in_key, list(joined.values()), concat_dim=-1)
        (in_shape,) = blocks["concat"].out_shapes()
        for stage in stages:
            out_key = "latent" if stage == stages[-1] else stage
            blocks[stage] = self.block(stage, in_key, out_key, in_shape)
            (in_shape,) = blocks[stage].out_shapes()
            in_key = out_key
        return blocks

    def _chain(self, name: str, shape: tuple[int, ...], space: spaces.Space[Any] | None) -> list[PerceptionBlock]:
        """Make the blocks through which an observation or action head passes, one after the other.

        Args:
            name: Name of the observation or head.
            shape: Its shape.
            space: Space of the observation, None if unknown.
        """
        modality = self.observation_modality_mapping.get(name, "")
        has_block = modality in self._blocks
        is_action_head = name not in self.observation_modality_mapping
        chain: list[PerceptionBlock] = []
        key = name
        if not (has_block and self._blocks[modality][0].takes_numbers):
            encoder = vector_encoder(name, shape, space)
            if encoder is not None:
                chain.append(encoder)
                (key,) = encoder.out_keys
                (shape,) = encoder.out_shapes()
        if has_block:
            out_key = f"{name}_{self._blocks[modality][0].__name__}"
            chain.append(self.block(modality, key, out_key, shape))
        elif is_action_head and len(shape) != 1:
            out_key = f"{name}_{FlattenBlock.__name__}"
            chain.append(FlattenBlock(key, out_key, shape, len(shape)))
        return chain
