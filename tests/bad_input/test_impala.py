"""What the user can get wrong about IMPALA, each ending in one message that says it, with nothing left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from maze_pl.__main__ import main
from tests.bad_input.project import few_fast, tree

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

FIT = ["fit", "--config", "impala_cartpole", "--trainer.max_epochs", "1", "--run_dir", "new"]
CASES: list[tuple[list[str], list[str]]] = [
    (["--data.num_actors", "9"], ["num_actors=9", "more actors than the queue can serve", "8 rollouts"]),
    (["--data.num_actors", "-1"], ["num_actors=-1 must be at least 0"]),
    (["--data.actors_batch_size", "-1"], ["actors_batch_size=-1 must be at least 1"]),
    (["--data.queue_out_of_sync_factor", "0"], ["queue_out_of_sync_factor=0 must be at least 1"]),
    (["--data.n_shards", "3"], ["n_shards=3 must be 0"]),
    (["--data.n_envs", "4"], ["n_envs"]),
    (["--model.reward_clipping", "abs_two"], ["reward_clipping", "'none', 'abs_one', 'soft_asymmetric'"]),
    (["--model.vtrace_clip_rho_threshold", "0"], ["vtrace_clip_rho_threshold=0.0 must be greater than 0"]),
    (["--model.gae_lambda", "0.9"], ["'gae_lambda'"]),
]


@pytest.mark.parametrize(("arguments", "parts"), few_fast(CASES), ids=lambda value: " ".join(value)[:60])
def test_invalid_options_are_refused_in_one_message(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    before = tree(project)
    assert main([*FIT, *arguments]) == 2
    error = capsys.readouterr().err
    assert all(part in error for part in parts), error
    assert "Traceback" not in error
    assert tree(project) == before
