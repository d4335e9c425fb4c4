"""How networks are made: from classes that users name, or from a template.

Templates say which blocks process which kind of observation, and how what they give is put together. What an
environment shows is known when its networks are made. Whether a network fits the spaces is found out at once.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

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
    PerceptionBlock,
)
from maze_pl.perception.blocks.layers import make_module_init_normc

Shapes = Mapping[str, tuple[int, ...]]
Factory = TypeVar("Factory", bound=Callable[..., nn.Module])


class PolicyNetworkFactory(Protocol):
    """A policy network class with all its arguments but the shapes, as `class_path` and `init_args` in YAML."""

    def __call__(self, *, obs_shapes: dict[str, Any], action_logits_shapes: dict[str, Any]) -> nn.Module:
        """Make the network; both arguments map names to shapes (tuples) without batch dimensions."""


class CriticNetworkFactory(Protocol):
    """A state critic network class with all its arguments but the shapes, as `class_path` and `init_args` in YAML."""

    def __call__(self, *, obs_shapes: dict[str, Any], policy_network: nn.Module) -> nn.Module:
        """Make the network; `obs_shapes` maps names to shapes (tuples) without batch dimensions.

        A constructor without `policy_network` does not get it; one that has it gets the policy's network of the same
        sub-step, of which the critic's network may use parts.
        """


class StateActionNetworkFactory(Protocol):
    """A state-action critic network class with all its arguments but the shapes, as in YAML."""

    def __call__(
        self, *, obs_shapes: dict[str, Any], action_shapes: dict[str, Any], q_shapes: dict[str, Any]
    ) -> nn.Module:
        """Make the network; all arguments map names to shapes (tuples) without batch dimensions.

        `action_shapes` are those of the continuous heads of the action, which the network sees beside observations.
        `q_shapes` are those of its outputs: (L,) for each discrete head, L the number of options of all its choices,
        two for a bit; {"q_value": (1,)} where there is no discrete head.
        """


def factories_by_step(
    networks: Sequence[Factory] | Mapping[StepKey, Factory] | None, step_keys: Sequence[StepKey]
) -> dict[StepKey, Factory]:
    """Assign factories to sub-steps, or one to `all`; a single one in a list makes the networks of all sub-steps.

    Raises:
        ValueError: There is not exactly one for each sub-step, or one finished network would be used by several.
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
    """Whether a class wants an argument, alone or in a `partial` that does not have it yet."""
    while isinstance(factory, partial):
        if argument in factory.keywords:
            return False
        classes = (item for item in factory.args if isinstance(item, type))  # of what configurations name
        factory = next(classes, factory.func)
    return callable(factory) and argument in inspect.signature(factory).parameters


def build_network(
    factory: Callable[..., nn.Module], observation_space: spaces.Dict, expected: Shapes, where: str, **arguments: Any
) -> nn.Module:
    """Make a network and run it once on zeros.

    Args:
        factory: Called with `obs_shapes` and `arguments`, unless it is a finished network.
        observation_space: What the network sees.
        expected: Name of each output -> its shape, without the batch dimension; a state that the network carries is
            expected too.
        where: Which network it is, for messages.
        arguments: Further arguments for the factory.

    Raises:
        TypeError: The factory does not give a network, or the network does not give a dict of tensors.
        ValueError: The network cannot be made or run, or its outputs have wrong names or shapes.
    """
    network: Any = factory
    if not isinstance(factory, nn.Module):
        shapes = {name: tuple(space.shape or ()) for name, space in observation_space.spaces.items()}
        given = {"obs_shapes": shapes, **arguments}
        try:
            network = factory(**given)
        except Exception as error:  # of any kind, since the network may be the user's
            raise ValueError(f"{where} cannot be made with {', '.join(given)}: {_said(error)}") from error
    if not isinstance(network, nn.Module):
        raise TypeError(f"{where}: {factory} gave a {type(network).__name__}, expected a torch.nn.Module")
    _check(network, observation_space, {**expected, **state_shapes(network)}, f"{where} ({type(network).__name__})")
    return network


def on_zeros(network: nn.Module, observation_space: spaces.Dict) -> Any:
    """What a network gives for a batch of two zero observations, in evaluation mode so that it learns nothing of them.

    One that carries a state gets that as zeros, too.
    """
    seen = observation_space.spaces.items()
    zeros = {name: torch.zeros((2, *(space.shape or ())), dtype=torch_dtype(space)) for name, space in seen}
    zeros |= {name: torch.zeros(2, *shape) for name, shape in state_shapes(network).items()}
    with evaluation_mode(network), torch.no_grad():
        return network(NetworkInput(network)(zeros))


def _check(network: nn.Module, observation_space: spaces.Dict, expected: Shapes, where: str) -> None:
    """Run the network on zeros, and refuse what does not give what is expected."""
    try:
        output = on_zeros(network, observation_space)
    except Exception as error:  # of any kind, since the network may be the user's
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
    def latent_blocks(self, obs_shapes: Shapes) -> dict[str, PerceptionBlock]:
        """Blocks by name, the last of which writes "latent".

        Args:
            obs_shapes: Shape of each observation that has a modality, of "step_key", by which critics of several
                sub-steps know which one it is, and of the continuous heads of an action that is judged.
        """

    def check(self, spec: Spec) -> None:
        """Refuse a mapping that does not fit the observations of an environment.

        Observations that mask actions need no modality: policies apply them to what networks give.

        Raises:
            ValueError: An observation has no modality, one that has one does not exist, or nothing uses a modality.
        """
        mapped = self.observation_modality_mapping.keys()
        known = {STEP_KEY_OBSERVATION, *(name for step in spec.steps.values() for name in step.observation_shapes)}
        heads = [head for step in spec.steps.values() for head in step.action_space.items()]
        known |= {name for name, space in heads if isinstance(space, spaces.Box)}  # which critics of actions see
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

    def policy_network(self, obs_shapes: Shapes, action_logits_shapes: Shapes) -> InferenceBlock:
        """A network that gives the logits of all heads."""
        return self._network(obs_shapes, action_logits_shapes, 0.01, {})

    def critic_network(self, obs_shapes: Shapes, policy_network: nn.Module | None = None) -> InferenceBlock:
        """A network that gives the value.

        Args:
            obs_shapes: Observation -> shape.
            policy_network: Has the blocks that are shared, if any are.
        """
        return self._network(obs_shapes, {"value": (1,)}, 1.0, self._shared(policy_network))

    def state_action_network(self, obs_shapes: Shapes, action_shapes: Shapes, q_shapes: Shapes) -> InferenceBlock:
        """A network that judges actions.

        Args:
            obs_shapes: Observation -> shape.
            action_shapes: Continuous head of the action -> shape. They need no modality.
            q_shapes: Output -> shape.
        """
        return self._network(obs_shapes, q_shapes, 1.0, {}, action_shapes)

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
        self,
        obs_shapes: Shapes,
        out_shapes: Shapes,
        head_std: float,
        shared: Mapping[str, PerceptionBlock],
        action_shapes: Shapes | None = None,
    ) -> InferenceBlock:
        known = {STEP_KEY_OBSERVATION, *self.observation_modality_mapping}
        seen = {name: shape for name, shape in obs_shapes.items() if name in known} | {**(action_shapes or {})}
        blocks = self.latent_blocks(seen)
        shapes = [*blocks.values()][-1].out_shapes()
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
    are, and so are the continuous heads of actions that a critic judges, made flat.

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

    def latent_blocks(self, obs_shapes: Shapes) -> dict[str, PerceptionBlock]:
        """See `BaseModelBuilder.latent_blocks`."""
        blocks, joined = dict[str, PerceptionBlock](), dict[str, tuple[int, ...]]()
        for name, shape in obs_shapes.items():
            modality, key = self.observation_modality_mapping.get(name, ""), name
            if modality in self._blocks:
                key = f"{name}_{self._blocks[modality][0].__name__}"
                blocks[key] = self.block(modality, name, key, shape)
            elif name not in self.observation_modality_mapping and len(shape) != 1:  # a head of an action
                key = f"{name}_{FlattenBlock.__name__}"
                blocks[key] = FlattenBlock(name, key, shape, len(shape))
            joined[key] = shape if key == name else blocks[key].out_shapes()[0]
        stages = ["concat", *(name for name in self.stages if name in self._blocks)]
        tensors = [*stages[:-1], "latent"]
        blocks["concat"] = ConcatenationBlock([*joined], tensors[0], [*joined.values()], concat_dim=-1)
        for stage, in_key, out_key in zip(stages[1:], tensors, tensors[1:], strict=False):
            blocks[stage] = self.block(stage, in_key, out_key, blocks[in_key].out_shapes()[0])
        return blocks


def _block_class(modality: str, entry: Mapping[str, Any]) -> tuple[type[PerceptionBlock], Mapping[str, Any]]:
    """Class and arguments of a modality's block."""
    known = isinstance(entry, Mapping) and "block_type" in entry.keys() <= {"block_type", "block_params"}
    found = import_class(entry["block_type"], nn.Module) if known else nn.Module
    if not issubclass(found, PerceptionBlock):
        raise ValueError(f"{modality!r} needs block_type, a PerceptionBlock, and block_params; got {entry}")
    return found, entry.get("block_params") or {}
