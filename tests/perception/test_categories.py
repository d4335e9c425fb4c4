"""Observations that are categories or scalars, in templates, critics and networks of the user's own."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs import GymMazeEnv
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    OneHotBlock,
    PerceptionBlock,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    SharedStateCriticComposer,
    TemplateModelComposer,
)

OBSERVATIONS: dict[str, tuple[spaces.Space[Any], Any, list[float]]] = {
    "discrete": (spaces.Discrete(3), 2, [0, 0, 1]),
    "discrete_with_start": (spaces.Discrete(3, start=-1), -1, [1, 0, 0]),
    "multi_discrete": (spaces.MultiDiscrete([2, 3]), [1, 0], [0, 1, 1, 0, 0]),
    "multi_discrete_with_start": (spaces.MultiDiscrete([2, 3], start=[5, -1]), [5, 1], [1, 0, 0, 0, 1]),
    "multi_discrete_in_rows": (spaces.MultiDiscrete([[2], [2]]), [[1], [0]], [0, 1, 1, 0]),
    "multi_binary": (spaces.MultiBinary(3), [1, 0, 1], [1, 0, 1]),
    "scalar": (spaces.Box(0.0, 1.0, ()), 0.25, [0.25]),
    "vector": (spaces.Box(0.0, 1.0, (2,)), [0.25, 1.0], [0.25, 1.0]),
}
DENSE = {"block_type": DenseBlock, "block_params": {"hidden_units": [8]}}
ACTION = spaces.Dict({"action": spaces.Discrete(2)})


def spec_of(observations: dict[str, spaces.Space[Any]]) -> Spec:
    return Spec({0: StepSpec(spaces.Dict(observations), ACTION)})


def template(mapping: dict[str, str], **modalities: Any) -> ConcatModelBuilder:
    return ConcatModelBuilder(modalities, mapping)


def compose(builder: ConcatModelBuilder, spec: Spec, critic: Any = None) -> Any:
    critic = critic or SharedStateCriticComposer()
    return TemplateModelComposer(builder, ProbabilisticPolicyComposer(), critic).compose(spec)


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_a_template_joins_vectors_of_what_an_observation_means(name: str) -> None:
    space, observation, expected = OBSERVATIONS[name]
    networks = compose(template({name: "plain"}, plain={}, hidden=DENSE), spec_of({name: space}))
    seen: list[Tensor] = []
    hidden = networks.policy.networks[0][0].perception_blocks["hidden"]
    hidden.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]["concat"]))
    action = networks.policy.act_on({name: np.asarray(observation, space.dtype)})
    assert seen[-1].tolist() == [expected] and action["action"] in (0, 1)


@pytest.mark.parametrize("modality", [{}, DENSE], ids=["joined", "dense"])
def test_a_template_takes_categories_and_scalars_together(modality: Any) -> None:
    given = {name: space for name, (space, _, _) in OBSERVATIONS.items()}
    spec = spec_of(given)
    networks = compose(template(dict.fromkeys(given, "some"), some=modality, hidden=DENSE), spec)
    batch = {name: torch.as_tensor(np.stack([space.sample() for _ in range(5)])) for name, space in given.items()}
    assert networks.policy.distribution(0, batch).entropy().shape == (5,)
    assert networks.critic.value(0, batch).shape == (5,)


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_flatten_concat_networks_take_them_as_numbers(name: str) -> None:
    space, observation, _ = OBSERVATIONS[name]
    policy = ProbabilisticPolicyComposer([FlattenConcatPolicyNet])
    composer = CustomModelComposer(policy, SharedStateCriticComposer([FlattenConcatStateValueNet]))
    networks = composer.compose(spec_of({name: space}))
    assert networks.policy.act_on({name: np.asarray(observation, space.dtype)})["action"] in (0, 1)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1"])
def test_environments_of_categories_need_no_wrapper(name: str) -> None:
    env = GymMazeEnv(name)
    spec = Spec.of(env)
    mapping = dict.fromkeys(spec.steps[0].observation_space.spaces, "feature")
    networks = compose(template(mapping, feature=DENSE, hidden=DENSE), spec)
    observation, _ = env.reset(seed=0)
    env.step(networks.policy.act_on(observation))


class EmbeddingBlock(PerceptionBlock):
    """A vector that is learned for each category."""

    takes_numbers: ClassVar[bool] = True

    def __init__(self, in_keys: Any, out_keys: Any, in_shapes: Any, n_categories: int) -> None:
        super().__init__(in_keys, out_keys, in_shapes)
        self.embedding = nn.Embedding(n_categories, 4)

    def forward(self, block_input: Any) -> dict[str, Tensor]:
        return {self.out_keys[0]: self.embedding(block_input[self.in_keys[0]].long())}


def test_a_one_hot_block_that_is_named_gets_the_categories() -> None:
    entry = {"block_type": OneHotBlock, "block_params": {"n_categories": 3}}
    networks = compose(template({"kind": "category"}, category=entry), spec_of({"kind": spaces.Discrete(3)}))
    assert networks.policy.networks[0][0].block_names == ["kind_OneHotBlock", "concat", "action"]


def test_a_block_may_take_categories_as_numbers() -> None:
    entry = {"block_type": EmbeddingBlock, "block_params": {"n_categories": 3}}
    networks = compose(template({"kind": "category"}, category=entry), spec_of({"kind": spaces.Discrete(3)}))
    assert networks.policy.networks[0][0].block_names == ["kind_EmbeddingBlock", "concat", "action"]
    assert networks.policy.act_on({"kind": 2})["action"] in (0, 1)


def test_a_shared_critic_knows_the_categories_of_all_sub_steps() -> None:
    steps = {
        0: StepSpec(spaces.Dict({"kind": spaces.Discrete(3, start=-1)}), ACTION),
        1: StepSpec(spaces.Dict({"kind": spaces.Discrete(5)}), ACTION),
    }
    networks = compose(template({"kind": "plain"}, plain={}, hidden=DENSE), Spec(steps))
    block = networks.critic.network.perception_blocks["kind_OneHotBlock"]
    kinds = torch.tensor([-1, 0, 4])
    assert block({"kind": kinds})["kind_OneHotBlock"].tolist() == torch.eye(6)[[0, 1, 5]].tolist()
    assert networks.critic.value(1, {"kind": torch.tensor([4])}).shape == (1,)


def test_critics_of_actions_take_categories_and_scalar_heads() -> None:
    observations = spaces.Dict({"kind": spaces.Discrete(3)})
    heads = spaces.Dict({"force": spaces.Box(-1.0, 1.0, (), np.float32)})
    spec = Spec({0: StepSpec(observations, heads)})
    networks = compose(template({"kind": "plain"}, plain={}, hidden=DENSE), spec, SharedStateActionCriticComposer())
    values = networks.critic.q_values(0, {"kind": torch.tensor([1, 2])}, {"force": torch.zeros(2)})
    assert {name: value.shape for name, value in values.items()} == {"q_value": (2, 2, 1)}


class TableNet(nn.Module):
    """Logits by category, whose number the network learns from the space."""

    def __init__(self, obs_shapes: Any, action_logits_shapes: Any, observation_space: spaces.Dict) -> None:
        super().__init__()
        ((self.name, space),) = observation_space.spaces.items()
        assert isinstance(space, spaces.Discrete) and obs_shapes == {self.name: ()}
        self.table = nn.Embedding(int(space.n), action_logits_shapes["action"][0])

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"action": self.table(observation[self.name])}


def test_a_network_of_the_users_gets_the_spaces_if_it_asks_for_them() -> None:
    policy = ProbabilisticPolicyComposer([TableNet]).compose(spec_of({"kind": spaces.Discrete(7)}))
    assert policy.networks[0][0].table.num_embeddings == 7
    assert policy.act_on({"kind": 6})["action"] in (0, 1)


def test_a_template_that_ends_in_no_vector_says_what_gives_one() -> None:
    images = spec_of({"image": spaces.MultiBinary([2, 3])})
    with pytest.raises(ValueError, match=r"'latent' has the shape \(2, 8\), expected a vector.*FlattenDenseBlock"):
        compose(template({"image": "plain"}, plain={}, hidden=DENSE), images)
