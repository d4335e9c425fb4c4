"""Acting on observations outside of training: single ones and batches, with probabilities, and wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from maze_pl.agents import TorchActorCritic, TorchPolicy
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.modules import ES, PPO
from maze_pl.perception import (
    ConcatModelBuilder,
    DenseBlock,
    FlattenConcatPolicyNet,
    ProbabilisticPolicyComposer,
    RecurrentBlock,
    TemplateModelComposer,
)

OBSERVATION = spaces.Dict(
    {"image": spaces.Box(0, 255, (2, 3), np.uint8), "kind": spaces.Discrete(3), "mask": spaces.MultiBinary(4)}
)
ACTION = spaces.Dict(
    {
        "pick": spaces.Discrete(4, start=1),
        "dials": spaces.MultiDiscrete([2, 3]),
        "switches": spaces.MultiBinary([2, 2]),
        "force": spaces.Box(-0.1, 0.1, (2,), np.float32),
    }
)
SPEC = Spec({0: StepSpec(OBSERVATION, ACTION, masks={"pick": "mask"})})
BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)
LOGITS = {"pick": (4,), "dials": (5,), "switches": (4,), "force": (4,)}


def agent(spec: Spec = SPEC) -> ES:
    torch.manual_seed(0)
    shapes = {name: tuple(space.shape or ()) for name, space in OBSERVATION.items()}
    network = FlattenConcatPolicyNet(shapes, LOGITS, nn.Tanh, [8])
    nn.init.normal_(network.heads.get_parameter("0.weight"))
    return ES(actor_critic=TorchActorCritic(TorchPolicy([network], spec), None)).eval()


def batch(size: int, seed: int = 0) -> dict[str, Any]:
    OBSERVATION.seed(seed)
    drawn = [OBSERVATION.sample() for _ in range(size)]
    together = {name: np.stack([one[name] for one in drawn]) for name in OBSERVATION}
    together["mask"][:, 0] = 1
    return together


def single(observations: dict[str, Any], row: int) -> dict[str, Any]:
    return {name: array[row] for name, array in observations.items()}


def test_a_batch_gets_the_actions_of_its_rows() -> None:
    learner, observations = agent(), batch(5)
    actions = learner.act(observations)
    assert {head: value.shape for head, value in actions.items()} == {
        head: (5, *(space.shape or ())) for head, space in ACTION.items()
    }
    assert np.abs(actions["force"]).max() <= np.float32(0.1)
    for row in range(5):
        alone = learner.act(single(observations, row))
        assert ACTION.contains(alone)
        for head, value in alone.items():
            np.testing.assert_allclose(actions[head][row], value, rtol=1e-5)


def test_images_get_the_action_of_a_rollout_in_any_layout() -> None:
    """Convolutions of other strides, such as 0 in a batch of one, round differently."""
    spec = Spec(
        {0: StepSpec(spaces.Dict({"image": spaces.Box(0, 200, (3, 2, 2), np.float32)}), spaces.Dict({"x": BOX}))}
    )
    learner = PPO(spec=spec)
    for image in (200 * np.random.default_rng(0).random((5, 3, 2, 2))).astype(np.float32):
        staged = PolicyBatch(0, {"image": np.stack([image])}, np.zeros(1, np.int64))
        (expected,) = learner.policy.act(staged, deterministic=True).action["x"]
        for layout in (image, np.asfortranarray(image)):
            assert np.array_equal(learner.act({"image": layout})["x"], expected)
            assert np.array_equal(learner.act({"image": layout[np.newaxis]})["x"][0], expected)


TYPED = spaces.Dict(
    {
        "pick": spaces.Discrete(4, start=1, dtype=np.int16),
        "dials": spaces.MultiDiscrete([2, 3], dtype=np.int32),
        "switches": spaces.MultiBinary([2, 2]),
        "half": spaces.Box(-0.1, 0.1, (2,), np.float16),
        "single": spaces.Box(-np.inf, 0.1, (), np.float32),
        "double": spaces.Box(-0.1, 0.1, (1,), np.float64),
    }
)


@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_actions_are_contained_in_their_spaces_also_by_type(precision: torch.dtype) -> None:
    spec = Spec({0: StepSpec(OBSERVATION, TYPED, masks={"pick": "mask"})})
    learner, observations = ES(spec=spec).to(precision).eval(), batch(5)
    generator = torch.Generator().manual_seed(0)
    actions = learner.act_on(observations, deterministic=False, generator=generator)
    for head, values in actions.items():
        assert values.dtype == TYPED[head].dtype
        assert all(TYPED[head].contains(np.asarray(value)) for value in values)
    alone = learner.act_on(single(observations, 0), deterministic=False, generator=generator)
    assert type(alone["pick"]) is int and alone["single"].shape == ()
    assert TYPED.contains(alone)


def test_probabilities_are_those_of_the_distributions_and_heed_masks() -> None:
    learner, observations = agent(), batch(5)
    observations["mask"][:, 2] = 0
    _, probabilities = learner.act(observations, with_probabilities=True, temperature=0.5)
    assert set(probabilities) == {"pick", "dials", "switches"}
    joint = learner.policy.distribution(0, {n: torch.as_tensor(a) for n, a in observations.items()}, temperature=0.5)
    options = range(1, 5)
    for option in options:
        log_prob = joint.distributions["pick"].log_prob(torch.full((5,), option))
        expected = log_prob.exp().detach().numpy()
        np.testing.assert_allclose(probabilities["pick"][:, option - 1], expected, rtol=1e-5)
    assert not probabilities["pick"][:, 2].any()
    assert [part.shape for part in probabilities["dials"]] == [(5, 2), (5, 3)]
    for part in (probabilities["pick"], *probabilities["dials"]):
        np.testing.assert_allclose(part.sum(-1), 1.0, rtol=1e-5)
    ones = torch.ones(5, 2, 2)
    expected = joint.distributions["switches"].log_prob(ones).exp().detach().numpy()
    assert probabilities["switches"].shape == (5, 2, 2)
    np.testing.assert_allclose(probabilities["switches"].prod((1, 2)), expected, rtol=1e-5)


def test_probabilities_of_one_observation_have_no_batch() -> None:
    learner, observations = agent(), batch(2)
    action, probabilities = learner.act(single(observations, 1), with_probabilities=True)
    _, of_both = learner.act(observations, with_probabilities=True)
    assert action["pick"] == probabilities["pick"].argmax() + 1
    np.testing.assert_allclose(probabilities["pick"], of_both["pick"][1], rtol=1e-5)
    np.testing.assert_allclose(probabilities["switches"], of_both["switches"][1], rtol=1e-5)
    for one, both in zip(probabilities["dials"], of_both["dials"], strict=True):
        np.testing.assert_allclose(one, both[1], rtol=1e-5)


def test_numbers_beyond_the_range_of_the_networks_are_refused() -> None:
    space = spaces.Dict({"height": spaces.Box(-1e300, 1e300, (2,), np.float64), "kind": spaces.Discrete(3)})
    spec = Spec({0: StepSpec(space, spaces.Dict({"pick": spaces.Discrete(4)}))})
    learner = ES(spec=spec).eval()
    largest = float(np.finfo(np.float32).max)
    learner.act_on({"height": [largest, -largest], "kind": 0})
    for height in ([0.5, -1e39], [[0.5, 1.0], [0.5, -1e39]]):
        observation = {"height": height, "kind": np.zeros(len(height), int) if np.ndim(height) > 1 else 0}
        with pytest.raises(ValueError, match=r"'height' holds -1e\+39, but networks read numbers up to 3.4e\+38 only"):
            learner.act_on(observation)
    learner.double().act_on({"height": [0.5, -1e39], "kind": 0})


def test_a_nan_is_refused_and_an_infinity_is_not() -> None:
    space = spaces.Dict({"height": spaces.Box(-np.inf, np.inf, (2,)), "kind": spaces.Discrete(3)})
    spec = Spec({0: StepSpec(space, spaces.Dict({"pick": spaces.Discrete(4)}))})
    learner = ES(spec=spec).eval()
    for height in ([0.5, np.nan], [[0.5, 1.0], [np.nan, 1.0]]):
        observation = {"height": height, "kind": np.zeros(len(height), int) if np.ndim(height) > 1 else 0}
        with pytest.raises(ValueError, match=r"'height' of sub-step 0 has values that are not a number \(NaN\)"):
            learner.act_on(observation)
    learner.act_on({"height": [0.5, np.inf], "kind": 0})


WRONG: list[tuple[str, Any, str]] = [
    ("image", np.zeros((3, 2)), r"'image' has shape \(3, 2\), expected \(2, 3\), or \(B, 2, 3\) for a batch"),
    ("image", np.zeros((1, 5, 2, 3)), r"'image' has shape \(1, 5, 2, 3\)"),
    ("image", [["a", 0, 0], [0, 0, 0]], r"'image' cannot be read as uint8 of shape \(2, 3\): invalid literal"),
    ("image", [[0, 0], [0, 0, 0]], "'image' cannot be read as uint8"),
    ("image", None, "'image' cannot be read as uint8"),
    ("image", np.full((2, 3), 300), r"'image' cannot be read as uint8 of shape \(2, 3\): it holds 300"),
    ("image", np.full((5, 2, 3), -1, np.int8), "'image' cannot be read as uint8 .* it holds -1"),
    ("image", [[0, 0, 0.5], [0, 0, 0]], "'image' cannot be read as uint8 .* it holds 0.5"),
    ("kind", 2**70, "'kind' cannot be read as int64"),
    ("kind", np.nan, "'kind' cannot be read as int64 .* it holds nan"),
    ("kind", np.zeros((1, 1), int), r"'kind' has shape \(1, 1\), expected \(\), or \(B,\) for a batch"),
    ("kind", np.zeros(2, int), r"different sizes: {'image': 'no batch', 'kind': 'a batch of 2', 'mask': 'no batch'}"),
]


@pytest.mark.parametrize(("name", "array", "message"), WRONG)
def test_a_wrong_observation_is_named_with_the_shape_that_it_should_have(name: str, array: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        agent().act({**single(batch(1), 0), name: array})


def test_what_is_no_dict_or_no_batch_is_refused() -> None:
    learner = agent()
    with pytest.raises(ValueError, match=r"needs a dict with the observations \['image', .*\], not ndarray"):
        learner.act(np.zeros(4))  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"also observes \['image', 'mask'\]; got \['kind'\]"):
        learner.act({"kind": 1})
    with pytest.raises(ValueError, match="the batch of observations is empty"):
        learner.act({name: array[:0] for name, array in batch(1).items()})
    with pytest.raises(ValueError, match=r"agent_id=\[0, 0\]: expected one agent or 3"):
        learner.act(batch(3), agent_id=[0, 0])


def remembering() -> ES:
    spec = Spec({0: StepSpec(spaces.Dict({"x": spaces.Box(-1, 1, (2,))}), spaces.Dict({"a": spaces.Discrete(3)}))})
    feature = {"block_type": DenseBlock, "block_params": {"hidden_units": [4]}}
    recurrence = {"block_type": RecurrentBlock, "block_params": {"hidden_size": 4}}
    builder = ConcatModelBuilder({"feature": feature, "recurrence": recurrence}, {"x": "feature"})
    torch.manual_seed(0)
    return ES(networks=TemplateModelComposer(builder, ProbabilisticPolicyComposer()), spec=spec).eval()


def test_a_batch_remembers_row_by_row() -> None:
    learner, policy_state = remembering(), dict[Any, Any]()
    alone: list[dict[Any, Any]] = [{}, {}, {}]
    for step in range(4):
        x = np.random.default_rng(step).uniform(-1, 1, (3, 2)).astype(np.float32)
        _, together = learner.act({"x": x}, policy_state=policy_state, with_probabilities=True)
        for row in range(3):
            _, one = learner.act({"x": x[row]}, policy_state=alone[row], with_probabilities=True)
            np.testing.assert_allclose(together["a"][row], one["a"], rtol=1e-5)
    with pytest.raises(ValueError, match="policy_state is that of 3 actors, but there are 2 observations"):
        learner.act({"x": x[:2]}, policy_state=policy_state)


@pytest.mark.parametrize("agent_id", [np.int64(0), np.array(0), [0], [np.int64(0)]])
def test_an_agent_has_one_memory_however_its_id_is_written(agent_id: Any) -> None:
    learner = remembering()
    alone, mixed = dict[Any, Any](), dict[Any, Any]()
    for step in range(4):
        x = np.random.default_rng(step).uniform(-1, 1, 2).astype(np.float32)
        _, expected = learner.act({"x": x}, policy_state=alone, with_probabilities=True)
        same = agent_id if step % 2 else 0
        _, found = learner.act({"x": x}, agent_id=same, policy_state=mixed, with_probabilities=True)
        np.testing.assert_array_equal(found["a"], expected["a"])
    assert list(mixed) == list(alone) == [(0, 0)]


def test_rows_of_one_agent_have_one_memory_however_their_ids_are_written() -> None:
    learner, policy_state = remembering(), dict[Any, Any]()
    x = np.zeros((3, 2), np.float32)
    learner.act({"x": x}, policy_state=policy_state)
    learner.act({"x": x}, agent_id=[0, 0, 0], policy_state=policy_state)
    learner.act({"x": x}, agent_id=[0, 1, 0], policy_state=policy_state)
    assert list(policy_state) == [(0, 0), (0, (0, 1, 0))]


class AgentNet(nn.Module):
    """Prefers one action."""

    def __init__(self, choice: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(5.0 * nn.functional.one_hot(torch.tensor(choice), 3).float())

    def forward(self, observation: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"a": observation["x"] * 0.0 + self.bias}


def test_each_row_may_be_another_agent() -> None:
    step = StepSpec(spaces.Dict({"x": spaces.Box(-1, 1, (1,))}), spaces.Dict({"a": spaces.Discrete(3)}), 3, 3)
    policy = TorchPolicy([[AgentNet(choice) for choice in range(3)]], Spec({0: step}), None, [0])
    action, probabilities = policy.act_on({"x": np.zeros((4, 1))}, agent_id=[2, 0, 1, 2], with_probabilities=True)
    assert action["a"].tolist() == [2, 0, 1, 2]
    assert probabilities["a"].argmax(-1).tolist() == [2, 0, 1, 2]


class Wrapped(nn.Module):
    """Acts as the policy does."""

    def __init__(self, torch_policy: TorchPolicy) -> None:
        super().__init__()
        self.torch_policy, self.spec = torch_policy, torch_policy.spec

    def act(self, batch: Any, **options: Any) -> Any:
        return self.torch_policy.act(batch, **options)


def test_what_wraps_a_policy_takes_batches_and_has_no_probabilities() -> None:
    learner = ES(actor_critic=agent().networks, policy_wrapper=Wrapped).eval()
    assert learner.act(batch(3))["pick"].shape == (3,)
    with pytest.raises(ValueError, match="a Wrapped has no distributions, and so no probabilities"):
        learner.act(batch(3), with_probabilities=True)


def test_a_mask_that_allows_nothing_is_refused() -> None:
    learner, observations = agent(), batch(4)
    alone = {**single(observations, 0), "mask": np.zeros(4, np.int8)}
    with pytest.raises(ValueError, match=r"^observation 'mask' allows no option of 'pick'$"):
        learner.act(alone)
    observations["mask"][[1, 3]] = 0
    with pytest.raises(ValueError, match=r"^observation 'mask' allows no option of 'pick' in row 1$"):
        learner.act(observations, deterministic=False)
    with pytest.raises(ValueError, match=r"^observation 'mask' allows no option of 'pick'$"):
        learner.policy.act_on(alone)


def test_each_choice_of_a_head_needs_an_option_and_bits_do_not() -> None:
    choices = spaces.MultiDiscrete([2, 3, 1])
    heads = spaces.Dict({"dials": choices, "switches": spaces.MultiBinary(6)})
    step = StepSpec(spaces.Dict({"mask": spaces.MultiBinary(6)}), heads, masks={"dials": "mask", "switches": "mask"})
    logits = {"dials": (6,), "switches": (6,)}
    network = FlattenConcatPolicyNet({"mask": (6,)}, logits, nn.Tanh, [8])
    policy = TorchPolicy([network], Spec({0: step})).eval()
    for number in range(2**6):
        mask = np.array([number >> bit & 1 for bit in range(6)], np.int8)
        missing = [index for index, part in enumerate((mask[:2], mask[2:5], mask[5:])) if not part.any()]
        if missing:
            with pytest.raises(
                ValueError, match=rf"^observation 'mask' allows no option of choice {missing[0]} of 'dials'$"
            ):
                policy.act_on({"mask": mask})
        else:
            first, second, _ = policy.act_on({"mask": mask})["dials"]
            assert mask[first] and mask[2 + second]
    spec = Spec(
        {0: StepSpec(step.observation_space, spaces.Dict({"switches": heads["switches"]}), masks={"switches": "mask"})}
    )
    policy = TorchPolicy([FlattenConcatPolicyNet({"mask": (6,)}, {"switches": (6,)}, nn.Tanh, [8])], spec).eval()
    assert policy.act_on({"mask": np.zeros(6, np.int8)})["switches"].tolist() == [0] * 6


def test_rollouts_play_on_with_a_mask_that_allows_nothing() -> None:
    learner, observations = agent(), batch(2)
    observations["mask"][:] = 0
    drawn = learner.policy.act(PolicyBatch(0, observations, np.zeros(2, np.int64)))
    assert drawn.action["pick"].shape == (2,)


def test_observations_that_no_network_of_the_policy_reads_may_be_missing() -> None:
    observations = spaces.Dict({"own": BOX, "state": BOX, "mask": spaces.MultiBinary(2)})
    spec = Spec({0: StepSpec(observations, spaces.Dict({"pick": spaces.Discrete(2)}), masks={"pick": "mask"})})
    blocks = {name: {"block_type": DenseBlock, "block_params": {"hidden_units": [4]}} for name in ("own", "hidden")}
    builder = ConcatModelBuilder(
        modality_config={**blocks, "recurrence": {}},
        observation_modality_mapping={"own": "own", "state": None, "mask": None},
        shared_embedding_keys=None,
    )
    torch.manual_seed(0)
    networks = TemplateModelComposer(builder, ProbabilisticPolicyComposer())
    module = ES(networks=networks, spec=spec)
    every = {"own": np.ones(2), "state": np.zeros(2), "mask": np.array([0, 1])}
    local = {name: values for name, values in every.items() if name != "state"}
    action, probabilities = module.act(local, with_probabilities=True)
    assert action == module.act(every)
    np.testing.assert_array_equal(probabilities["pick"], [0.0, 1.0])
    for name in local:
        with pytest.raises(ValueError, match=rf"also observes \['{name}'\]"):
            module.act({other: values for other, values in local.items() if other != name})
    with pytest.raises(ValueError, match=r"observation 'state' has shape \(3,\)"):
        module.act({**local, "state": np.zeros(3)})
