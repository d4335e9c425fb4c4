"""Hooks of Lightning in algorithms of users: those without effect are refused, and those that forget `super`."""

from __future__ import annotations

import copy
import functools
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl

from maze_pl.core.batches import Rollout
from maze_pl.modules import A2C, PPO, AlgorithmModule
from maze_pl.modules.run_module import RunModule
from tests.modules.small_algorithms import Reinforce

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


def named(name: str) -> Callable[..., None]:
    """A hook that does nothing."""
    scope: dict[str, Any] = {}
    exec(f"def {name}(self, *arguments, **options): pass", scope)
    hook: Callable[..., None] = scope[name]
    return hook


def with_hook(name: str, base: type = A2C) -> Any:
    return type("Mine", (base,), {name: named(name)})


@pytest.mark.parametrize(
    ("hook", "remedy"),
    [
        ("configure_gradient_clipping", "use max_grad_norm"),
        ("optimizer_step", "override gradient_step"),
        ("optimizer_zero_grad", "override gradient_step"),
        ("on_before_zero_grad", "override gradient_step"),
        ("backward", "override gradient_step"),
        ("on_before_backward", "override gradient_step"),
        ("on_after_backward", "override gradient_step"),
    ],
)
def test_a_hook_that_is_never_called_is_refused_with_the_alternative(
    kit: SimpleNamespace, hook: str, remedy: str
) -> None:
    with pytest.raises(TypeError, match=rf"^Mine\.{hook} would never be called, as .*: {remedy}"):
        kit.fit(with_hook(hook)(actor_critic=kit.make_actor_critic()))


def test_hooks_of_backward_are_called_where_an_algorithm_calls_it(kit: SimpleNamespace) -> None:
    called: list[str] = []

    class ByHand(AlgorithmModule):
        """Steps its optimiser as Lightning's pages describe it."""

        def training_step(self, batch: Rollout, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            self.manual_backward(sum(parameter.square().sum() for parameter in self.parameters()))
            optimizer.step()

        def on_before_backward(self, *arguments: Any) -> None:
            called.append("before")

        def on_after_backward(self) -> None:
            called.append("after")

    kit.fit(ByHand(actor_critic=kit.make_actor_critic()), length=1)
    assert called == ["before", "after"]


HOOKS = (
    *("setup", "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_train_batch_end"),
    *("on_validation_epoch_end", "on_validation_end", "on_train_epoch_end"),
)


def refusal(hook: str) -> str:
    """The message for a hook of the class `Mine`."""
    return rf"^Mine\.{hook} replaces the hook of maze_pl, .*: call super\(\)\.{hook}\(\.\.\.\) in it$"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_forgets_super_is_refused_by_its_name(kit: SimpleNamespace, hook: str) -> None:
    module = with_hook(hook)(actor_critic=kit.make_actor_critic())
    for _ in range(2):  # each time
        with pytest.raises(TypeError, match=refusal(hook)):
            kit.fit(module)


@pytest.mark.parametrize("base", [A2C, Reinforce])
def test_it_is_refused_whichever_other_hooks_are_overridden(kit: SimpleNamespace, base: type) -> None:
    hooks = {hook: named(hook) for hook in HOOKS[1:]}
    silent = type("Mine", (base,), {**hooks, "setup": base.setup})  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=refusal("on_fit_start")):
        kit.fit(silent(actor_critic=kit.make_actor_critic()))
    silent = type("Mine", (base,), {"setup": named("setup"), **hooks})
    with pytest.raises(TypeError, match=refusal("setup")):
        kit.fit(silent(actor_critic=kit.make_actor_critic()))


def test_a_hook_that_fails_at_first_is_checked_in_the_next_run(kit: SimpleNamespace) -> None:
    class Mine(A2C):
        has_failed = False

        def on_train_start(self) -> None:
            if not self.has_failed:
                self.has_failed = True
                raise KeyError("a file of the user")

    module = Mine(actor_critic=kit.make_actor_critic())
    with pytest.raises(KeyError):
        kit.fit(module)
    with pytest.raises(TypeError, match=refusal("on_train_start")):
        kit.fit(module)


def test_a_hook_that_calls_that_of_a_base_class_leaves_out_a_part(kit: SimpleNamespace) -> None:
    class Mine(PPO):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            RunModule.on_train_batch_start(self, batch, batch_idx)

    with pytest.raises(TypeError, match=refusal("on_train_batch_start")):
        kit.fit(Mine(actor_critic=kit.make_actor_critic(), batch_size=20))


def test_hooks_of_checkpoints_are_refused_when_one_is_written_or_read(kit: SimpleNamespace, tmp_path: Path) -> None:
    trainer = kit.fit(with_hook("on_save_checkpoint")(actor_critic=kit.make_actor_critic()), length=1)
    with pytest.raises(TypeError, match=refusal("on_save_checkpoint")):
        trainer.save_checkpoint(tmp_path / "a.ckpt")
    kit.fit(A2C(actor_critic=kit.make_actor_critic()), length=1).save_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(TypeError, match=refusal("on_load_checkpoint")):
        with_hook("on_load_checkpoint").load_from_checkpoint(
            tmp_path / "a.ckpt", actor_critic=kit.make_actor_critic(), weights_only=True
        )


def test_all_classes_are_named_of_which_one_does_not_call_super(kit: SimpleNamespace) -> None:
    class Outer(with_hook("on_train_start", Reinforce)):  # type: ignore[misc]
        def on_train_start(self) -> None:
            super().on_train_start()

    with pytest.raises(TypeError, match=r"^Outer\.on_train_start or Mine\.on_train_start replaces"):
        kit.fit(Outer(actor_critic=kit.make_actor_critic()))


def test_the_hook_of_another_base_class_is_refused_if_it_hides_that_of_maze_pl(kit: SimpleNamespace) -> None:
    class Silent:
        def on_train_epoch_end(self) -> None:
            pass

    hidden: Any = type("Mine", (Silent, A2C), {})
    with pytest.raises(TypeError, match=r"^Silent\.on_train_epoch_end replaces"):
        kit.fit(hidden(actor_critic=kit.make_actor_critic()))


def noted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of a user, one without `functools.wraps`."""

    def called(*arguments: Any) -> Any:
        return function(*arguments)

    return called


def followed_by_super(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of a user that calls the hook of maze_pl itself."""

    @functools.wraps(function)
    def called(self: Any, *arguments: Any) -> Any:
        function(self, *arguments)
        return getattr(super(Extends, self), function.__name__)(*arguments)

    return called


class Mixin:
    """A class that knows nothing of algorithms."""

    def on_train_batch_end(self, *arguments: Any) -> None:
        pass


class Announces:
    """A class besides algorithms, whose hook is not called by theirs."""

    def on_train_epoch_end(self) -> None:
        raise AssertionError


class Extends(Mixin, PPO, Announces):
    """Extends hooks in the ways that there are."""

    def setup(self, stage: str) -> None:
        super().setup(stage)

    def on_fit_start(self) -> None:
        PPO.on_fit_start(self)

    def on_train_start(self) -> None:
        def start() -> None:
            super(Extends, self).on_train_start()

        start()

    @noted
    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()

    @functools.lru_cache  # noqa: B019
    def on_validation_end(self) -> None:
        getattr(super(), "on_validation_end")()  # noqa: B009

    def on_train_batch_end(self, *arguments: Any) -> None:
        Mixin.on_train_batch_end(self, *arguments)
        PPO.on_train_batch_end(self, *arguments)

    def on_train_batch_start(self, *arguments: Any) -> None:
        self.begin(*arguments)

    def begin(self, *arguments: Any) -> None:
        super().on_train_batch_start(*arguments)

    @followed_by_super
    def on_validation_epoch_end(self) -> None:
        """The decorator extends it."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """There is nothing to extend."""

    def on_networks_ready(self) -> None:
        """Not a hook of Lightning."""


def test_extended_hooks_are_accepted(kit: SimpleNamespace) -> None:
    module = Extends(actor_critic=kit.make_actor_critic(), batch_size=20)
    kit.fit(module, length=1)
    assert module.env_steps == 40
    assert isinstance(module, pl.LightningModule)
    assert not [name for name in vars(module) if name in HOOKS]  # later calls are direct


def test_copies_of_an_algorithm_check_their_hooks_themselves(kit: SimpleNamespace) -> None:
    module = Extends(actor_critic=kit.make_actor_critic(), batch_size=20)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        kit.fit(other, length=1)
        assert (other.env_steps, module.env_steps) == (40, 0)
