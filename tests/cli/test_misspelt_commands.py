"""Commands of other programs, and options with a single dash."""

from __future__ import annotations

import pytest

from maze_pl.__main__ import main


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["train", "--config", "ppo_cartpole"], "fit"),
        (["resume", "outputs/run"], "fit --resume"),
        (["vallidate", "outputs/run"], "validate"),
        (["fit", "-config", "ppo_cartpole"], "--config"),
        (["fit", "--config", "ppo_cartpole", "-model.lr=1"], "--model.lr"),
        (["rollout", "-run", "outputs/run"], "--run"),
        (["rollout", "--env", "env/gym_env", "-to", "folder"], "--output_dir"),  # there is no --to
        (["export", "outputs/run", "-to", "file"], "--to"),
        (["sweep", "-resume", "outputs/sweep"], "--resume"),
    ],
)
def test_a_misspelt_command_or_option_leads_to_the_one_that_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {meant}?\n")


def test_an_option_in_place_of_the_command_is_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-config", "ppo_cartpole"]) == 2
    assert "unknown command '-config': use fit, " in capsys.readouterr().err
