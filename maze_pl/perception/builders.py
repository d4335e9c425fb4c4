"""Construction of networks, from classes that users name or from a template.

A template maps kinds of observations to blocks, and combines the outputs of the blocks. Networks
are made once the environment's observations are known, and are checked against its spaces
immediately.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.network_io import NetworkInput, networks_by_step, state_shapes, torch_dtype
from maze_pl.agents.torch_state_critic import STEP_KEY_OBSERVATION
from maze_pl.core.actor_id import StepKey
from maze_pl.core.class_path import import_class
from maze_pl.core.policy import evaluation_mode
from maze_pl.core.spec import Spec
from maze_pl.perception.blocks import (
    ConcatenationBlock,
    FlattenBlock,
    InferenceBlock,
    LinearOutputBlock,
    OneHotBlock,
    PerceptionBlock,
    UnsqueezeBlock,
)
from maze_pl.perception.blocks.layers import make_module_init_normc

Shapes = Mapping[str, tuple[int, ...]]
Factory = TypeVar("Factory", bound=Callable[..., nn.Module])


if TYPE_CHECKING:  # a class may omit arguments it does not need, which a protocol cannot express
    PolicyNetworkFactory = Callable[..., nn.Module]
    CriticNetworkFactory = Callable[..., nn.Module]
    StateActionNetworkFactory = Callable[..., nn.Module]
else:  # tells the configuration which constructor arguments are not set by it

    class PolicyNetworkFactory(Protocol):
        """A policy network class with all its arguments but the shapes, as `class_path` and `init_args` in YAML."""

        def __call__(
            self, *, obs_shapes: dict[str, Any], action_logits_shapes: dict[str, Any], observation_space: spaces.Dict
        ) -> nn.Module:
            """Make the network; shapes are tuples by name, without batch dimensions.

            `observation_space` is passed only if the constructor has such an argument.
            """

    class CriticNetworkFactory(Protocol):
        """A state critic network class with all its arguments but the shapes, as in YAML."""

        def __call__(
            self, *, obs_shapes: dict[str, Any], policy_network: nn.Module, observation_space: spaces.Dict
        ) -> nn.Module:
            """Make the network; `obs_shapes` maps names to shapes (tuples) without batch dimensions.

            `policy_network` and `observation_space` are passed only if the constructor has such an
            argument. `policy_network` is the policy's network of the same sub-step; the critic's
            network may share parts of it.
            """

    class StateActionNetworkFactory(Protocol):
        """A state-action critic network class with all its arguments but the shapes, as in YAML."""

        def __call__(
            self,
            *,
            obs_shapes: dict[str, Any],
            action_shapes: dict[str, Any],
            q_shapes: dict[str, Any],
            observation_space: spaces.Dict,
        ) -> nn.Module:
            """Make the network; all arguments map names to shapes (tuples) without batch dimensions.

            `action_shapes`: shapes of the continuous heads of the action, which are inputs in
            addition to the observations. `q_shapes`: shapes of the outputs, (L,) for each discrete
            head, with L the number of options of all its choices, two for a bit; {"q_value": (1,)}
            if there is no discrete head.
            """


def factories_by_step(
    networks: Sequence[Factory] | Mapping[StepKey, Factory] | None, step_keys: Sequence[StepKey]
) -> dict[StepKey, Factory]:
    """Assign factories to sub-steps, or one to `all`; a single one in a list makes the networks of all sub-steps.

    Raises:
        ValueError: There is not exactly one factory per sub-step, or several sub-steps would use
            the same network instance.
    """
    if networks is None:
        raise ValueError("networks are needed: name their classes, or use a TemplateModelComposer")
    if list(step_keys) == ["all"]:
        if len(networks) != 1:
            raise ValueError(f"a shared critic has one network for all sub-steps, got {len(networks)}")
        return {"all": next(iter(networks.values() if isinstance(networks, Mapping) else networks))}
    if not isinstance(networks, Mapping) and len(networks) == 1 and len(step_keys) > 1:
        if isinstance(networks[0], nn.Module):
            raise ValueError(f"one finished network cannot serve the sub-steps {list(step_keys)}; give its class")
        return dict.fromkeys(step_keys, networks[0])
    return networks_by_step(networks, step_keys)


def takes(factory: Callable[..., Any], argument: str) -> bool:
    """True if a class has an argument that no `partial` around it has bound yet."""
    while isinstance(factory, partial):
        if argument in factory.keywords:
            return False
        classes = (item for item in factory.args if isinstance(item, type))  # a class from the configuration
        factory = next(classes, factory.func)
    return callable(factory) and argument in inspect.signature(factory).parameters


def build_network(
    factory: Callable[..., nn.Module], observation_space: spaces.Dict, expected: Shapes, where: str, **arguments: Any
) -> nn.Module:
    """Make a network and run it once on zeros.

    Args:
        factory: Called with `obs_shapes`, `arguments` and, if it has such an argument,
            `observation_space`; or a network instance.
        observation_space: Observations of the network.
        expected: Name of each output -> its shape, without the batch dimension; the state of a
            recurrent network is expected, too.
        where: Description of the network for messages.
        arguments: Further arguments for the factory.

    Raises:
        TypeError: The factory does not return a network, or the network does not return a dict of
            tensors.
        ValueError: The network cannot be made or run, or its outputs have wrong names or shapes.
    """
    network: Any = factory
    if not isinstance(factory, nn.Module):
        shapes = {name: tuple(space.shape or ()) for name, space in observation_space.spaces.items()}
        given = {"obs_shapes": shapes, **arguments}
        if takes(factory, "observation_space"):
            given["observation_space"] = observation_space
        try:
            network = factory(**given)
        except Exception as error:  # any exception, as the network may be user code
            raise ValueError(f"{where} cannot be made with {', '.join(given)}: {_said(error)}") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"{where}: {factory} gave a {type(network).__name__}, expected a torch.nn.Module")
    _check(network, observation_space, {**expected, **state_shapes(network)}, f"{where} ({type(network).__name__})")
    return network


def on_zeros(network: nn.Module, observation_space: spaces.Dict) -> Any:
    """Run a network on two zero observations, in evaluation mode so that it updates no statistics.

    A recurrent network gets a state of zeros, too.
    """
    seen = observation_space.spaces.items()
    zeros = {name: torch.zeros((2, *(space.shape or ())), dtype=torch_dtype(space)) for name, space in seen}
    zeros |= {name: torch.zeros(2, *shape) for name, shape in state_shapes(network).items()}
    with evaluation_mode(network), torch.no_grad():
        return network(NetworkInput(network)(zeros))


def _check(network: nn.Module, observation_space: spaces.Dict, expected: Shapes, where: str) -> None:
    """Run the network on zeros, and refuse unexpected outputs."""
    try:
        output = on_zeros(network, observation_space)
    except Exception as error:  # any exception, as the network may be user code
        zeros = {name: f"{space.dtype} {(2, *(space.shape or ()))}" for name, space in observation_space.items()}
        raise ValueError(f"{where}: forward failed for the zeros {zeros}: {_said(error)}") from error
    if not isinstance(output, Mapping):
        raise TypeError(f"{where}: forward gave a {type(output).__name__}, expected a dict with {sorted(expected)}")
    if set(output) != set(expected):
        raise ValueError(f"{where}: forward gave the keys {sorted(map(str, output))}, expected {sorted(expected)}")
    for name, shape in expected.items():
        tensor, wanted, what = output[name], (2, *shape), f"{where}: output {name!r} for a batch of 2"
        if not (isinstance(tensor, Tensor) and tensor.is_floating_point()):
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise TypeError(f"{what} is a {kind}, expected a tensor of floats of shape {wanted}")
        if tuple(tensor.shape) != wanted:
            raise ValueError(f"{what} has shape {tuple(tensor.shape)}, expected {wanted}")


def _said(error: Exception) -> str:
    return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"


# ---------------------------------------------------------------------------------------------- templates


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
                raise ValueError(f"observation {name!r} has the modality {modality!r}, none of {[*modality_config]}")

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
        mapped = self.observation_modality_mapping.keys()
        known = {STEP_KEY_OBSERVATION, *(name for step in spec.steps.values() for name in step.observation_shapes)}
        heads = [head for step in spec.steps.values() for head in step.action_space.items()]
        known |= {name for name, space in heads if isinstance(space, spaces.Box)}  # inputs of state-action critics
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

    def policy_network(
        self, obs_shapes: Shapes, action_logits_shapes: Shapes, observation_space: spaces.Dict | None = None
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
        return self._network(obs_shapes, {"value": (1,)}, 1.0, self._shared(policy_network), observation_space)

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

    def block(self, modality: str, in_key: str, out_key: str, in_shape: tuple[int, ...]) -> PerceptionBlock:
        """Make the block of a modality that has one."""
        block_class, params = self._blocks[modality]
        try:
            block = block_class(in_key, out_key, in_shape, **params)
            block.out_shapes()  # may fail, too
            return block
        except Exception as error:  # any exception, as the block may be user code
            what = f"modality_config: {modality!r} cannot be made for {in_key!r} of shape {in_shape}"
            raise ValueError(f"{what}: {type(error).__name__}: {error}") from error

    def _network(
        self,
        obs_shapes: Shapes,
        out_shapes: Shapes,
        head_std: float,
        shared: Mapping[str, PerceptionBlock],
        observation_space: spaces.Dict | None,
        action_shapes: Shapes | None = None,
    ) -> InferenceBlock:
        known = {STEP_KEY_OBSERVATION, *self.observation_modality_mapping}
        seen = {name: shape for name, shape in obs_shapes.items() if name in known} | {**(action_shapes or {})}
        is_told = takes(self.latent_blocks, "observation_space")
        spaces_too = {"observation_space": observation_space} if is_told else {}
        blocks = self.latent_blocks(seen, **spaces_too)
        shapes = [*blocks.values()][-1].out_shapes()
        if len(shapes[0]) != 1:
            remedy = "use blocks that give vectors, such as FlattenDenseBlock or VGGConvolutionDenseBlock"
            raise ValueError(f"'latent' has the shape {shapes[0]}, expected a vector, from {seen}: {remedy}")
        for block in blocks.values():
            block.apply(make_module_init_normc(1.0))
        blocks |= shared
        if taken := [head for head in out_shapes if head in blocks or head == "latent"]:
            raise ValueError(f"the heads {taken} have names of the template's blocks, {[*blocks]}: rename the heads")
        for head, shape in out_shapes.items():
            block = LinearOutputBlock("latent", head, shapes, math.prod(shape))
            blocks[head] = block.apply(make_module_init_normc(head_std))
        return InferenceBlock([*seen], [*out_shapes], [*seen.values()], blocks)

    def _shared(self, policy_network: nn.Module | None) -> dict[str, PerceptionBlock]:
        """Return the blocks of the policy's network that lead to the shared keys."""
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
        for name, block in reversed(blocks.items()):  # each block comes after its inputs
            if wanted & {*block.out_keys}:
                shared[name] = block
                wanted |= {*block.in_keys}
        return shared


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
        >>> feature = {"block_type": "maze_pl.perception.DenseBlock", "block_params": {"hidden_units": [32, 32]}}
        >>> builder = ConcatModelBuilder({"feature": feature, "hidden": {}}, {"observation": "feature"})
        >>> builder.policy_network({"observation": (4,)}, {"action": (2,)}).block_names
        ['observation_DenseBlock', 'concat', 'action']
    """

    stages = ("hidden", "recurrence")

    def latent_blocks(
        self, obs_shapes: Shapes, observation_space: spaces.Dict | None = None
    ) -> dict[str, PerceptionBlock]:
        """See `BaseModelBuilder.latent_blocks`."""
        blocks, joined = dict[str, PerceptionBlock](), dict[str, tuple[int, ...]]()
        for name, shape in obs_shapes.items():
            modality, key = self.observation_modality_mapping.get(name, ""), name
            has_block = modality in self._blocks
            if not (has_block and self._blocks[modality][0].takes_numbers):
                space = None if observation_space is None else observation_space.spaces.get(name)
                encoder = vector_encoder(name, shape, space)
                if encoder is not None:
                    (key,), (shape,) = encoder.out_keys, encoder.out_shapes()
                    blocks[key] = encoder
            if has_block:
                in_key, key = key, f"{name}_{self._blocks[modality][0].__name__}"
                blocks[key] = self.block(modality, in_key, key, shape)
                (shape,) = blocks[key].out_shapes()
            elif name not in self.observation_modality_mapping and len(shape) != 1:  # an action head
                in_key, key = key, f"{name}_{FlattenBlock.__name__}"
                blocks[key] = FlattenBlock(in_key, key, shape, len(shape))
                (shape,) = blocks[key].out_shapes()
            joined[key] = shape
        stages = ["concat", *(name for name in self.stages if name in self._blocks)]
        tensors = [*stages[:-1], "latent"]
        blocks["concat"] = ConcatenationBlock([*joined], tensors[0], [*joined.values()], concat_dim=-1)
        for stage, in_key, out_key in zip(stages[1:], tensors, tensors[1:], strict=False):
            blocks[stage] = self.block(stage, in_key, out_key, blocks[in_key].out_shapes()[0])
        return blocks


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
        sizes, starts = space.nvec.flatten().tolist(), space.start.flatten().tolist()
        return OneHotBlock(name, f"{name}_OneHotBlock", shape, sizes, starts)
    return None if shape else UnsqueezeBlock(name, f"{name}_UnsqueezeBlock", shape, 0)


def _block_class(modality: str, entry: Mapping[str, Any]) -> tuple[type[PerceptionBlock], Mapping[str, Any]]:
    """Return class and arguments of a modality's block."""
    known = isinstance(entry, Mapping) and "block_type" in entry.keys() <= {"block_type", "block_params"}
    found = import_class(entry["block_type"], nn.Module) if known else nn.Module
    if not issubclass(found, PerceptionBlock):
        raise ValueError(f"{modality!r} needs block_type, a PerceptionBlock, and block_params; got {entry}")
    return found, entry.get("block_params") or {}
