"""What can be wrong about replay buffers and demonstrations, each ending in one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.bad_input.project import few_fast, require_only_evidence, tree

pytestmark = pytest.mark.filterwarnings("ignore")

SMALL = [
    *("--data.initial_buffer_size", "100", "--data.epoch_length", "2", "--data.evaluators", "{}"),
    *("--trainer.max_epochs", "1", "--model.capture", "off", "--data.save_buffer", "true"),
]
RANDOM = ["--data.initial_sampling_policy", "policy/random_policy"]
FIT = ["fit", "--config", "sac_pendulum", *SMALL, *RANDOM, "--data.batch_size", "16", "--run_dir"]
RESUME = ["fit", "--resume", "sac", "--trainer.max_epochs", "2"]
SHOWN = [
    "--data.demonstrations",
    '{"class_path": "maze_pl.datasets.InMemoryDataset", "init_args": {"input_data": "%s"}}',
]


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str], *parts: str) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error and error.count("maze-pl: error: ") == 1
    message = error.partition("maze-pl: error: ")[2]
    assert all(part in message for part in parts), message
    assert len(message.splitlines()) <= 4


@pytest.mark.parametrize(
    ("more", "parts"),
    few_fast(
        [
            (["--data.batch_size", "101"], ["initial_buffer_size=100", "batch_size=101"]),
            (["--data.replay_buffer_size", "99"], ["initial_buffer_size=100", "replay_buffer_size=99"]),
            (["--data.demonstration_share", "0.5"], ["demonstration_share=0.5", "demonstrations"]),
            (
                [SHOWN[0], SHOWN[1] % "episodes"],
                ["episodes/", "does not fit", "sub-step 0", "the environment's is Box"],
            ),
            ([SHOWN[0], SHOWN[1] % "nowhere"], ["no file or folder nowhere"]),
            (["--data.initial_sampling_policy", "maze_pl.agents.RandomPolicyy"], ["RandomPolicyy"]),
            (["--data.initial_sampling_policy", "torch.nn.ReLU"], ["initial_sampling_policy", "torch.nn.ReLU"]),
            (["--data.initial_sampling_policy", "maze_pl.agents.TorchPolicy"], ["initial_sampling_policy", "argument"]),
        ]
    ),
    ids=lambda value: str(value)[-40:],
)
def test_impossible_buffers_are_refused(
    project: Path, capsys: pytest.CaptureFixture[str], more: list[str], parts: list[str]
) -> None:
    before = tree(project)
    refused([*FIT, "new", *more], capsys, *parts)
    require_only_evidence(before, project)


def test_an_algorithm_that_learns_from_other_batches_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(project)
    message = ["BC learns from TrajectoryBatch batches", "ReplayDataModule delivers ReplayBatch", "SAC"]
    refused(["fit", "--config", "sac_cartpole", "--model", "algorithm/bc"], capsys, *message)
    require_only_evidence(before, project)


@pytest.mark.slow
def test_a_saved_buffer_that_does_not_fit_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FIT, "sac"]) == 0
    (buffer,) = Path("sac", "checkpoints").glob("replay-*.pt")
    refused([*RESUME, "--data.replay_buffer_size", "200"], capsys, "replay_buffer_size was 100000 and is 200")
    refused([*RESUME, "--data.num_actors", "2"], capsys, "ranks and actors was [1, 1, 1] and is [1, 2, 1]")
    refused([*RESUME, "--model.gamma", "0.5"], capsys, "gamma was 0.99 and is 0.5")
    content = buffer.read_bytes()
    buffer.write_bytes(content[:-1])
    refused(RESUME, capsys, str(buffer), "is missing or was altered")
    buffer.unlink()
    refused(RESUME, capsys, str(buffer), "is missing or was altered")
    buffer.write_bytes(content)
    assert main(RESUME) == 0
    assert len(list(Path("sac", "checkpoints").glob("replay-*"))) == 1
