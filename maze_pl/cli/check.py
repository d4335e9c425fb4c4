"""`maze-pl check`: checks the environment and wrappers that a configuration describes."""

import sys
from argparse import Action
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from jsonargparse import ArgumentError, DefaultHelpFormatter

from maze_pl.cli.replaced_classes import tell_dropped
from maze_pl.config.assembling import Prepared
from maze_pl.config.factories import with_factories
from maze_pl.config.messages import explain, message_of
from maze_pl.config.search_path import ConfigurationError
from maze_pl.config.texts import TextKeepingParser, is_plain_component, with_texts
from maze_pl.core.checks import check_count
from maze_pl.envs.arrays.array_env import ArrayEnv
from maze_pl.envs.building import Env, make_wrapped
from maze_pl.envs.checker import check_env, compare_envs
from maze_pl.envs.checker.arrays import make_comparable
from maze_pl.envs.checker.examination import ArrayForm, make_and_keep, plays_in_arrays
from maze_pl.envs.contract import EnvContractError
from maze_pl.system.time_limit import CallTimeoutError, time_limit_to_make

DESCRIPTION: Final = "Find faults of an environment."


class _HelpFormatter(DefaultHelpFormatter):
    """Help that says when options are required: a run directory or a configuration gives them, too."""

    def _get_help_string(self, action: Action) -> str:
        return super()._get_help_string(action).replace("(required,", "(required without RUN_DIR or --config,")


def check(
    env: Callable[[], Env],
    wrappers: list[Callable[[Any], Env]] | None = None,
    action_masks: dict[str, str] | None = None,
    n_steps: int = 1000,
    seed: int = 0,
    step_timeout: float | None = 60.0,
    same_as: Callable[[], Env] | None = None,
    n_envs: int = 4,
) -> int:
    """Check an environment, or compare it with another form of it, and print the report.

    Args:
        env: Builds one environment; a plain gymnasium environment is adapted.
        wrappers: Callables that wrap the environment, the first one innermost.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0; adds
            to the masks that the environment declares itself.
        n_steps: Acts to play.
        seed: Determines episodes and actions.
        step_timeout: Seconds that a step or a reset may take; null means no limit. Making an
            environment may take as long, but at least 60 s.
        same_as: Builds another form of the environment, with the same wrappers, which must give
            equal numbers for the same seeds and actions. Only this is checked then.
        n_envs: Number of environments of each form that `same_as` compares.

    Returns:
        The exit status: 0, or 1 if something is wrong with the environment or the two forms differ.
    """
    if same_as is not None:
        check_count("n_envs", n_envs, 1)
        makers = [partial(make_comparable, form, wrappers or [], action_masks, n_envs, seed) for form in (env, same_as)]
        comparison = compare_envs(makers[0], makers[1], n_steps=n_steps, seed=seed, step_timeout=step_timeout)
        sys.stdout.write(f"{comparison}\n")
        return 0 if comparison.difference is None else 1
    factory = partial(make_wrapped, env, wrappers or [], action_masks)
    array_form = None
    try:
        with time_limit_to_make(step_timeout):
            made, innermost = make_and_keep(env, wrappers or [], action_masks)
            if plays_in_arrays(made) and isinstance(innermost, ArrayEnv):
                array_form = ArrayForm(env, wrappers or [])
            made.close()
    except CallTimeoutError:
        raise
    except Exception as error:
        if message_of(error) is not None and not isinstance(error, TypeError | EnvContractError):
            raise  # the request is wrong, not the environment
    report = check_env(
        factory,
        n_steps=n_steps,
        seed=seed,
        action_masks=action_masks,
        step_timeout=step_timeout,
        array_form=array_form,
    )
    sys.stdout.write(f"{report}\n")
    return 0 if report.ok else 1


def run(arguments: Prepared, *_: Any) -> int:
    """Run the command.

    Args:
        arguments: The command line as rewritten by `assembling.prepare`.

    Returns:
        The exit status; see `check`.

    Raises:
        ConfigurationError: The options do not describe an environment.
    """
    return check(**parsed(check, "check", arguments, description=DESCRIPTION)[0])


def parsed(
    function: Callable[..., Any],
    name: str,
    arguments: Prepared,
    skip: Collection[str] = (),
    *,
    description: str,
    subject: str = "RUN_DIR",
) -> tuple[dict[str, Any], str]:
    """Parse the options of a command; return them as arguments of a function, and as YAML.

    Args:
        function: Its parameters are the options.
        name: Name of the command.
        arguments: The command and its options, without names, and the classes that they may
            instantiate.
        skip: Parameters that are not options.
        description: Description of the command in a line.
        subject: What the command takes before its options, as its help shows it.

    Raises:
        ConfigurationError: An option does not exist, or its value has the wrong type.
    """
    parser = TextKeepingParser(
        prog=f"maze-pl {name}",
        usage=f"maze-pl {name} [{subject}] [options]",
        description=description,
        formatter_class=_HelpFormatter,
        exit_on_error=False,
        allow_abbrev=False,
        written=arguments.written,
    )
    tell_dropped(arguments, arguments.dropped)
    config_help = "File with options, or a training configuration (uses `data.env`)."
    parser.add_argument("--config", action="config", help=config_help)
    parser.add_function_arguments(function, as_group=False, sub_configs=True, skip=set(skip))
    try:
        config = parser.parse_args(arguments[1:])
    except ArgumentError as error:
        known = parser.get_defaults().keys()
        raise ConfigurationError(explain(str(error), known, arguments)) from error
    del config["config"]
    text = parser.dump(config, skip_unset=False, skip_validation=True)
    arguments.trust.require_classes(config, "the run directory")
    as_written = with_texts(config, arguments.written)
    options = dict(vars(parser.instantiate(with_factories(as_written, arguments.written))))
    # a policy is made by the command; jsonargparse has read its texts again
    plain = {name: value for name, value in vars(as_written).items() if is_plain_component(value)}
    return {**options, **plain}, text
