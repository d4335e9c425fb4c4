"""Advantages and value targets of the acts of a rollout, for critics of each actor, of the whole row, of each act."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from maze_pl.core.actor_id import StepKey
from maze_pl.core.rollout import Rollout
from maze_pl.core.streams import act_streams
from maze_pl.functional.returns import gae


@dataclass
class Credit:
    """For each act of one step key, [T, B] float64, zero where there is no act.

    Attributes:
        advantage: Estimate of how much better the act was than the policy's average.
        return_: Target of the value at the act.
        weight: Whether the act counts in the loss of the policy: 0 for acts that do not exist or are open.
        value_weight: Whether its value counts in the loss of the critic.
    """

    advantage: Tensor
    return_: Tensor
    weight: Tensor
    value_weight: Tensor


Values = Mapping[StepKey, Tensor]
Credits = dict[StepKey, Credit]


def step_credit(rollout: Rollout, values: Values, final_values: Values, gamma: float, gae_lambda: float) -> Credits:
    """Credit where each actor has its own stream and critic; lambda counts once per act.

    Args:
        rollout: What was collected.
        values: Step key -> [T, B] value of what the actor saw.
        final_values: Step key -> [F] value of the final observations.
        gamma: Discount of one unit of environment time.
        gae_lambda: Trade-off between bias (0) and variance (1).
    """
    credit = {}
    for key, streams in act_streams(rollout, gamma).items():
        value, final_value = values[key].double().cpu(), final_values[key].double().cpu()
        exists = streams.row >= 0
        at = streams.row.clamp(min=0)
        own = value.gather(0, at)
        next_value = _next(own)
        if len(final_value):  # what follows an act is the next entry of the column or a final observation
            next_value = torch.where(streams.final >= 0, final_value[streams.final.clamp(min=0)], next_value)
        cut, ends = streams.cut & ~streams.terminated, streams.terminated
        advantage = gae(streams.reward, own, next_value, ends, cut, streams.discount, gae_lambda)
        counts = (exists & ~streams.open).double()
        dense = torch.where(exists, torch.stack([advantage * counts, (advantage + own) * counts, counts]), 0.0)
        target = torch.zeros((3, *value.shape), dtype=value.dtype)
        advantage, return_, weight = target.scatter_add(1, at.expand_as(dense), dense).to(values[key].device)
        credit[key] = Credit(advantage, return_, weight, weight)
    return credit


def _next(x: Tensor) -> Tensor:
    """[T, ...] what stands at the next place in time, 0 at the last one."""
    return torch.cat([x[1:], torch.zeros_like(x[:1])])


def shared_credit(rollout: Rollout, values: Values, final_values: Values, gamma: float, gae_lambda: float) -> Credits:
    """Credit where one value per row, taken at the row's first act, serves all acts of the row.

    Args:
        rollout: What was collected.
        values: Step key -> [T, B] value of what the actor saw; only those at the first act of a row are used.
        final_values: Step key -> [F] value of the final observations.
        gamma: Discount of one unit of environment time.
        gae_lambda: Trade-off between bias (0) and variance (1); lambda counts once per row.
    """
    rows = rollout.rows
    slots = {key: rollout.n_slots(key) for key in rollout.segments}
    if rollout.flat:
        value = next(iter(values.values())).double()
        cut = rows.truncated.clone()
        cut[-1] = True
    else:
        value = torch.zeros(rows.filled.shape, dtype=torch.float64, device=rows.filled.device)
        for index, (key, n_slots) in enumerate(slots.items()):
            t, n = torch.nonzero(rows.first_key == index, as_tuple=True)
            value[t, n] = values[key][t, n * n_slots + rows.first_slot[t, n]].double()
        is_last = rows.filled & ~_next(rows.filled)
        cut = rows.truncated | is_last | ~rows.filled
    next_value = _next(value)
    for key, final in rollout.finals.items():
        next_value[final.row, final.env] = final_values[key].double()
    discount = gamma ** rows.env_steps.double()
    advantage = gae(rows.reward, value, next_value, rows.terminated, cut, discount, gae_lambda)
    if rollout.flat:
        weight = torch.ones_like(value)
        return {key: Credit(advantage, advantage + value, weight, weight) for key in slots}
    credit = {}
    for key, n_slots in slots.items():
        segment = rollout.segments[key]
        active = segment.active.double()
        of_act = advantage.repeat_interleave(n_slots, 1) * active
        of_row = (advantage + value).repeat_interleave(n_slots, 1) * active
        credit[key] = Credit(of_act, of_row, active, active * (segment.position == 0))
    return credit


def delta_credit(rollout: Rollout, values: Values, final_values: Values, gamma: float, gae_lambda: float) -> Credits:
    """Credit where all acts of an environment are one stream, in which each act has a value and the next one follows.

    What an act is worth shows in the value before the next act, already within the row, instead of only in what the
    whole row returned. The sub-steps of a row are not discounted against each other. Rewards are those of
    `env.step`; what an environment attributes to actors is not looked at, because the values are of the whole.

    Args:
        rollout: What was collected.
        values: Step key -> [T, N] value of what the actor saw.
        final_values: Step key -> [F] value of the final observations.
        gamma: Discount of one unit of environment time.
        gae_lambda: Trade-off between bias (0) and variance (1); lambda counts once per act.

    Raises:
        ValueError: The acts of a row are not one of each sub-step in their order; an episode may end before the last.
    """
    rows, segments = rollout.rows, list(rollout.segments.values())
    active = torch.stack([segment.active for segment in segments], 1)  # [T, K, N]
    shape = active.shape
    is_last = active & ~torch.cat([active[:, 1:], torch.zeros_like(active[:, :1])], 1)
    ends = rows.terminated | rows.truncated
    position = torch.stack([segment.position for segment in segments], 1)
    expected = torch.arange(shape[1], device=active.device)[:, None].expand(shape)
    whole = (active[:, -1] | ends | ~rows.filled) & (is_last.sum(1) == rows.filled)
    if not bool(whole.all() and (position == expected)[active].all()):
        raise ValueError(
            f"a delta critic needs the sub-steps {list(rollout.segments)} to act once each, in this order, in every "
            "environment step, which they do not: use a step or a shared critic"
        )
    reward = torch.stack([segment.reward for segment in segments], 1).flatten(0, 1)  # [T, K, N] -> [T * K, N]
    value = torch.stack([values[key] for key in rollout.segments], 1).double().flatten(0, 1)
    next_value = _next(value).view(shape)
    for key, final in rollout.finals.items():
        last = is_last[final.row, :, final.env].int().argmax(1)
        next_value[final.row, last, final.env] = final_values[key].double()
    stops = torch.ones_like(ends)
    stops[:-1] = rows.truncated[:-1] | ~rows.filled[1:]
    cut = (is_last & stops[:, None]) | ~active
    terminated = is_last & rows.terminated[:, None]
    discount = torch.where(is_last, gamma ** rows.env_steps.double()[:, None], 1.0)
    next_value, ends, cut, discount = (part.flatten(0, 1) for part in (next_value, terminated, cut, discount))
    advantage = gae(reward, value, next_value, ends, cut, discount, gae_lambda).view(shape)
    weight = active.double()
    return_ = (advantage + value.view(shape)) * weight
    return {
        key: Credit(advantage[:, k] * weight[:, k], return_[:, k], weight[:, k], weight[:, k])
        for k, key in enumerate(rollout.segments)
    }
