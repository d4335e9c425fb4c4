"""Checks whether a template fits the observations and actions of an environment."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from gymnasium import spaces

from maze_pl.agents.critic_inputs import AGENT_OBSERVATION
from maze_pl.agents.torch_state_critic import STEP_KEY_OBSERVATION
from maze_pl.core.actor_id import StepKey
from maze_pl.core.spec import Spec

_MAPPING = "observation_modality_mapping"


def _known_inputs(spec: Spec) -> set[str]:
    """Return the names of everything that networks may read in any sub-step."""
    known = {STEP_KEY_OBSERVATION, AGENT_OBSERVATION}
    for step in spec.steps.values():
        known.update(step.observation_shapes)
        for head, space in step.action_space.items():
            if isinstance(space, spaces.Box):  # an input of state-action critics
                known.add(head)
    return known


def _observations(spec: Spec) -> list[str]:
    """Return the names of all observations, for messages: other inputs need no entry."""
    return sorted({name for step in spec.steps.values() for name in step.observation_shapes})


def require_known_observations(spec: Spec, mapped: Iterable[str]) -> None:
    """Refuse a template that names observations that no sub-step has.

    Args:
        spec: Observations and actions of the environment.
        mapped: Names in `observation_modality_mapping`.

    Raises:
        ValueError: An observation is unknown.
    """
    known = _known_inputs(spec)
    unknown = sorted(set(mapped) - known)
    if unknown:
        raise ValueError(f"{_MAPPING} names {unknown}; the observations are {_observations(spec)}")


def require_known_inputs(spec: Spec, further: Iterable[str]) -> None:
    """Refuse options of blocks that name inputs that no sub-step has.

    Args:
        spec: Observations and actions of the environment.
        further: Further inputs of blocks.

    Raises:
        ValueError: An input is unknown.
    """
    known = _known_inputs(spec)
    unknown = [name for name in further if name not in known]
    if unknown:
        fault = f"block_params name {unknown} as inputs"
        raise ValueError(f"{fault}; the observations are {_observations(spec)}")


def require_further_inputs(spec: Spec, further_inputs: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse further inputs that the sub-step of an observation lacks.

    Args:
        spec: Observations and actions of the environment.
        further_inputs: Observation -> role -> further input.

    Raises:
        ValueError: A further input is not an observation of the sub-step.
    """
    for key, step in spec.steps.items():
        observations = list(step.observation_shapes)
        for name, roles in further_inputs.items():
            lacking = [other for other in roles.values() if other not in observations]
            if name in observations and lacking:
                found = f"{lacking} are not observations of sub-step {key!r}, which are {observations}"
                raise ValueError(f"further_inputs of {name!r}: {found}")


def require_all_observations(spec: Spec, mapped: Collection[str], optional: Iterable[str]) -> None:
    """Refuse a template that leaves out an observation, or all observations of a sub-step.

    Observations that mask actions may be left out: policies apply them to the networks' outputs.

    Args:
        spec: Observations and actions of the environment.
        mapped: Observations that have a modality.
        optional: Further observations that may be without a modality.

    Raises:
        ValueError: An observation has no modality, or a sub-step no observation.
    """
    for key, step in spec.steps.items():
        allowed = {*mapped, *optional, *step.masks.values()}
        missing = [name for name in step.observation_shapes if name not in allowed]
        if missing:
            remedy = "give each a modality, or null to leave it out"
            raise ValueError(f"observations {missing} of sub-step {key!r}: {_MAPPING} lacks them; {remedy}")
        if not any(name in mapped for name in step.observation_shapes):
            raise ValueError(f"{_MAPPING} leaves sub-step {key!r} without any observation")


def require_known_heads(spec: Spec, heads: Iterable[str]) -> None:
    """Refuse blocks of action heads that no sub-step has.

    Args:
        spec: Observations and actions of the environment.
        heads: The action heads that have blocks.

    Raises:
        ValueError: A head is unknown.
    """
    known = {head for step in spec.steps.values() for head in step.action_space}
    unknown = [head for head in heads if head not in known]
    if unknown:
        raise ValueError(f"modality_config: heads {unknown}; the action heads are {sorted(known)}")


def require_used_modalities(configured: Iterable[str], usable: Collection[str]) -> None:
    """Refuse entries of a template that nothing uses.

    Args:
        configured: Entries with blocks; a name may occur several times.
        usable: Modalities of observations, and stages of the builder.

    Raises:
        ValueError: An entry is unused.
    """
    unused = [name for name in dict.fromkeys(configured) if name not in usable]
    if unused:
        remedy = f"entries that can be used are {sorted(usable)}"
        raise ValueError(f"modality_config has {unused}, which nothing uses; {remedy}")


def require_known_sub_steps(spec: Spec, shared_keys: Mapping[StepKey, Sequence[str]]) -> None:
    """Refuse shared tensors of sub-steps that do not exist.

    Args:
        spec: Observations and actions of the environment.
        shared_keys: Sub-step -> tensors that policy and critic share.

    Raises:
        ValueError: A sub-step is unknown.
    """
    steps = {str(key) for key in spec.step_keys}
    unknown = [key for key in shared_keys if str(key) not in steps]
    if unknown:
        known = f"the sub-steps are {list(spec.step_keys)}"
        raise ValueError(f"shared_embedding_keys names the sub-steps {unknown}; {known}")
