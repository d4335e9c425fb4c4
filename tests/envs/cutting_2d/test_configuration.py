"""The environment from configuration: its files, and its parts exchanged from the command line."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import maze_pl
from maze_pl.__main__ import main
from maze_pl.config import search_path
from maze_pl.config.factories import Factory
from maze_pl.envs.cutting_2d import (
    Cutting2DEnvironment,
    DefaultRewardAggregator,
    MaskedStructuredCutting2DEnvironment,
    MixedPeriodicDemand,
    RawPieceUsageRewardAggregator,
    StaticDemand,
    StructuredCutting2DEnvironment,
    UniformDemand,
)
from tests.envs.cutting_2d.instances import CYCLE, choose
from tests.envs.cutting_2d.parts import NewestPieceFirst, ServedReward, TwoRawPieces, WithArea

CUTTING_2D = "maze_pl.envs.cutting_2d"
PARTS = "tests.envs.cutting_2d.parts"
EVENTS = ("--data.env", "env/tutorial_cutting_2d_events")
LIMIT = [{"class_path": "maze_pl.envs.wrappers.TimeLimitWrapper", "init_args": {"max_episode_steps": 20}}]
SMALL = (
    *("--data.wrappers", yaml.safe_dump(LIMIT, default_flow_style=True, width=1000)),
    *("--data.n_envs", "2", "--data.n_rollout_steps", "20", "--data.epoch_length", "1", "--model.batch_size", "20"),
    *("--data.evaluators", '{"eval": {"n_episodes": 2}}', "--trainer.max_epochs", "2"),
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def shipped(name: str) -> Factory:
    """What makes the environments of a group file."""
    node = yaml.safe_load((search_path.shipped_folder() / "env" / f"{name}.yaml").read_text(encoding="utf-8"))
    return Factory(node["class_path"], node["init_args"])


def exchanged(capsys: pytest.CaptureFixture[str], option: str, value: str) -> Any:
    """An environment of a training run with one part exchanged."""
    with pytest.raises(SystemExit) as exit_:
        main(["fit", "--config", "ppo_cartpole", *EVENTS, option, value, "--print_config"])
    assert exit_.value.code == 0
    node = yaml.safe_load(capsys.readouterr().out)["data"]["init_args"]["env"]
    return Factory(node["class_path"], node["init_args"])()


def node(name: str, **init_args: Any) -> str:
    return yaml.safe_dump({"class_path": name, "init_args": init_args}, default_flow_style=True, width=1000)


@pytest.mark.parametrize(
    ("name", "kind", "max_pieces", "raw", "orders"),
    [
        ("basic", Cutting2DEnvironment, 200, (100, 100), [(30, 15)]),
        ("events", Cutting2DEnvironment, 200, (100, 100), [(30, 15)]),
        ("flat", Cutting2DEnvironment, 50, (4, 3), CYCLE),
        ("struct", StructuredCutting2DEnvironment, 50, (4, 3), CYCLE),
        ("struct_masked", MaskedStructuredCutting2DEnvironment, 50, (4, 3), CYCLE),
    ],
)
def test_group_files_describe_the_documented_instances(
    name: str, kind: type, max_pieces: int, raw: Any, orders: Any
) -> None:
    env = shipped(f"tutorial_cutting_2d_{name}")()
    core_env, reward = env.core_env, env.core_env.reward_aggregator
    assert type(env) is kind
    assert (core_env.max_pieces_in_inventory, core_env.raw_piece_size, core_env.demand.pieces) == (
        max_pieces,
        raw,
        orders,
    )
    assert isinstance(reward, DefaultRewardAggregator)
    assert (reward.invalid_action_penalty, reward.raw_piece_usage_penalty) == (-2, -1)
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)


@pytest.mark.slow
def test_the_reward_aggregator_is_exchanged(capsys: pytest.CaptureFixture[str]) -> None:
    option = "--data.env.core_env.reward_aggregator"
    usage = node(f"{CUTTING_2D}.RawPieceUsageRewardAggregator", reward_scale=0.1)
    env = exchanged(capsys, option, usage)
    assert type(env.core_env.reward_aggregator) is RawPieceUsageRewardAggregator
    env.reset(seed=0)
    cut = {"piece_idx": 0, "cut_rotation": 0, "cut_order": 0}
    assert env.step(cut)[1] == pytest.approx(-0.2)
    env = exchanged(capsys, option, node(f"{PARTS}.ServedReward", value=3.0))
    env.reset(seed=0)
    assert env.step(cut)[1] == 3.0


def test_a_penalty_is_changed_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    env = exchanged(capsys, "--data.env.core_env.reward_aggregator.invalid_action_penalty", "-7")
    env.reset(seed=0)
    assert env.step({"piece_idx": 100, "cut_rotation": 0, "cut_order": 0})[1] == -8


def test_the_core_environment_is_exchanged(capsys: pytest.CaptureFixture[str]) -> None:
    other = node(f"{PARTS}.TwoRawPieces", max_pieces_in_inventory=200, raw_piece_size=[90, 80], static_demand=[9, 8])
    env = exchanged(capsys, "--data.env.core_env", other)
    assert type(env.core_env) is TwoRawPieces
    env.reset(seed=0)
    assert env.get_maze_state().inventory == [(90, 80), (90, 80)]


def test_the_action_conversion_is_exchanged(capsys: pytest.CaptureFixture[str]) -> None:
    other = node(f"{PARTS}.NewestPieceFirst", max_pieces_in_inventory=200)
    env = exchanged(capsys, "--data.env.action_conversion", other)
    env.reset(seed=0)
    for _ in range(3):
        env.step({"piece_idx": 0, "cut_rotation": 0, "cut_order": 0})
    assert env.get_maze_state().inventory == [(70, 100), (30, 85)] * 3 + [(100, 100)]


def test_the_observation_conversion_is_exchanged(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = {"raw_piece_size": [100, 100], "max_pieces_in_inventory": 200}
    env = exchanged(capsys, "--data.env.observation_conversion", node(f"{PARTS}.WithArea", **arguments))
    observation, _ = env.reset(seed=0)
    assert observation["area"] == 450
    assert env.observation_space.contains(observation)


@pytest.mark.parametrize("name", ["basic", "events", "struct_masked"])
def test_each_environment_has_parts_of_its_own(name: str) -> None:
    make = shipped(f"tutorial_cutting_2d_{name}")
    first, second = make(), make()
    assert first.core_env is not second.core_env
    assert first.core_env.reward_aggregator is not second.core_env.reward_aggregator
    assert first.unwrapped.action_conversion is not second.unwrapped.action_conversion
    assert first.unwrapped.observation_conversion is not second.unwrapped.observation_conversion
    assert first.core_env.demand is not second.core_env.demand


@pytest.mark.parametrize(
    ("demand", "kind"),
    [
        ([30, 20], StaticDemand),
        ([[30, 20], [1, 2]], StaticDemand),
        ({"class_path": f"{CUTTING_2D}.StaticDemand", "init_args": {"pieces": [[30, 20], [1, 2]]}}, StaticDemand),
        ({"class_path": f"{CUTTING_2D}.UniformDemand", "init_args": {"max_size": [6, 5]}}, UniformDemand),
        (
            {
                "class_path": f"{CUTTING_2D}.MixedPeriodicDemand",
                "init_args": {"n_raw_pieces": 3, "m_demanded_pieces": 10, "rotate": True},
            },
            MixedPeriodicDemand,
        ),
    ],
)
@pytest.mark.parametrize("name", ["basic", "events"])
def test_orders_of_any_kind_are_configured(name: str, demand: Any, kind: type) -> None:
    make = shipped(f"tutorial_cutting_2d_{name}")
    where = make.init_args["core_env"]["init_args"] if name == "events" else make.init_args
    where["static_demand"] = demand
    env = make()
    assert type(env.core_env.demand) is kind
    if kind is StaticDemand:
        assert env.core_env.demand.pieces[0] == (30, 20)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data.env.static_demand", "[5, 1]"), r"orders that fit into raw pieces of size (4, 3): got [(5, 1)]"),
        (("--data.env.static_demand", "[1]"), "static_demand"),
        (("--data.env.pieces", "0"), "Option 'pieces' is not accepted"),
    ],
)
def test_a_wrong_configuration_is_one_message_and_status_2(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = ("--data.env", "env/tutorial_cutting_2d_struct_masked")
    assert main(["fit", "--config", "ppo_cartpole", *env, *SMALL, *options, "--run_dir", "here"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def rows(run_dir: str) -> list[dict[str, str]]:
    with Path(run_dir, "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flat", "struct", "struct_masked"])
def test_every_variant_trains(name: str) -> None:
    env = ("--data.env", f"env/tutorial_cutting_2d_{name}")
    assert main(["fit", "--config", "ppo_cartpole", *env, *SMALL, "--run_dir", "here"]) == 0
    first, last = rows("here")
    assert (first["step"], last["step"]) == ("40", "80")
    total = {
        event: float(last[f"eval_{event}/mean_episode_total"])
        for event in (
            "CuttingEvents/valid_cut",
            "CuttingEvents/invalid_cut",
            "CuttingEvents/invalid_piece_selected",
            "InventoryEvents/piece_replenished",
        )
    }
    valid, invalid_cut, invalid_piece, raw = total.values()
    assert valid + invalid_cut + invalid_piece == 20
    assert (invalid_cut + invalid_piece > 0) == (name != "struct_masked")
    assert float(last["eval_BaseEnvEvents/reward/mean"]) == -2 * (invalid_cut + invalid_piece) - raw
    assert float(last["eval_BaseEnvEvents/kpi/mean/raw_piece_usage_per_step"]) == pytest.approx(raw / 20)
    agent, env = maze_pl.load("here"), maze_pl.load_env("here")
    observation, _ = env.reset(seed=0)
    infos = []
    for _ in range(20 if name == "flat" else 40):
        action = agent.act(observation, env.actor_id().step_key)
        assert env.action_space.contains(action)
        observation, *_, info = env.step(action)
        infos += [info] if info else []
    assert len(infos) == 20
    assert name != "struct_masked" or infos == [{"msg": "valid_cut"}] * 20
    env.close()


@pytest.mark.slow
def test_exchanged_parts_train() -> None:
    arguments = {"raw_piece_size": [100, 100], "max_pieces_in_inventory": 200}
    options = (
        *("--data.env.core_env.reward_aggregator", node(f"{PARTS}.ServedReward")),
        *("--data.env.observation_conversion", node(f"{PARTS}.WithArea", **arguments)),
        *("--data.env.action_conversion", node(f"{PARTS}.NewestPieceFirst", max_pieces_in_inventory=200)),
    )
    assert main(["fit", "--config", "ppo_cartpole", *EVENTS, *SMALL, *options, "--run_dir", "here"]) == 0
    last = rows("here")[-1]
    valid = float(last["eval_CuttingEvents/valid_cut/mean_episode_total"])
    assert float(last["eval_BaseEnvEvents/reward/mean"]) == valid
    env = maze_pl.load_env("here", trust=True)
    assert isinstance(env.core_env.reward_aggregator, ServedReward)
    assert isinstance(env.unwrapped.action_conversion, NewestPieceFirst)
    assert isinstance(env.unwrapped.observation_conversion, WithArea)
    env.close()


@pytest.mark.parametrize("variant", ["flat", "struct_masked"])
@pytest.mark.parametrize("name", ["random_policy", "masked_random_policy", "tutorial_cutting_2d_greedy_policy"])
def test_policies_that_come_with_the_package_act(name: str, variant: str) -> None:
    env = shipped(f"tutorial_cutting_2d_{variant}")()
    config = yaml.safe_load((search_path.shipped_folder() / "policy" / f"{name}.yaml").read_text(encoding="utf-8"))
    arguments = {"masks": env.action_masks_dict} | config.get("init_args", {})
    policy = Factory(config["class_path"])(env.action_spaces_dict, **arguments)
    generator = torch.Generator().manual_seed(0)
    observation, _ = env.reset(seed=0)
    infos = []
    for _ in range(200):
        action = choose(env, policy, observation, generator)
        assert env.action_space.contains(action)
        observation, *_, info = env.step(action)
        infos += [info] if info else []
    masked = name == "masked_random_policy" and variant == "struct_masked"
    always_valid = masked or name == "tutorial_cutting_2d_greedy_policy"
    assert ({"msg": "valid_cut"} in infos) and (len({str(info) for info in infos}) == 1) == always_valid
