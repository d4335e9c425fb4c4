"""Advantages and value targets of acts, for critics of each actor, each whole row or each act."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.streams import act_streams, dense_streams, next_rows
from maze_pl.functional import gae, vtrace


@dataclass
class Credit:
    """Credit of the acts of one step key, [T, B] float64, zero where there is no act.

    Attributes:
        advantage: Estimated advantage of the act over the average of the policy.
        return_: Target of the value at the act.
        weight: 1 if the act counts in the loss of the policy; 0 if it does not exist or is open.
        value_weight: 1 if the value of the act counts in the loss of the critic, else 0.
    """

    advantage: Tensor
    return_: Tensor
    weight: Tensor
    value_weight: Tensor


Values = Mapping[StepKey, Tensor]
Credits = dict[StepKey, Credit]


@dataclass(frozen=True)
class VTrace:
    """Credit assignment by `vtrace` for acts of an older policy.

    The rho of a row is the product of the rhos of its acts.

    Attributes:
        clip_rho_threshold: Maximum rho in the value targets; None for no limit.
        clip_pg_rho_threshold: Maximum rho in the advantages; None for no limit.
        log_rho: Step key -> [T, B] current minus old log-probability of each act, 0 where there is
            no act. Missing step keys count as 0 everywhere.
    """

    clip_rho_threshold: float | None
    clip_pg_rho_threshold: float | None
    log_rho: Values = field(default_factory=dict)


Method = float | VTrace
"""Method of credit assignment: lambda of generalised advantage estimates, or V-trace."""


def assign_credit(
    critic_kind: Literal["shared", "step", "delta"],
    rollout: Rollout,
    values: Values,
    final_values: Values,
    gamma: float,
    method: Method,
) -> Credits:
    """Assign credit to the acts of a rollout as the kind of critic requires.

    Args:
        critic_kind: `StateCritic.kind`: one value for each row, for each actor's act, or for each
            act of an environment as a difference from the value of the previous act.
        rollout: The collected rollout.
        values: Step key -> [T, B] value of the actor's observation.
        final_values: Step key -> [F] value of the final observations.
        gamma: Discount of one unit of environment time.
        method: Method of estimation.
    """
    if rollout.flat:  # one act per row: all kinds agree, up to rewards attributed to the actor
        if critic_kind == "step":
            rollout = _with_actor_rewards(rollout)
        return shared_credit(rollout, values, final_values, gamma, method)
    if critic_kind == "shared":
        return shared_credit(rollout, values, final_values, gamma, method)
    if critic_kind == "step":
        return step_credit(rollout, values, final_values, gamma, method)
    return delta_credit(rollout, values, final_values, gamma, method)


def _with_actor_rewards(rollout: Rollout) -> Rollout:
    """Replace a flat rollout's rewards by those attributed to the actor, if there are any."""
    (segment,) = rollout.segments.values()
    reward: Any = segment.actor_reward
    return rollout if reward is None else replace(rollout, rows=replace(rollout.rows, reward=reward))


def _estimate(
    method: Method,
    *,
    log_rho: Tensor,
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    cut: Tensor,
    discount: Tensor,
) -> tuple[Tensor, Tensor]:
    """[T, B] advantages and value targets of streams.

    Args:
        method: Method of estimation.
        log_rho: [T, B] logarithm of rho; used by V-trace only.
        reward: [T, B] reward up to the successor.
        value: [T, B] value.
        next_value: [T, B] value of the successor.
        terminated: [T, B] bool, there is no successor.
        cut: [T, B] bool, the next entry of the column is not the successor.
        discount: [T, B] discount of the successor's value.
    """
    if not isinstance(method, VTrace):
        advantage = gae(reward, value, next_value, terminated, cut, discount, method)
        return advantage, advantage + value
    last = (discount * next_value).masked_fill(terminated | ~cut, 0.0)
    discount = discount.masked_fill(terminated | cut, 0.0)
    return_, advantage = vtrace(
        log_rho=log_rho,
        discount=discount,
        reward=reward + last,
        value=value,
        bootstrap_value=torch.zeros_like(value[0]),
        clip_rho_threshold=method.clip_rho_threshold,
        clip_pg_rho_threshold=method.clip_pg_rho_threshold,
    )
    return advantage, return_


def _log_rho(method: Method, key: StepKey, like: Tensor) -> Tensor:
    """[T, B] log rho of the acts of a step key, on the device of `like`; zeros if not needed."""
    log_rho = method.log_rho.get(key) if isinstance(method, VTrace) else None
    return torch.zeros_like(like) if log_rho is None else log_rho.to(like)


def importance_weights(
    critic_kind: Literal["shared", "step", "delta"], rollout: Rollout, log_rho: Values
) -> dict[StepKey, Tensor]:
    """Compute the importance weights rho that V-trace applies to the acts, before clipping.

    With a shared critic, the weight of an act is the product over all acts of its row.

    Args:
        critic_kind: `StateCritic.kind`.
        rollout: The collected rollout.
        log_rho: Step key -> [T, B] current minus old log-probability of each act, 0 where there is
            no act.

    Returns:
        Step key -> [T, B] float64; 1 for step keys without log-probabilities.
    """
    logs: dict[StepKey, Tensor] = {}
    for key, segment in rollout.segments.items():
        zeros = torch.zeros(segment.active.shape, dtype=torch.float64, device=segment.active.device)
        logs[key] = log_rho[key].to(zeros) if key in log_rho else zeros
    if critic_kind != "shared":
        return {key: log.exp() for key, log in logs.items()}
    shape = (*rollout.rows.filled.shape, -1)
    of_rows: Any = sum(log.view(shape).sum(-1) for log in logs.values())
    return {key: of_rows.exp().repeat_interleave(rollout.n_slots(key), 1) for key in logs}


def importance_of_acts(
    critic_kind: Literal["shared", "step", "delta"],
    rollout: Rollout,
    method: Method,
    credit: Credits,
) -> dict[StepKey, tuple[Tensor, Tensor]]:
    """Compute the importance weights of V-trace for acts that count; empty for other methods.

    Args:
        critic_kind: `StateCritic.kind`.
        rollout: The collected rollout.
        method: Method of estimation, by which credit was assigned.
        credit: Credit of the acts.

    Returns:
        Step key -> [T, B] weights, 0 for acts that do not count in the loss of the policy, and the
        number of those that do.
    """
    if not isinstance(method, VTrace):
        return {}
    weights = {}
    for key, rho in importance_weights(critic_kind, rollout, method.log_rho).items():
        counts = credit[key].weight > 0
        weights[key] = torch.where(counts, rho.to(counts.device), 0.0), counts.sum()
    return weights


def step_credit(rollout: Rollout, values: Values, final_values: Values, gamma: float, method: Method) -> Credits:
    """Assign credit if each actor has its own stream and critic; lambda applies once per act.

    Args:
        rollout: The collected rollout.
        values: Step key -> [T, B] value of the actor's observation.
        final_values: Step key -> [F] value of the final observations.
        gamma: Discount of one unit of environment time.
        method: Method of estimation; with V-trace each act has its own rho.
    """
    credit = {}
    streams_of = dense_streams if rollout.dense else act_streams
    for key, streams in streams_of(rollout, gamma).items():
        device = streams.row.device  # the host, unless the rollout is dense
        value, final_value = values[key].double().to(device), final_values[key].double().to(device)
        exists = streams.row >= 0
        at = streams.row.clamp(min=0)
        own = value.gather(0, at)
        next_value = next_rows(own)
        if len(final_value):  # the successor is the column's next entry or a final observation
            next_value = torch.where(streams.final >= 0, final_value[streams.final.clamp(min=0)], next_value)
        advantage, return_ = _estimate(
            method,
            log_rho=_log_rho(method, key, value).gather(0, at),
            reward=streams.reward,
            value=own,
            next_value=next_value,
            terminated=streams.terminated,
            cut=streams.cut & ~streams.terminated,
            discount=streams.discount,
        )
        counts = (exists & ~streams.open).double()
        dense = torch.where(exists, torch.stack([advantage * counts, return_ * counts, counts]), 0.0)
        target = value.new_zeros((3, *value.shape))
        advantage, return_, weight = target.scatter_add(1, at.expand_as(dense), dense).to(values[key].device)
        credit[key] = Credit(advantage, return_, weight, weight)
    return credit


def shared_credit(rollout: Rollout, values: Values, final_values: Values, gamma: float, method: Method) -> Credits:
    """Assign credit if all acts of a row share one value, taken at the row's first act.

    Args:
        rollout: The collected rollout.
        values: Step key -> [T, B] value of the actor's observation; used only at the first act of
            each row.
        final_values: Step key -> [F] value of the final observations.
        gamma: Discount of one unit of environment time.
        method: Method of estimation; lambda applies once per row, and rho of a row is the product
            over its acts.
    """
    rows = rollout.rows
    slots = {key: rollout.n_slots(key) for key in rollout.segments}
    if rollout.flat:
        ((key, value),) = values.items()
        value = value.double()
        log_rho = _log_rho(method, key, value)
        cut = rows.truncated.clone()
        cut[-1] = True
    else:
        value, log_rho = torch.zeros((2, *rows.filled.shape), dtype=torch.float64, device=rows.filled.device)
        for index, (key, n_slots) in enumerate(slots.items()):
            if rollout.dense:
                value = values[key].double() if index == 0 else value
            else:
                t, n = torch.nonzero(rows.first_key == index, as_tuple=True)
                value[t, n] = values[key][t, n * n_slots + rows.first_slot[t, n]].double()
            log_rho += _log_rho(method, key, values[key].double()).view(*log_rho.shape, n_slots).sum(-1)
        is_last = rows.filled & ~next_rows(rows.filled)
        cut = rows.truncated | is_last | ~rows.filled
    next_value = next_rows(value)
    for key, final in rollout.finals.items():
        next_value[final.row, final.env] = final_values[key].double()
    advantage, return_ = _estimate(
        method,
        log_rho=log_rho,
        reward=rows.reward,
        value=value,
        next_value=next_value,
        terminated=rows.terminated,
        cut=cut,
        discount=gamma ** rows.env_steps.double(),
    )
    if rollout.flat:
        weight = torch.ones_like(value)
        return {key: Credit(advantage, return_, weight, weight)}
    credit = {}
    for key, n_slots in slots.items():
        segment = rollout.segments[key]
        active = segment.active.double()
        of_act = advantage.repeat_interleave(n_slots, 1) * active
        of_row = return_.repeat_interleave(n_slots, 1) * active
        credit[key] = Credit(of_act, of_row, active, active * (segment.position == 0))
    return credit


def delta_credit(rollout: Rollout, values: Values, final_values: Values, gamma: float, method: Method) -> Credits:
    """Assign credit if all acts of an environment form one stream, with a value for each act.

    The value before the next act shows the merit of an act already within the row, not only the
    return of the whole row. There is no discount between the sub-steps of a row. Rewards are those
    returned by `env.step`; rewards attributed to actors are ignored, because values are of the
    whole environment.

    Args:
        rollout: The collected rollout.
        values: Step key -> [T, N] value of the actor's observation.
        final_values: Step key -> [F] value of the final observations.
        gamma: Discount of one unit of environment time.
        method: Method of estimation; lambda applies once per act, and each act has its own rho.

    Raises:
        ValueError: A row does not consist of one act of each sub-step in order. Only the end of an
            episode may leave out the last ones.
    """
    rows, segments = rollout.rows, list(rollout.segments.values())
    active = torch.stack([segment.active for segment in segments], 1)  # [T, K, N]
    shape = active.shape
    is_last = active & ~torch.cat([active[:, 1:], torch.zeros_like(active[:, :1])], 1)
    ends = rows.terminated | rows.truncated
    position = torch.stack([segment.position for segment in segments], 1)
    expected = torch.arange(shape[1], device=active.device)[:, None].expand(shape)
    whole = (active[:, -1] | ends | ~rows.filled) & (is_last.sum(1) == rows.filled)
    if not rollout.dense and not bool(whole.all() and (position == expected)[active].all()):
        raise ValueError(
            f"a delta critic needs the sub-steps {list(rollout.segments)} to act once each, in this order, in every "
            "environment step, which they do not: use a step or a shared critic"
        )
    reward = torch.stack([segment.reward for segment in segments], 1).flatten(0, 1)  # [T, K, N] -> [T * K, N]
    value = torch.stack([values[key] for key in rollout.segments], 1).double().flatten(0, 1)
    log_rhos = [_log_rho(method, key, values[key].double()) for key in rollout.segments]
    log_rho = torch.stack(log_rhos, 1).flatten(0, 1)
    next_value = next_rows(value).view(shape)
    for key, final in rollout.finals.items():
        last = is_last[final.row, :, final.env].int().argmax(1)
        next_value[final.row, last, final.env] = final_values[key].double()
    stops = torch.ones_like(ends)
    stops[:-1] = rows.truncated[:-1] | ~rows.filled[1:]
    cut = (is_last & stops[:, None]) | ~active
    terminated = is_last & rows.terminated[:, None]
    discount = torch.where(is_last, gamma ** rows.env_steps.double()[:, None], 1.0)
    of_acts, targets = _estimate(
        method,
        log_rho=log_rho,
        reward=reward,
        value=value,
        next_value=next_value.flatten(0, 1),
        terminated=terminated.flatten(0, 1),
        cut=cut.flatten(0, 1),
        discount=discount.flatten(0, 1),
    )
    weight = active.double()
    advantage = of_acts.view(shape) * weight
    return_ = targets.view(shape) * weight
    credit = {}
    for place, key in enumerate(rollout.segments):
        counts = weight[:, place]
        credit[key] = Credit(advantage[:, place], return_[:, place], counts, counts)
    return credit
