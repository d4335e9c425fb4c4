"""Check of events: those that never fire, and those that are fired at the wrong time."""

from collections.abc import Iterator

from maze_pl.envs.checker.examination import Examination
from maze_pl.envs.checker.report import ERROR, SKIPPED, WARNING, Finding
from maze_pl.events.topics import BUILT_IN_TOPICS, declarations

_REMEDY = "call begin_env_step() at the beginning of the wrapper's step"
_LOST = "count in the environment step before it, and no reward aggregator receives them"


def check_events(examination: Examination) -> Iterator[Finding]:
    """Find events that never fire, and wrappers that fire them before their environment step."""
    env = examination.env
    early_events = env.early_events
    for key, names in early_events.lost.items():
        fired = f"{', '.join(sorted(names))} of sub-step {key!r} are fired before its environment step has begun"
        yield ERROR, f"{fired}; they {_LOST}: {_REMEDY}"
    for key, names in early_events.unbegun.items():
        if names:
            yield ERROR, f"{', '.join(sorted(names))} of sub-step {key!r} {_LOST}: {_REMEDY}"
        else:
            yield WARNING, f"sub-step {key!r} does not begin its environment step: {_REMEDY}"
    yield from _missing_kpis(examination)
    known = []
    for topic in env.pubsub.topics:
        if topic not in BUILT_IN_TOPICS:
            known += list(declarations(topic).values())
    never = []
    for event in known:
        if (event.topic, event.event) not in env.fired:
            never.append(f"{event.topic.__name__}.{event.name}")
    if never:
        yield WARNING, f"never fired: {', '.join(never)}"
    elif not (known or early_events.lost or early_events.unbegun):
        yield SKIPPED, "none is declared"


def _missing_kpis(examination: Examination) -> Iterator[Finding]:
    """Find KPIs that are declared, but that no episode has."""
    calculator = examination.env.get_kpi_calculator()
    summaries = [act.summary for act in examination.acts if act.summary is not None]
    if calculator is None or calculator.kpi_names is None or not summaries:
        return
    missing = [name for name in calculator.kpi_names if not any(name in summary.kpis for summary in summaries)]
    if missing:
        yield WARNING, f"declared in kpi_names, but without a value in all episodes: {', '.join(missing)}"
