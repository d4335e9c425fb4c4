"""Names in configurations for which `--trust` is needed, wherever they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from maze_pl.config.assembling import foreign_options
from maze_pl.config.search_path import ConfigurationError, shipped_folder
from maze_pl.config.trust import Trust, class_paths, foreign_names
from maze_pl.envs import make_pettingzoo_env


@pytest.mark.parametrize(
    "content",
    [
        {"data": {"class_path": "not_here.Env"}},
        {"data.class_path": "not_here.Env"},
        {"data": "subprocess.getoutput"},
        {"callbacks": ["os.system"]},
        {"os.system": 1},
        {"network": {"class_path": "maze_pl.FunctionalBlock", "init_args": {"func": "torch.load"}}},
        {"class_path": "torch.utils.data.DataLoader"},
        {"class_path": "torch.optim.optimizer.defaultdict"},
        {"optimizer": "torch.optim.optimizer.warnings.warn"},
        {"id": "os:Env-v0"},
        {"func": "maze_pl.cli.rollout_command.shlex.quote"},
        {"class_path": "maze_pl.__main__.main", "init_args": {"arguments": []}},
        {"class_path": "maze_pl.load"},
        {"class_path": "maze_pl.rllib.step_networks.from_bytes", "init_args": {"content": ""}},
        {"class_path": "maze_pl.runs.run_processes._start_here"},
        {"class_path": "maze_pl.runs.run_processes.RunProcess"},
        {"env": "maze_pl.run_context.commands.run_command"},
        {"env": "maze_pl.run_context.RunContext"},
        {"env": "maze_pl.records.record_files.SpacesTrajectoryRecord.load"},
        {"env": "maze_pl.collect.engines.process_engine._Worker"},
        {"env": "maze_pl.datamodules.initial_policy.make_initial_policy"},
        {"env": "gymnasium.envs.registration.EnvSpec.from_json"},
        {"id": {"id": "A-v0", "entry_point": "maze_pl.runs.run_processes:_start_here"}},
        {"id": {"id": "A-v0", "entry_point": "gymnasium.envs.registration:load_env_creator"}},
        {"func": "torch.nn.functional.torch.load"},
        {"func": "torch.nn.functional.torch.hub.load"},
        {"func": "torch.nn.functional.handle_torch_function"},
        {"func": "torch.nn.utils.parametrize.register_parametrization"},
        {"func": "maze_pl.modules.PPO.load_from_checkpoint"},
        {"arguments": ["--data.env=subprocess.getoutput"]},
        {"arguments": ["--data={env: subprocess.getoutput}"]},
        {"model": {"class_path": "maze_pl.rllib.RLlibPPO", "init_args": {"config": {"input_": ["data.npy"]}}}},
        {"model": {"init_args": {"config": {"extra_python_environs_for_worker": {"PYTHONPATH": "run"}}}}},
        {"model": "{init_args: {config: {logger_config: {type: x}}}}"},
        {"model.init_args.config.evaluation_config": {"input_": "data.npy"}},
        {"model.config.extra_python_environs_for_driver.PYTHONPATH": "run"},
        {"env": "{class_path: not_here.Env}"},
        {"env": "'{class_path: not_here.Env}'"},
        {"env": "{class_path: a, class_path: os.system"},
        {"env": "https://example.org/env.yaml"},
        {"env": "zip://a.yaml::https://example.org/env.zip"},
        {"dataset": {"trust": True}},
        {"dataset.init_args.trust": "yes"},
        {"engine": {"address": "example.org:6379"}},
        [["__main__.attack"]],
    ],
    ids=str,
)
def test_what_could_run_other_code_is_found_wherever_it_stands(content: Any) -> None:
    assert foreign_names(content)


def test_files_that_the_parser_would_read_are_looked_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("inner").mkdir()
    Path("env.yaml").write_text("init_args: {layout: inner/layout}", encoding="utf-8")
    Path("inner", "layout").write_text("next", encoding="utf-8")
    Path("inner", "next").write_text("class_path: not_here.Layout", encoding="utf-8")
    Path("lines.txt").write_text("a\nos.system\n\0", encoding="utf-8")
    Path("arrays.bin").write_bytes(b"\xff\xfe os.system")
    Path("itself.yaml").write_text("{a: itself.yaml, b: {c: itself.yaml}}", encoding="utf-8")
    Path("options.yaml").write_text("{lr: 0.1, input_: data.npy}", encoding="utf-8")
    assert foreign_names("env.yaml") == ["not_here.Layout"]
    assert foreign_names({"callbacks": "lines.txt"}) == ["os.system"]
    assert foreign_names(["arrays.bin", "itself.yaml", "options.yaml"]) == []
    assert foreign_names({"data": "options.yaml", "model": {"config": "options.yaml"}}) == ["model.config.input_"]


def test_options_of_a_sweep_or_of_seeds_are_searched_with_their_names_and_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    variables = "variables: {module: os, name: system}"
    Path("mine.yaml").write_text(f"base: ppo_cartpole\n{variables}\n", encoding="utf-8")
    start = ["fit", "--config", "mine.yaml"]
    assert foreign_options([*start, "--best_checkpoint.dirpath", "${run_dir}/best"]) == []
    assert foreign_options([*start, "--data.env", "${variables.module}.${variables.name}"]) == ["os.system"]
    assert foreign_options([*start, "--data.dataset.trust", "true"]) == ["trust: True"]
    assert foreign_options([*start, "--trust=true"]) == ["trust: True"]
    assert foreign_options([*start, "--data.env.class_path", "not_here.Env"]) == ["not_here.Env"]
    assert foreign_options([*start, "--model.config.input_", "data.npy"]) == ["model.config.input_"]


def test_what_comes_with_maze_pl_is_known() -> None:
    contents = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(shipped_folder().rglob("*.yaml"))]
    assert len(contents) > 50
    assert [foreign_names(content) for content in contents if foreign_names(content)] == [["maze_pl.load"]]


@pytest.mark.parametrize(
    "content",
    [
        {"class_path": "gymnasium.make", "init_args": {"id": "CartPole-v1"}},
        {"class_path": "maze_pl.envs.make_gym_maze_env", "init_args": {"name": "CartPole-v1"}},
        {"non_lin": "torch.nn.SELU", "func": ["torch.nn.functional.relu", "torch.nn.functional.conv2d"]},
        {"optimizer": {"class_path": "torch.optim.AdamW", "init_args": {"weight_decay": 0.1}}},
        {"input_data": "outputs/demonstrations.spaces", "trust": False, "address": "auto"},
        {"monitor": "eval/kpi/raw_piece_usage_per_step", "data": "minari:cart/pole-v0"},
        {"resume": None, "lr": 1e-3, "version": "2.6.1", "time": "12:30:00", "text": "[1, 2"},
        {"name": "maze_pl.envs:CartPole-v1", "env": "maze_pl.envs.job_shop.job_shop_factory", "options": "--lr=0.1"},
        {"model": {"config": {"lr": [[0, "1e-3"], [9, 0]], "seed": None, "num_gpus": "auto", "batch_mode": "x"}}},
        {"model": {"init_args": {"config": {"replay_buffer_config": {"type": "EpisodeReplayBuffer"}}}}},
        {"data": {"env": {"init_args": {"config": {"observation": {"type": "Kinematics"}}}}}},
    ],
    ids=str,
)
def test_values_that_run_no_code_need_no_trust(content: Any) -> None:
    assert foreign_names(content) == []


def test_a_module_outside_of_packages_is_not_imported_as_a_pettingzoo_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "intruder.py").write_text("raise RuntimeError('imported')", encoding="utf-8")
    with pytest.raises(ValueError, match=r"'intruder' does not name a PettingZoo environment: expected .*tictactoe"):
        make_pettingzoo_env("intruder")


def test_classes_named_without_their_module_are_looked_at_once_they_are_known() -> None:
    parsed = {"callbacks": [{"class_path": "pytorch_lightning.callbacks.LambdaCallback", "init_args": {}}]}
    with pytest.raises(ConfigurationError, match=r"RUN names .*LambdaCallback; if you trust .* --trust"):
        Trust(frozenset()).require_classes(parsed, "RUN")
    Trust.of_names_in(["LambdaCallback"]).require_classes(parsed, "RUN")
    Trust().require_classes(parsed, "RUN")
    assert list(class_paths(parsed)) == ["pytorch_lightning.callbacks.LambdaCallback"]
    with pytest.raises(ConfigurationError, match=r"RUN names .*RunProcess"):
        Trust(frozenset()).require_classes({"class_path": "maze_pl.runs.run_processes.RunProcess"}, "RUN")
