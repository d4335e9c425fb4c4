"""Builder that concatenates the outputs of one block per observation and adds `hidden` and `recurrence`."""

from typing import Any

from gymnasium import spaces

from maze_pl.perception.blocks import (
    ConcatenationBlock,
    FlattenBlock,
    PerceptionBlock,
)
from maze_pl.perception.builders import BaseModelBuilder
from maze_pl.perception.network_factories import Shapes
from maze_pl.perception.template_blocks import vector_encoder


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
            `block_params`, its arguments without keys and shapes, or a list of such entries, each
            of which reads the output of the previous one. The entries `hidden` and `recurrence`
            process the concatenation; they may be `{}` or null, or be omitted. With `heads`, the
            modality also has blocks of action heads, see `BaseModelBuilder`; with `heads` alone,
            its observation does not enter the concatenation.
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
            if self.only_for_heads(name):
                continue
            space = None if observation_space is None else observation_space.spaces.get(name)
            chain = self._chain(name, space, obs_shapes)
            for block in chain:
                blocks[block.out_keys[0]] = block
            if chain:
                joined[chain[-1].out_keys[0]] = chain[-1].out_shapes()[0]
            else:
                joined[name] = shape
        if not joined:
            found = f"only heads read {list(obs_shapes)}, so that nothing leads to 'latent'"
            raise ValueError(f"{found}: give the modality a block_type, too, such as DeepSetBlock for a set")
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

    def _chain(self, name: str, space: spaces.Space[Any] | None, obs_shapes: Shapes) -> list[PerceptionBlock]:
        """Make the blocks through which an observation or action head passes, one after the other.

        Args:
            name: Name of the observation or head.
            space: Space of the observation, None if unknown.
            obs_shapes: Shape of each observation and head.
        """
        shape = obs_shapes[name]
        modality = self.observation_modality_mapping.get(name, "")
        has_block = modality in self._blocks
        is_action_head = name not in self.observation_modality_mapping
        chain: list[PerceptionBlock] = []
        key = name
        if not (has_block and self._blocks[modality][0].block_class.takes_numbers):
            encoder = vector_encoder(name, shape, space)
            if encoder is not None:
                chain.append(encoder)
                (key,) = encoder.out_keys
                (shape,) = encoder.out_shapes()
        if has_block:
            chain += self.chain(name, key, {**obs_shapes, key: shape})
        elif is_action_head and len(shape) != 1:
            out_key = f"{name}_{FlattenBlock.__name__}"
            chain.append(FlattenBlock(key, out_key, shape, len(shape)))
        return chain
