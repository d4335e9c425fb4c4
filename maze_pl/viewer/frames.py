"""Environments that return pictures, for simulations that have no renderer."""

import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from maze_pl.config.factories import Factory
from maze_pl.core.class_path import import_object
from maze_pl.envs.building import make_wrapped
from maze_pl.envs.contract import EnvContractError, check_picture

MODE: Final = "rgb_array"
"""Mode of rendering in which environments of gymnasium and PettingZoo return pictures."""
_SDL_DRIVER: Final = "SDL_VIDEODRIVER"
_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", _SDL_DRIVER)


def with_frames(make_env: Callable[[], Any]) -> Callable[[], Any] | None:
    """Return a factory of the same environment, made with `render_mode="rgb_array"`.

    Args:
        make_env: A factory that has made an environment before, as its class is imported here.

    Returns:
        None if it is not a factory of a configuration, the environment takes no render mode or has
        been given one, or it cannot be drawn, for example because a package is missing, as a
        message then says.
    """
    if not isinstance(make_env, Factory):
        return None
    given_mode = make_env.init_args.get("render_mode") or make_env.dict_kwargs.get("render_mode")
    if given_mode is not None:
        return None
    parameters = inspect.signature(import_object(make_env.class_path)).parameters
    if "render_mode" in parameters:
        drawing = replace(make_env, init_args={**make_env.init_args, "render_mode": MODE})
    elif any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        drawing = replace(make_env, dict_kwargs={**make_env.dict_kwargs, "render_mode": MODE})
    else:
        return None
    return drawing if _draws(drawing) else None


def _draws(make_env: Callable[[], Any]) -> bool:
    """True if an environment can be made and rendered; a message says why if it cannot."""
    try:
        with drawing_without_display(), warnings.catch_warnings(), ExitStack() as undo:
            warnings.simplefilter("ignore")  # they come again while episodes are played
            env = make_wrapped(make_env)
            undo.callback(_close, env)
            env.reset(seed=0)
            picture = env.render()
            if picture is not None:
                check_picture(picture, env)
    except EnvContractError as error:
        sys.stderr.write(f"maze-pl: there are no pictures: {error}\n")
        return False
    except Exception as error:  # of any class: MuJoCo's without OpenGL derives from no other
        first_line = str(error).partition("\n")[0]
        sys.stderr.write(f"maze-pl: there are no pictures: {type(error).__name__}: {first_line}\n")
        return False
    return picture is not None


def _close(env: Any) -> None:
    """Close an environment, which may be unable to after an error of its renderer."""
    with suppress(Exception):
        env.close()


@contextmanager
def drawing_without_display() -> Iterator[None]:
    """Keep SDL, with which gymnasium draws, from looking for a display where there is none, which causes warnings."""
    is_set = not any(os.environ.get(name) for name in _DISPLAYS)
    if is_set:
        os.environ[_SDL_DRIVER] = "dummy"
    try:
        yield
    finally:
        if is_set:
            os.environ.pop(_SDL_DRIVER, None)
