"""`maze-pl check`: the environment doctor for environments and wrappers that configurations describe."""

import sys
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import gymnasium
from jsonargparse import ArgumentError, ArgumentParser

from maze_pl.envs.checker import check_env
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.vector.vector_env import make_wrapped
from maze_pl.errors import explain, message_of
from maze_pl.instantiation import with_factories
from maze_pl.search_path import ConfigurationError

Env = gymnasium.Env[Any, Any]


def check(
    env: Callable[[], Env],
    wrappers: list[Callable[[Env], Env]] | None = None,
    action_masks: dict[str, str] | None = None,
    n_steps: int = 1000,
    seed: int = 0,
) -> int:
    """Look at an environment, and print the report.

    Args:
        env: Builds one environment; a bare gymnasium environment is adapted.
        wrappers: Wrap it, the first one innermost.
        action_masks: Action head -> observation whose nonzero entries are allowed, beyond what the environment
            declares itself.
        n_steps: Acts to play.
        seed: Determines episodes and actions.

    Returns:
        The exit status: 0, or 1 if something is wrong with the environment.
    """
    factory = partial(make_wrapped, env, wrappers or [])
    try:
        factory().close()
    except Exception as error:
        if message_of(error) is not None and not isinstance(error, TypeError | EnvContractError):
            raise  # it is not the environment, but what was asked for
    report = check_env(factory, n_steps=n_steps, seed=seed, action_masks=action_masks)
    sys.stdout.write(f"{report}\n")
    return 0 if report.ok else 1


def run(arguments: Sequence[str], *_: Any) -> int:
    """Run the command.

    Args:
        arguments: What `configuration.prepare` made of the command line.

    Returns:
        The exit status; see `check`.

    Raises:
        ConfigurationError: The options do not describe an environment.
    """
    return check(**parsed(check, "check", arguments[1:])[0])


def parsed(
    function: Callable[..., Any], name: str, arguments: Sequence[str], skip: Collection[str] = ()
) -> tuple[dict[str, Any], str]:
    """Arguments of a function from the options of a command, and the options as YAML.

    Args:
        function: Its parameters are the options.
        name: Name of the command.
        arguments: The options, without names.
        skip: Parameters that are no options.

    Raises:
        ConfigurationError: There is no such option, or its value is of another type.
    """
    parser = ArgumentParser(prog=f"maze-pl {name}", exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--config", action="config", help="A file with options, or one whose `data.env` is meant.")
    parser.add_function_arguments(function, as_group=False, sub_configs=True, skip=set(skip))
    try:
        config = parser.parse_args(list(arguments))
    except ArgumentError as error:
        raise ConfigurationError(explain(str(error), parser.get_defaults().keys())) from error
    del config["config"]
    text = parser.dump(config, skip_unset=False, skip_validation=True)
    return dict(vars(parser.instantiate(with_factories(config)))), text
