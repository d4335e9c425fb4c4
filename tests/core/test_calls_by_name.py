from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from gymnasium import spaces
from jsonargparse import ArgumentParser
from torch import nn

from maze_pl.agents import DummyCartPolePolicy
from maze_pl.config.factories import Factory
from maze_pl.core.calls_by_name import MissingArgumentError, call_by_name
from maze_pl.core.policy import Policy
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.envs import GymMazeEnv

KNOWN = {"action_spaces_dict": "spaces", "masks": "masks", "env": "env"}


class Rule:
    """A rule whose first argument is an option."""

    def __init__(self, level: int = 3, *, masks: Any = None) -> None:
        self.level, self.masks = level, masks

    def act(self, batch: Any, **options: Any) -> Any:
        raise NotImplementedError


class Biased(RandomPolicy):
    """A random policy that passes further arguments on."""

    def __init__(self, action_spaces_dict: Any, bias: float = 0.0, **kwargs: Any) -> None:
        super().__init__(action_spaces_dict, **kwargs)
        self.bias = bias


class OfSpec(RandomPolicy):
    """A random policy that passes further arguments on, and gives the spaces itself."""

    def __init__(self, spec: Any, **kwargs: Any) -> None:
        super().__init__({0: spec}, **kwargs)


class Plain:
    """A rule without a constructor."""


def of_spaces(action_spaces_dict: Any, level: int = 3) -> Any:
    return action_spaces_dict, level


def passing_on(action_spaces_dict: Any, **options: Any) -> Biased:
    return Biased(action_spaces_dict, **options)


@dataclass(frozen=True)
class Options:
    bias: float = 1.0


class WithOptions(RandomPolicy):
    """A random policy with arguments that are data classes."""

    def __init__(self, action_spaces_dict: Any, masks: Any, spec: Spec, options: Options = Options()) -> None:
        super().__init__(action_spaces_dict, masks)
        self.bias = options.bias


class PassingOptions(WithOptions):
    def __init__(self, action_spaces_dict: Any, **kwargs: Any) -> None:
        super().__init__(action_spaces_dict, **kwargs)


class ReadingNames(RandomPolicy):
    """A random policy that looks its arguments up."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(kwargs["action_spaces_dict"], kwargs["masks"])

    @classmethod
    def made(cls, **kwargs: Any) -> ReadingNames:
        return cls(**kwargs)


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    def of_any(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **named)

    return of_any


def ignoring(env: Any, **others: Any) -> tuple[Any, Any]:
    return env, others


def test_each_maker_gets_what_it_names_and_nothing_else() -> None:
    assert call_by_name(of_spaces, KNOWN) == ("spaces", 3)
    assert call_by_name(lambda env, masks: (env, masks), KNOWN) == ("env", "masks")
    assert isinstance(call_by_name(Plain, KNOWN), Plain)
    rule = call_by_name(Rule, KNOWN)
    assert (rule.level, rule.masks) == (3, "masks")


def test_arguments_that_are_configured_stay() -> None:
    assert call_by_name(partial(of_spaces, level=5), KNOWN) == ("spaces", 5)
    assert call_by_name(partial(of_spaces, "others"), KNOWN) == ("others", 3)
    assert call_by_name(partial(of_spaces, action_spaces_dict="others"), KNOWN) == ("others", 3)
    assert call_by_name(Factory(f"{__name__}.of_spaces", {"level": 5}), KNOWN) == ("spaces", 5)
    assert call_by_name(Factory(f"{__name__}.Rule", {"masks": {}}), KNOWN).masks == {}


def configured(class_path: str, **init_args: Any) -> Callable[..., Any]:
    """What a configuration makes of a class path for an option of the type of `initial_sampling_policy`."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--policy", type=Callable[..., Policy])
    config = parser.parse_object({"policy": {"class_path": class_path, "init_args": init_args}})
    made: Callable[..., Any] = parser.instantiate(config).policy
    return made


def test_a_class_of_a_configuration_gets_what_it_names() -> None:
    spec = Spec.of(GymMazeEnv("CartPole-v1"))
    known = {"action_spaces_dict": {key: step.action_space for key, step in spec.steps.items()}, "masks": {0: {}}}
    random = call_by_name(configured("maze_pl.agents.RandomPolicy"), known)
    assert isinstance(random, RandomPolicy) and random.masks == {0: {}}
    assert call_by_name(configured("maze_pl.agents.RandomPolicy", masks={}), known).masks == {}
    rule = call_by_name(configured("maze_pl.agents.DummyCartPolePolicy", look_ahead=2.0), known)
    assert isinstance(rule, DummyCartPolePolicy) and (rule.observation, rule.look_ahead) == ("observation", 2.0)


def of_others(spaces, masks) -> Any:  # type: ignore[no-untyped-def]
    raise NotImplementedError


def of_typed_others(spaces: dict[str, Any], masks: Any) -> Any:
    raise NotImplementedError


class OfOthers(Plain):
    """A rule with an argument that nothing knows."""

    def __init__(self, spaces, masks, *further, **named):  # type: ignore[no-untyped-def]
        raise NotImplementedError


@pytest.mark.parametrize("maker", [of_others, of_typed_others, OfOthers])
def test_what_a_maker_lacks_is_named_before_it_is_called(maker: Any) -> None:
    fault = rf"^{maker.__name__} requires 'spaces'; its arguments are passed by name: action_spaces_dict, masks, env$"
    for form in (maker, partial(maker, masks=3), Factory(f"{__name__}.{maker.__name__}", {"masks": 3})):
        with pytest.raises(MissingArgumentError, match=fault):
            call_by_name(form, KNOWN)


# -------------------------------------------------------------------------------------- arguments that are passed on


SPACES = {0: spaces.Dict({"action": spaces.Discrete(2)})}
OF_RANDOM = {"action_spaces_dict": SPACES, "masks": {0: {"action": "allowed"}}, "spec": SPACES[0], "env": "env"}


@pytest.mark.parametrize("made", [Biased, OfSpec, passing_on])
def test_what_further_arguments_stand_for_is_passed_too(made: Any) -> None:
    masks = OF_RANDOM["masks"]
    path = f"{__name__}.{made.__name__}"
    makers = [made, partial(made), Factory(path)]
    if isinstance(made, type):
        makers.append(configured(path))
    for maker in makers:
        policy = call_by_name(maker, OF_RANDOM)
        assert (policy.action_spaces_dict, policy.masks) == (SPACES, masks)


def test_arguments_that_are_data_classes_are_passed_on() -> None:
    for maker in (PassingOptions, partial(PassingOptions), Factory(f"{__name__}.PassingOptions")):
        policy = call_by_name(maker, OF_RANDOM)
        assert (policy.masks, policy.bias) == (OF_RANDOM["masks"], 1.0)
    assert call_by_name(partial(PassingOptions, options=Options(2.0)), OF_RANDOM).bias == 2.0


@pytest.mark.parametrize(
    "maker",
    [ReadingNames, ReadingNames.made, lambda **named: ReadingNames.made(**named), decorated(ReadingNames)],
    ids=["class", "classmethod", "lambda", "decorator"],
)
def test_makers_that_name_no_argument_get_all(maker: Callable[..., Any]) -> None:
    for form in (maker, partial(maker)):
        policy = call_by_name(form, OF_RANDOM)
        assert (policy.action_spaces_dict, policy.masks) == (SPACES, OF_RANDOM["masks"])


def test_further_arguments_that_are_configured_stay() -> None:
    path = f"{__name__}.Biased"
    makers = [partial(Biased, masks={}), Factory(path, {"masks": {}}), Factory(path, {}, {"masks": {}})]
    for maker in [*makers, configured(path, masks={})]:
        assert call_by_name(maker, OF_RANDOM).masks == {}
    assert call_by_name(configured(path, bias=2.0), OF_RANDOM).bias == 2.0


def test_further_arguments_that_nothing_takes_are_not_passed() -> None:
    assert call_by_name(ignoring, KNOWN) == ("env", {})
    assert call_by_name(partial(ignoring, level=3), KNOWN) == ("env", {"level": 3})


class Cooperative:
    """A rule whose base class takes no arguments."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class OfPlain(Cooperative, Plain):
    def __init__(self, **kwargs: Any) -> None:
        Cooperative.__init__(self, **kwargs)


class Network(nn.Module):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


class Keeping(Cooperative):
    """A rule that keeps all of its arguments."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        vars(self).update(kwargs)


class PassingToKeeping(Keeping):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)


@pytest.mark.parametrize("kind", [Cooperative, OfPlain, Network])
def test_a_class_gets_nothing_to_pass_on_to_base_classes_without_arguments(kind: type) -> None:
    for maker in (kind, partial(kind), Factory(f"{__name__}.{kind.__name__}")):
        assert isinstance(call_by_name(maker, KNOWN), kind)


@pytest.mark.parametrize("kind", [Keeping, PassingToKeeping])
def test_a_class_whose_base_class_reads_all_arguments_gets_them(kind: type) -> None:
    assert vars(call_by_name(kind, KNOWN)) == KNOWN


def by_position(env: Any, level: int = 3, /, *, masks: Any) -> tuple[Any, ...]:
    return env, level, masks


def test_arguments_by_position_are_missing_unless_they_are_given() -> None:
    with pytest.raises(MissingArgumentError, match=r"^by_position requires 'env' by position; .* by name: action_spa"):
        call_by_name(by_position, KNOWN)
    assert call_by_name(partial(by_position, "others"), KNOWN) == ("others", 3, "masks")
