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
        (["sweep", "-run_dir", "outputs/sweep"], "--run_dir"),
        (["sweep", "-trust", "my_sweep.yaml"], "--trust"),
        (["sweep", "my_sweep.yaml", "-seed", "3"], "--seed"),
        (["sweep", "-n_trials=3"], "--n_trials=3"),
    ],
)
def test_a_misspelt_command_or_option_leads_to_the_one_that_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f"; did you mean {meant}?\n")


@pytest.mark.parametrize("value", ["-1", "-.5", "-inf", "-NaN"])
def test_numbers_below_0_are_values_of_options(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "lost.yaml", "--options.data.env.least", value]) == 2
    assert "there is no configuration 'lost.yaml'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--run", "-run", "--run_dir=outputs/run"])
def test_a_path_is_given_without_an_option(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "outputs/run", option]) == 2
    given = f"unrecognized arguments: {option}; give the path without an option: `maze-pl report RUNS`; "
    assert given in capsys.readouterr().err


def test_an_option_in_place_of_the_command_is_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-config", "ppo_cartpole"]) == 2
    assert "unknown command '-config': use fit, " in capsys.readouterr().err
