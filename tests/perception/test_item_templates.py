"""Sets of items in templates: a modality with its mask, heads that choose an item, and choices that build on others."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor, nn

import maze_pl
from maze_pl.__main__ import main
from maze_pl.agents import TorchActorCritic
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.spec import Spec
from maze_pl.perception import (
    ConcatModelBuilder,
    DeepSetBlock,
    DeltaStateCriticComposer,
    PointerBlock,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    StepStateCriticComposer,
    TemplateModelComposer,
)
from tests.structured import pairs

ROOT = Path(__file__).parents[2]
TEMPLATE = """
items:
  block_type: maze_pl.perception.DeepSetBlock
  block_params: {mask_key: exists, chosen_keys: [first_item], hidden_units: [8]}
  heads:
    take:
      block_type: maze_pl.perception.PointerBlock
      block_params: {mask_key: exists, hidden_units: [8]}
    match:
      block_type: maze_pl.perception.PointerBlock
      block_params: {mask_key: exists, chosen_keys: [first_item], hidden_units: [8], n_glimpses: 1, score: dot}
hidden:
  block_type: maze_pl.perception.DenseBlock
  block_params: {hidden_units: [6]}
"""


def config(**changes: Any) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(TEMPLATE)
    loaded["items"] |= changes
    return loaded


def compose(n_slots: int = 8, critic: Any = None, seed: int = 0, **changes: Any) -> TorchActorCritic:
    torch.manual_seed(seed)
    builder = ConcatModelBuilder(config(**changes), {"items": "items"})
    composer = TemplateModelComposer(builder, ProbabilisticPolicyComposer(), critic or StepStateCriticComposer())
    networks = composer.compose(Spec.of(pairs.make_env(n_slots)))
    for parameter in networks.parameters():
        nn.init.normal_(parameter, std=0.3)
    return networks


def blocks(network: Any) -> dict[str, Any]:
    return {name: (type(block), block.in_keys) for name, block in network.perception_blocks.items()}


def observation(n_slots: int, batch: int = 5) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    exists = torch.ones(batch, n_slots)
    exists[:, 1] = 0.0
    items = torch.randint(0, 4, (batch, n_slots, 2), generator=generator).float()
    return {"items": items, "exists": exists, "first_item": torch.randint(n_slots, (batch,), generator=generator)}


def test_heads_choose_from_the_observation_of_their_modality() -> None:
    networks = compose()
    first, second = (step[0] for step in networks.policy.networks)
    assert blocks(first) == {
        "items_DeepSetBlock": (DeepSetBlock, ["items", "exists"]),  # nothing was chosen before
        "concat": (type(first.perception_blocks["concat"]), ["items_DeepSetBlock"]),
        "hidden": (type(first.perception_blocks["hidden"]), ["concat"]),
        "take": (PointerBlock, ["items", "latent", "exists"]),
    }
    assert blocks(second)["items_DeepSetBlock"] == (DeepSetBlock, ["items", "exists", "first_item"])
    assert blocks(second)["match"] == (PointerBlock, ["items", "latent", "exists", "first_item"])
    for network in networks.critic.networks:
        assert "value" in blocks(network) and "match" not in blocks(network) and "take" not in blocks(network)


@pytest.mark.parametrize("composer", [SharedStateCriticComposer, StepStateCriticComposer, DeltaStateCriticComposer])
def test_every_critic_judges_a_set(composer: Any) -> None:
    critic = compose(critic=composer()).critic
    seen = observation(8)
    value = critic.value("first", {name: seen[name] for name in ("items", "exists")})
    order = torch.tensor([3, 0, 1, 2, 7, 6, 5, 4])
    moved = {"items": seen["items"][:, order], "exists": seen["exists"][:, order]}
    assert value.shape == (5,)
    torch.testing.assert_close(critic.value("first", moved), value)
    other = {**seen, "items": seen["items"] + 1}
    assert not torch.allclose(critic.value("first", {name: other[name] for name in moved}), value)


def test_the_second_choice_depends_on_the_first() -> None:
    policy, seen = compose().policy, observation(8)
    logits = policy.action_logits("second", seen)["match"]
    other = policy.action_logits("second", {**seen, "first_item": (seen["first_item"] + 1) % 8})["match"]
    assert not torch.allclose(logits[:, 0], other[:, 0])
    allowed = seen["exists"] != 0
    assert bool((logits[~allowed] == torch.finfo(torch.float32).min).all())


def test_weights_learned_with_some_slots_act_with_another_number() -> None:
    small, large = compose(6), compose(20, seed=1)
    large.load_state_dict(small.state_dict())
    seen = observation(6)
    more = {**seen, "items": torch.zeros(5, 20, 2), "exists": torch.zeros(5, 20)}
    more["items"][:, :6], more["exists"][:, :6] = seen["items"], seen["exists"]
    for step, head in (("first", "take"), ("second", "match")):
        torch.testing.assert_close(
            large.policy.action_logits(step, more)[head][:, :6], small.policy.action_logits(step, seen)[head]
        )
    env = pairs.make_env(20)
    observed, _ = env.reset(seed=0)
    for _ in range(20):
        key = env.actor_id().step_key
        rows = {name: np.asarray(value)[None] for name, value in observed.items()}
        batch = PolicyBatch(key, rows, np.zeros(1, np.int64))
        action = large.policy.act(batch, generator=torch.Generator().manual_seed(0)).action
        choice = {head: np.asarray(value)[0] for head, value in action.items()}
        assert observed["exists"][next(iter(choice.values()))]
        observed, *_ = env.step(choice)


def test_an_observation_for_heads_alone_does_not_enter_the_latent() -> None:
    heads = config()["items"]["heads"]
    modalities = {"items": {"heads": {"take": heads["take"]}}, "size": {}}
    builder = ConcatModelBuilder(modalities, {"items": "items", "size": "size"})
    shapes = {"items": (8, 2), "exists": (8,), "size": (1,)}
    network = builder.policy_network(shapes, {"take": (8,), "other": (3,)})
    assert network.perception_blocks["concat"].in_keys == ["size"]
    assert blocks(network)["take"] == (PointerBlock, ["items", "latent", "exists"])
    assert network.out_shapes() == [(8,), (3,)]
    assert builder.critic_network(shapes).perception_blocks["concat"].in_keys == ["size"]
    with pytest.raises(ValueError, match=r"only heads read \['items', 'exists'\], .*DeepSetBlock"):
        alone = ConcatModelBuilder({"items": modalities["items"]}, {"items": "items"})
        alone.policy_network({"items": (8, 2), "exists": (8,)}, {"take": (8,)})


def test_heads_of_items_start_nearly_uniform_and_blocks_before_them_do_not() -> None:
    torch.manual_seed(0)
    builder = ConcatModelBuilder(config(), {"items": "items"})
    shapes = {"items": (8, 2), "exists": (8,), "first_item": ()}
    network = builder.policy_network(shapes, {"take": (8,), "match": (8,)})
    with torch.no_grad():
        outputs = network(observation(8))
    for head, limit in (("take", 0.1), ("match", 1.0)):
        logits = outputs[head][:, [0, 2, 3, 4]]
        assert float(logits.abs().max()) < limit and float(logits.std()) > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": ["take"]}, "'items': heads: expected action heads with block_type and block_params each"),
        ({"heads": {"take": {}}}, "'items: heads: take' needs block_type"),
        (
            {"heads": {"tke": {"block_type": "maze_pl.perception.PointerBlock"}}},
            r"heads \['tke'\]; the action heads are \['match', 'take'\]",
        ),
        (
            {"block_params": {"mask_key": "exist"}},
            r"block_params name \['exist'\] as inputs; the observations are \['exists', 'first_item', ",
        ),
        (
            {"block_params": {"mask_key": "first_item"}},
            r"'items' cannot be made for 'items' of shape \(8, 2\): .*name 'first_item', but this network has only",
        ),
        (
            {"block_params": {"mask_key": "exists", "chosen_keys": "first_item"}},
            "DeepSetBlock .* chosen_keys to name some of the further inputs",
        ),
    ],
)
def test_invalid_templates_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compose(**changes)


def test_a_head_belongs_to_one_modality_and_needs_its_observation() -> None:
    entry = config()["items"]
    with pytest.raises(ValueError, match="the head 'take' belongs to 'items' and 'others'; name one"):
        ConcatModelBuilder({"items": entry, "others": entry}, {"items": "items"})
    builder = ConcatModelBuilder({"items": entry, "raw": {}}, {"items": "items", "size": "raw"})
    with pytest.raises(ValueError, match=r"'items': heads: 'take' needs one observation of this modality .* not \[\]"):
        builder.policy_network({"size": (1,)}, {"take": (8,)})


def test_a_named_function_of_the_template_is_enough_for_several_numbers_of_slots() -> None:
    build = partial(compose, critic=SharedStateCriticComposer())
    sizes = [{name: tuple(p.shape) for name, p in build(n).named_parameters()} for n in (4, 30)]
    assert sizes[0] == sizes[1]


@pytest.mark.slow
def test_the_template_of_the_example_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.chdir(tmp_path)
    config = ROOT / "examples/cutting_2d_mixed/configs/ppo_cutting_2d_mixed_pointer.yaml"
    small = [
        "--data.n_envs",
        "2",
        "--data.n_rollout_steps",
        "10",
        "--data.epoch_length",
        "1",
        "--model.batch_size",
        "20",
    ]
    small += ["--trainer.max_epochs", "1", "--data.evaluators", "{}", "--run_dir", "here"]
    assert main(["fit", "--config", str(config), *small]) == 0
    agent, env = maze_pl.load("here", trust=True), maze_pl.load_env("here", trust=True)
    observation, _ = env.reset(seed=0)
    action = agent.act(observation, env.actor_id().step_key)
    assert observation["inventory_mask"][action["piece_idx"]]
    env.close()
