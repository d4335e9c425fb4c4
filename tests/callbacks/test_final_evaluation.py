"""What is said about the last and the best policy when training has ended."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EMAWeightAveraging
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import maze_pl
from maze_pl.__main__ import main
from maze_pl.callbacks import BestCheckpoint, EpochTable, FinalEvaluation, LastCheckpoint, final_evaluation
from maze_pl.callbacks.console_log import ConsoleLog
from maze_pl.core.batches import Evaluation
from maze_pl.core.episode import EpisodeSummary
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    FlattenConcatPolicyNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
)
from maze_pl.runs.loading import load_data

LINE = re.compile(
    r"^best: (\w+) return ([\d.]+) in new episodes after ([\d,]+) env steps \(best.ckpt\)\n"
    r"last: \w+ return ([\d.]+) in new episodes after ([\d,]+) env steps$",
    re.MULTILINE,
)


def policy_net(obs_shapes: Any, action_logits_shapes: Any) -> Any:
    return FlattenConcatPolicyNet(obs_shapes, action_logits_shapes, torch.nn.Tanh, [8])


def value_net(obs_shapes: Any) -> Any:
    return FlattenConcatStateValueNet(obs_shapes, torch.nn.Tanh, [8])


def cartpole() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


class History(pl.Callback):
    """Keeps the result of each evaluation. Lets the policy be good in the second epoch and bad in all others."""

    def __init__(self) -> None:
        self.returns: list[float] = []

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: A2C) -> None:  # type: ignore[override]
        with torch.no_grad():
            first, _, last, bias = (parameter.zero_() for parameter in pl_module.policy.parameters())
            bias[0] = 1e-6  # the pole is always pushed the same way
            if trainer.current_epoch == 1:  # the pole is pushed where it falls
                first[0] = torch.tensor([0.0, 0.0, 3.0, 1.0])
                last[:, 0] = torch.tensor([-1.0, 1.0])

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.returns.append(float(trainer.callback_metrics["eval/return"]))


def test_callbacks_that_average_weights_must_come_before(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="EMAWeightAveraging comes after FinalEvaluation in the callbacks"):
        fit(tmp_path, [BestCheckpoint(), FinalEvaluation(), EMAWeightAveraging()])


def fit(folder: Path, callbacks: list[pl.Callback], evaluators: Any = None) -> tuple[History, pl.Trainer]:
    pl.seed_everything(0, verbose=False)
    evaluators = {"eval": RolloutEvaluator(4)} if evaluators is None else evaluators
    data = RolloutDataModule(cartpole, n_envs=2, n_rollout_steps=25, epoch_length=2, evaluators=evaluators, seed=1)
    networks = CustomModelComposer(
        policy=ProbabilisticPolicyComposer([policy_net]), critic=SharedStateCriticComposer([value_net])
    )
    history = History()
    trainer = pl.Trainer(
        default_root_dir=folder,
        max_epochs=4,
        callbacks=[history, EpochTable(), *callbacks] if evaluators else [EpochTable(), *callbacks],
        logger=False,
        accelerator="cpu",
        devices=1,
        enable_checkpointing=any(isinstance(callback, BestCheckpoint) for callback in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with ConsoleLog() as log:
        log.open(folder / "run.log")
        trainer.fit(A2C(networks=networks, spec=data.spec, lr=1e-9), data)
    trainer.save_checkpoint(folder / "end.ckpt")
    return history, trainer


def test_the_last_and_the_best_policy_are_evaluated_in_new_episodes(tmp_path: Path) -> None:
    history, trainer = fit(tmp_path, [BestCheckpoint(), LastCheckpoint(), FinalEvaluation()])
    ((name, best, steps, last, last_steps),) = LINE.findall((tmp_path / "run.log").read_text(encoding="utf-8"))
    assert history.returns[1] > 50 > history.returns[-1]
    assert name == "eval"
    assert float(best) > 50 > float(last)
    assert abs(float(last) - history.returns[-1]) > 0.01  # the best policy may reach 500 in all episodes
    data = trainer.datamodule  # type: ignore[attr-defined]
    with data.final_episodes():
        final = data.evaluate("eval").summaries
    data.teardown("fit")
    assert float(last) == pytest.approx(sum(one.reward for one in final) / 4, abs=1e-3)
    assert (steps, last_steps) == ("200", "400")


@pytest.mark.slow
def test_it_leaves_what_was_trained_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    _, one = fit(tmp_path / "a", [BestCheckpoint(), LastCheckpoint()])
    _, other = fit(tmp_path / "b", [BestCheckpoint(), LastCheckpoint(), FinalEvaluation()])
    assert one.callback_metrics["eval/return"] == other.callback_metrics["eval/return"]
    for name in ("end.ckpt", "checkpoints/last.ckpt"):
        states = [torch.load(tmp_path / run / name, weights_only=True) for run in "ab"]
        kept = ("state_dict", "optimizer_states", "RolloutDataModule", "epoch", "global_step")
        assert all(str(states[0][key]) == str(states[1][key]) for key in kept)
        assert states[0]["maze_pl"]["env_steps"] == states[1]["maze_pl"]["env_steps"] == 400


def test_every_evaluator_has_its_line(tmp_path: Path) -> None:
    evaluators = {"eval": RolloutEvaluator(2), "sampled": RolloutEvaluator(3, deterministic=False)}
    fit(tmp_path, [BestCheckpoint(), FinalEvaluation()], evaluators)
    lines = LINE.findall((tmp_path / "run.log").read_text(encoding="utf-8"))
    assert [line[0] for line in lines] == ["eval", "sampled"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Total length of `list` across ranks is zero")
def test_nothing_is_evaluated_without_evaluators_or_without_a_best_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: list[EpisodeSummary] = []
    evaluate = RolloutDataModule.evaluate

    def watch(self: RolloutDataModule, *args: Any) -> Any:
        evaluation = evaluate(self, *args)
        played.extend(evaluation.summaries)
        return evaluation

    monkeypatch.setattr(RolloutDataModule, "evaluate", watch)
    fit(tmp_path, [FinalEvaluation()], evaluators={})
    assert played == []
    fit(tmp_path, [FinalEvaluation()])
    assert len(played) == 5 * 4  # Lightning's sanity check and four epochs
    assert not LINE.search((tmp_path / "run.log").read_text(encoding="utf-8"))


SMALL = ["--trainer.max_epochs", "1", "--data.epoch_length", "2", "--data.n_envs", "2", "--data.n_rollout_steps", "50"]


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("evaluators", ['{"eval": {"n_episodes": 2}}', "{}"])
def test_the_command_line_ends_with_it(capsys: pytest.CaptureFixture[str], evaluators: str) -> None:
    options = [*SMALL, "--data.evaluators", evaluators, "--run_dir", "here"]
    assert main(["fit", "--config", "ppo_cartpole", *options]) == 0
    captured = capsys.readouterr()
    file = Path("here", "final_evaluation.json")
    assert file.is_file() == (evaluators != "{}")
    if file.is_file():
        found = json.loads(file.read_text())
        (best, last) = (found["evaluators"]["eval"][which] for which in ("best", "last"))
        assert len(best) == len(last) == 2
        events = EventAccumulator("here/tensorboard").Reload()
        (point,) = events.Scalars("final_eval/best/return")
        assert point.step == found["env_steps"]["last"]
        assert point.value == pytest.approx(sum(one["return"] for one in best) / 2)
    assert main(["report", "here"]) == 0
    page = Path("here", "report.html").read_text(encoding="utf-8")
    assert ("best.ckpt</td>" in page) == file.is_file() and "maze-pl fit --config ppo_cartpole" in page
    assert ("There is no final evaluation" in page) != file.is_file()
    capsys.readouterr()
    lines = [LINE.findall(text) for text in (captured.out, Path("here", "run.log").read_text(encoding="utf-8"))]
    if evaluators == "{}":
        assert lines == [[], []]
        assert "Total length" not in captured.err
        return
    assert lines[0] == lines[1]
    ((_, best, steps, last, last_steps),) = lines[0]
    assert (best, steps) == (last, last_steps) == (best, "200")
    assert Path("here", "metrics.csv").read_text(encoding="utf-8").count("\n") == 2


@pytest.mark.usefixtures("inside")
def test_a_batch_size_that_does_not_fit_is_found_before_anything_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    options = [*SMALL, "--model.batch_size", "48", "--run_dir", "here"]
    assert main(["fit", "--config", "ppo_cartpole", *options]) == 2
    assert "batch_size=48 does not divide n_envs * n_rollout_steps = 100" in capsys.readouterr().err
    assert not Path("here").exists()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("inside")
def test_two_ranks_share_the_episodes_and_say_the_same_as_one() -> None:
    evaluators = ["--data.evaluators", '{"eval": {"n_episodes": 5}}', "--trainer.devices", "2"]
    options = [*SMALL, *evaluators, "--model.batch_size", "50", "--run_dir", "here"]
    command = [sys.executable, "-m", "maze_pl", "fit", "--config", "ppo_cartpole", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    ((_, best, _, last, _),) = LINE.findall(result.stdout)
    assert best == last
    data = load_data("here", with_evaluators=True)
    with data.final_episodes():
        found = data.evaluate("eval", maze_pl.load("here").policy).summaries
    data.teardown("validate")
    assert float(best) == pytest.approx(sum(one.reward for one in found) / 5, abs=1e-3)


def test_kpis_stand_beside_the_return_with_enough_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kpis = ({"usage": 0.002, "waste": 4.0}, {"usage": 0.004})
    summaries = [EpisodeSummary({}, 10, float(10 * index), one) for index, one in enumerate(kpis)]
    monkeypatch.setattr(RolloutDataModule, "evaluate", lambda self, name, *_: Evaluation(name, summaries))
    fit(tmp_path, [BestCheckpoint(), FinalEvaluation()])
    lines = (tmp_path / "run.log").read_text(encoding="utf-8").splitlines()
    means = "eval return 5.000, kpi/usage 0.003, kpi/waste 4.000 in new episodes after"
    assert [line.partition(": ")[0] for line in lines if means in line] == ["best", "last"]


def test_episodes_of_several_ranks_are_in_the_order_of_their_indices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = RolloutEvaluator(20).groups
    of_ranks = [[index for group in groups[rank::2] for index in group] for rank in range(2)]
    of_ranks = [[EpisodeSummary({}, 10, 10.0 * index, episode_index=index) for index in one] for one in of_ranks]
    monkeypatch.setattr(RolloutDataModule, "evaluate", lambda self, name, *_: Evaluation(name, of_ranks[0]))
    monkeypatch.setattr(final_evaluation, "gather_objects", lambda own: [own, of_ranks[1]])
    fit(tmp_path, [BestCheckpoint(), FinalEvaluation(str(tmp_path))])
    content = json.loads((tmp_path / "final_evaluation.json").read_text())
    for which in ("best", "last"):
        returns = [episode["return"] for episode in content["evaluators"]["eval"][which]]
        assert returns == [10.0 * index for index in range(20)]
