"""Composer of policy and critic that needs no options: everything follows from the spaces."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import yaml
from gymnasium import spaces

from maze_pl.agents import TorchActorCritic, TorchStateActionCritic
from maze_pl.core.class_path import import_class
from maze_pl.core.spec import Spec
from maze_pl.distributions.distribution_mapper import with_explorations
from maze_pl.perception.automatic import Kind, choose_for_all, modalities
from maze_pl.perception.blocks.image_block import Channels
from maze_pl.perception.blocks.layer_options import ModuleClass
from maze_pl.perception.concat_model_builder import ConcatModelBuilder
from maze_pl.perception.models.composers import CriticComposerInterface
from maze_pl.perception.models.delta_state_critic_composer import DeltaStateCriticComposer
from maze_pl.perception.models.probabilistic_policy_composer import ProbabilisticPolicyComposer
from maze_pl.perception.models.shared_state_action_critic_composer import SharedStateActionCriticComposer
from maze_pl.perception.models.shared_state_critic_composer import SharedStateCriticComposer
from maze_pl.perception.models.step_state_action_critic_composer import StepStateActionCriticComposer
from maze_pl.perception.models.step_state_critic_composer import StepStateCriticComposer
from maze_pl.perception.models.template_model_composer import TemplateModelComposer

CriticKind = Literal["shared", "step", "delta"]

_COMPOSERS: Sequence[tuple[CriticKind, type[CriticComposerInterface]]] = (
    ("shared", SharedStateCriticComposer),
    ("step", StepStateCriticComposer),
    ("delta", DeltaStateCriticComposer),
    ("shared", SharedStateActionCriticComposer),
    ("step", StepStateActionCriticComposer),
)
"""Composers of critics; among those that fit an algorithm and a spec, the first one is chosen."""


class AutomaticModelComposer:
    """Chooses networks that fit the spaces of an agent and the critic that an algorithm needs.

    Each observation gets a block that fits its space; the results are concatenated and processed by
    dense layers, as by a `TemplateModelComposer` with a `ConcatModelBuilder`. `describe` returns
    the choice as such a configuration. `docs/automatic_networks.md` lists all choices.

    Args:
        hidden_units: Widths of the dense layers after the concatenation; by default [256, 256] for
            algorithms with state-action critics and [64, 64] for all others.
        non_lin: Activation of these layers, a class or its path; by default `torch.nn.ReLU` with
            state-action critics and `torch.nn.Tanh` otherwise.
        kinds: Observation -> kind, for observations whose space does not say how to treat them.
        channels: Layout of all images; `auto` takes the shorter of first and last dimension as
            channels.
        critic: Kind of critic; `auto` takes a shared one if the observations allow it, otherwise
            one for each sub-step.
        distribution_mapper_config: Overrides of the distributions of action spaces and heads, see
            `CustomModelComposer`, after those that the algorithm needs. Gaussian entries without an
            `exploration` keep that of the algorithm, such as its limits of deviations.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> spec = Spec.of(GymMazeEnv("FrozenLake-v1"))
        >>> AutomaticModelComposer([32]).compose(spec).policy.networks[0][0].block_names
        ['observation_OneHotBlock', 'concat', 'hidden', 'action']
    """

    def __init__(
        self,
        hidden_units: list[int] | None = None,
        non_lin: ModuleClass | None = None,
        kinds: dict[str, Kind] | None = None,
        channels: Channels | Literal["auto"] = "auto",
        critic: CriticKind | Literal["auto"] = "auto",
        distribution_mapper_config: list[dict[str, Any]] | None = None,
    ) -> None:
        self.hidden_units = hidden_units
        self.non_lin = non_lin
        self.kinds = dict(kinds or {})
        self.channels = channels
        self.critic = critic
        self.distribution_mapper_config = list(distribution_mapper_config or [])

    def compose(
        self,
        spec: Spec,
        critic_type: type = object,
        distributions: Sequence[Mapping[str, Any]] = (),
    ) -> TorchActorCritic:
        """Make the networks; weights depend only on torch's global random generator.

        Args:
            spec: Observations and actions of the agent.
            critic_type: Class of critics that the algorithm needs; `object` for none.
            distributions: Distributions that the algorithm needs, in the format of
                `distribution_mapper_config`; entries for absent spaces are ignored.

        Raises:
            ValueError: There is no block for an observation, or no critic for the sub-steps.
        """
        arguments = self._configuration(spec, critic_type, distributions)["init_args"]
        critic = arguments["critic"]
        return TemplateModelComposer(
            ConcatModelBuilder(**arguments["model_builder"]["init_args"]),
            ProbabilisticPolicyComposer(),
            None if critic is None else import_class(critic["class_path"], CriticComposerInterface)(),
            arguments["distribution_mapper_config"],
        ).compose(spec)

    def describe(
        self,
        spec: Spec,
        critic_type: type = object,
        distributions: Sequence[Mapping[str, Any]] = (),
    ) -> dict[str, Any]:
        """Return the choice as the configuration of a `TemplateModelComposer`, of plain values.

        Classes are described by their paths. Its arguments are those of `compose`.
        """
        description: dict[str, Any] = _plain(self._configuration(spec, critic_type, distributions))
        return description

    def _configuration(
        self, spec: Spec, critic_type: type, distributions: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the choice, with classes as they were given; arguments as for `compose`."""
        config, mapping = modalities(self._choices(spec))
        is_off_policy = issubclass(critic_type, TorchStateActionCritic)
        default_units = [256, 256] if is_off_policy else [64, 64]
        units = default_units if self.hidden_units is None else list(self.hidden_units)
        non_lin = self.non_lin or ("torch.nn.ReLU" if is_off_policy else "torch.nn.Tanh")
        hidden: dict[str, Any] = {}
        if units:
            params = {"hidden_units": units, "non_lin": non_lin}
            hidden = {"block_type": "maze_pl.perception.DenseBlock", "block_params": params}
        builder = {
            "observation_modality_mapping": mapping,
            "modality_config": {**config, "hidden": hidden, "recurrence": {}},
            "shared_embedding_keys": None,
        }
        critic = self._critic(spec, critic_type)
        overrides = [dict(entry) for entry in distributions if _is_used(entry, spec)]
        return _component(
            TemplateModelComposer,
            model_builder=_component(ConcatModelBuilder, **builder),
            policy=_component(ProbabilisticPolicyComposer, networks=None),
            critic=None if critic is None else _component(critic, networks=None),
            distribution_mapper_config=[
                *overrides,
                *with_explorations(self.distribution_mapper_config, overrides, spec),
            ],
        )

    def _choices(self, spec: Spec) -> dict[str, Any]:
        """Choose the treatment of each observation but masks."""
        by_name: dict[str, list[spaces.Space[Any]]] = {}
        for step in spec.steps.values():
            observations = step.observation_space.spaces
            masks = set(step.masks.values()) - self.kinds.keys()
            inputs = [name for name in observations if name not in masks]
            for name in inputs or observations:  # masks if there is nothing else
                by_name.setdefault(name, []).append(observations[name])
        unknown = sorted(self.kinds.keys() - by_name.keys())
        if unknown:
            raise ValueError(f"kinds names {unknown}; the observations are {sorted(by_name)}")
        choices = {}
        for name, several in by_name.items():
            choices[name] = choose_for_all(name, several, self.kinds.get(name), self.channels)
        for key, step in spec.steps.items():
            if all(choices[name].kind == "omitted" for name in step.observation_space if name in choices):
                found = dict(step.observation_space.spaces)
                raise ValueError(f"sub-step {key!r} has no observation for its networks, only {found}")
        return choices

    def _critic(self, spec: Spec, critic_type: type) -> type[CriticComposerInterface] | None:
        """Choose the composer of the critic; None if the algorithm needs none.

        Raises:
            ValueError: None fits.
        """
        if critic_type is object:
            return None
        problems = []
        for kind, composer in _COMPOSERS:
            critic: Any = composer.critic  # type: ignore[attr-defined]
            if not issubclass(critic, critic_type) or self.critic not in ("auto", kind):
                continue
            try:
                critic.critic_inputs(spec)
            except ValueError as error:
                problems.append(str(error))
            else:
                return composer
        reason = problems[0] if problems else "none is known"
        raise ValueError(f"no {self.critic} critic is a {critic_type.__name__} for these sub-steps: {reason}")


def as_yaml(description: Mapping[str, Any]) -> str:
    """Return a description of networks as YAML, for a configuration file.

    Args:
        description: Result of `AutomaticModelComposer.describe`.
    """
    return str(yaml.dump(dict(description), Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=120))


class _Dumper(yaml.SafeDumper):
    """Writes equal lists out in full, not as references."""

    def ignore_aliases(self, data: Any) -> bool:
        """Always true."""
        return True


def _component(cls: type, **init_args: Any) -> dict[str, Any]:
    return {"class_path": f"maze_pl.perception.{cls.__name__}", "init_args": init_args}


def _plain(value: Any) -> Any:
    """Return a copy of a tree of dicts and lists that YAML can hold: classes become their paths."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return value.item() if isinstance(value, np.generic) else value


def _is_used(entry: Mapping[str, Any], spec: Spec) -> bool:
    """True if an entry of a distribution mapper's configuration applies to some head."""
    heads: dict[str, spaces.Space[Any]] = {}
    for step in spec.steps.values():
        heads |= step.action_space.spaces
    if "action_head" in entry:
        return entry["action_head"] in heads
    space_class = import_class(entry["action_space"], spaces.Space)
    return any(isinstance(head, space_class) for head in heads.values())
