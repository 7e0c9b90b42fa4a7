"""The sections of the report: verdict, the four questions, faults, recoveries, operations, and how to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from checkers.columns.projection import MISMATCH
from harness.errors import ELSEWHERE
from harness.verdict.advice import advice
from harness.verdict.facts import EACH_NODE
from harness.verdict.faults import Fault, skips
from results.markup import Markup, join, listing, table, tag, void
from results.node_logs import time_of
from results.plots import STYLE, TYPE_WORDS, data_uri, plain, svg_of
from results.saved import OUTCOMES, MissedOperations, Points, Saved, decoded
from results.words import QUESTIONS, VERDICT_WORDS, WHY_WORDS, duration, seconds, shown

MAX_FAULTS = 400
LONGEST_EVIDENCE = 60
"""In letters, of evidence that is shown as it stands."""


def banner(saved: Saved) -> Markup:
    """The one word, why it is that, what it means, and the reasons."""
    word = str(saved.verdict.get("overall", "unfinished"))
    word = word if word in VERDICT_WORDS else "unfinished"
    why = str(saved.verdict.get("why"))
    reasons = [*_list(saved.verdict.get("reasons")), *saved.gaps]
    remedies = advice(word, [str(reason) for reason in _list(saved.verdict.get("reasons"))])
    return tag(
        "header",
        tag("p", subject(saved), class_="subject"),
        tag("p", origin(saved), class_="subject"),
        tag("h1", word.upper()),
        tag("p", f"{why}: {WHY_WORDS[why]}", class_="why") if why in WHY_WORDS else None,
        tag("p", VERDICT_WORDS[word], class_="meaning"),
        listing(reasons) if reasons else None,
        join((tag("p", "What to change:"), listing(remedies))) if remedies else None,
        class_=f"banner {word}",
    )


def origin(saved: Saved) -> str:
    """Of which commit the run is, and when it began."""
    provenance = _object(saved.run.get("provenance"))
    commit, began = provenance.get("git_commit"), time_of(saved.run.get("started"))
    of = f"commit {str(commit)[:12]}" + (" with changes" if provenance.get("git_dirty") else "") if commit else ""
    if began is None:
        return of or "of an unknown commit and time"
    utc = f"{began.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if began.tzinfo else f"{began:%Y-%m-%d %H:%M:%S}, local time"
    return f"{of or 'of an unknown commit'} · started {utc}"


def proves_nothing(saved: Saved) -> bool:
    """Whether so little happened that no answer is worth praise."""
    return saved.verdict.get("why") == "vacuous" or _object(saved.verdict.get("adequacy")).get("answer") is False


def subject(saved: Saved) -> str:
    """What was run, in a line."""
    run, options = saved.run, saved.options
    parts = [str(run.get("workload") or saved.rundir.path.parent.name)]
    parts.append(
        f"on {run.get('database', 'an unknown database')} in {run.get('environment', 'an unknown environment')}"
    )
    faults = ", ".join(map(str, _list(run.get("requested_faults"))))
    parts.append(f"with {faults}" if faults else "without faults")
    flaws = ", ".join(map(str, _list(options.get("flaw"))))
    if flaws:
        parts.append(f"with the known bug {flaws}")
    if options.get("seed") is not None:
        parts.append(f"seed {options['seed']}")
    return " · ".join(parts)


def questions(saved: Saved) -> Markup:
    """A card for each of the four questions."""
    cards = []
    for name, question, words in QUESTIONS:
        answer = saved.verdict.get(name)
        answer = answer if isinstance(answer, dict) else {}
        value = str(answer.get("answer", "unknown"))
        style = {"True": "valid", "False": "invalid" if name in ("safety", "liveness") else "unknown"}.get(
            value, "unknown"
        )
        style = "void" if style == "valid" and proves_nothing(saved) else style
        reasons = _list(answer.get("reasons"))
        details = [_detail(name, answer.get("details")), _floors(saved) if name == "adequacy" else None]
        cards.append(
            tag(
                "div",
                tag("h3", name.capitalize(), tag("span", words.get(value, "can't tell"), class_=f"badge {style}")),
                tag("p", question, class_="quiet"),
                listing(reasons) if reasons else None,
                *details,
                class_="card",
            )
        )
    return tag("div", *cards, class_="cards")


def _served_again(seconds: float, budget_s: float | None) -> str:
    again = f"Serving again after {seconds:.2f} s, of {budget_s} s allowed"
    if budget_s is None or seconds <= budget_s:
        return f"{again}."
    return f"{again} to a cluster that comes no nearer to that."


def _detail(name: str, details: object) -> Markup | None:
    if not isinstance(details, dict):
        return None
    if name == "liveness" and isinstance(details.get("seconds"), int | float):
        return tag("p", _served_again(details["seconds"], details.get("budget_s")))
    if name == "adequacy" and details.get("rate_hz") is not None:
        asked = details.get("rate_asked_hz")
        return tag(
            "p", f"{details['rate_hz']:.1f} operations a second succeeded" + (f", {asked:g} asked." if asked else ".")
        )
    return None


def _floors(saved: Saved) -> Markup | None:
    """The floors that are not the ones of every run, so that who reads the word knows what it is worth."""
    told = _object(saved.options.get("floors"))
    return tag("p", f"Floors set by hand: {', '.join(f'{name}={told[name]}' for name in told)}.") if told else None


def fault_table(saved: Saved) -> Markup:
    """Requested against observed, by kind and by instance."""
    requested = [str(kind) for kind in _list(saved.run.get("requested_faults"))]
    kinds = list(dict.fromkeys([*requested, *(fault.kind for fault in saved.faults)]))
    if not kinds:
        return tag("p", "No faults were requested.")
    summary = table(
        ("kind", "asked for", "requested", "observed in effect", "healed", "observed recovered", "skipped"),
        [(kind, "yes" if kind in requested else "no", *_counts(kind, saved.faults)) for kind in kinds],
    )
    header = ("", "kind", "variant", "targets", "requested", "observed", "healed", "recovered", "in effect", "evidence")
    rows = [_fault_row(fault) for fault in saved.faults[:MAX_FAULTS]]
    left = len(saved.faults) - len(rows)
    rest = tag("p", f"… and {left:,} further instances in faults.json.", class_="quiet") if left > 0 else None
    return join((summary, table(header, rows, "small") if rows else None, rest, _script_steps(saved)))


def _script_steps(saved: Saved) -> Markup | None:
    """What was done one after another, folded away; None unless some fault was a script of several actions."""
    steps = saved.points.steps if saved.points is not None else []
    if not any(str(row.get("f")).startswith("step-") for row in steps):
        return None
    rows = []
    for row in steps:
        value = decoded(row.get("value"))
        if value.get("action"):
            done_ns = row.get("complete_time") or row.get("invoke_time")
            rows.append((seconds(done_ns), value.get("fault"), value.get("instance"), value["action"]))
    summary = tag("summary", f"{len(rows):,} actions, in the order in which they were carried out")
    return tag("details", summary, table(("at", "kind", "instance", "action"), rows[:MAX_FAULTS], "small"))


def _counts(kind: str, faults: tuple[Fault, ...]) -> tuple[int, int, int, int, int]:
    of_kind = [fault for fault in faults if fault.kind == kind]
    return (
        len(of_kind),
        sum(fault.observed_ns is not None for fault in of_kind),
        sum(fault.healed_ns is not None for fault in of_kind),
        sum(fault.recovered_ns is not None for fault in of_kind),
        len(skips(of_kind)),
    )


def _fault_row(fault: Fault) -> tuple[object, ...]:
    missed = fault.observed_ns is None
    unseen = tag("b", "skipped" if fault.skipped else "not observed", class_="bad")
    lasted = "–"
    if fault.observed_ns is not None and fault.healed_ns is not None:
        lasting_ns = sum(last - first for first, last in fault.seen(fault.healed_ns))
        lasted = duration(lasting_ns) if lasting_ns else "a moment"
    if fault.asked_s:
        lasted += f" of {duration(fault.asked_s * 1e9)}"
    return (
        fault.instance,
        fault.kind,
        fault.variant,
        " ".join(fault.targets) or "–",
        seconds(fault.requested_ns),
        unseen if missed else seconds(fault.observed_ns),
        seconds(fault.healed_ns),
        seconds(fault.recovered_ns),
        lasted,
        "its core was never reached" if missed and fault.cores == 0 else evidence(fault.evidence),
    )


def evidence(found: object) -> str:
    """What the probes saw, in a line."""
    if not isinstance(found, dict):
        return ""
    leader = found.get("leader")
    words = []
    if isinstance(leader, dict):
        lease = " with a lease" if leader.get("lease_valid") else ""
        words.append(f"{leader.get('node')} led {leader.get('group')} in term {leader.get('term')}{lease}")
    if "probed" in found:
        words.append(f"{found.get('cut')} of {found['probed']} probed links silent, as asked")
    for name in ("leaking", "silent"):
        if found.get(name):
            words[-1:] = [f"{name}: {' '.join(map(str, _list(found[name])))}"]
    states = found.get("states")
    if isinstance(states, dict):
        words.append(", ".join(f"{node} {state}" for node, state in states.items()))
    offsets = [each for each in _object(found.get("offsets_s")).values() if isinstance(each, int | float)]
    if offsets:
        words.append(f"clocks {min(offsets):+g} to {max(offsets):+g} s ahead, {found.get('bound_s')} s allowed")
    if found.get("reason"):
        words.append(str(found["reason"]))
    return "; ".join(words or _unnamed(found))


def _unnamed(found: dict[str, Any]) -> list[str]:
    """Evidence that has no words of its own: what is short of it, under its name."""
    told = {name: _plain(value) for name, value in found.items() if value not in (None, "", [], {})}
    return [f"{name.replace('_', ' ')} {value}" for name, value in told.items() if len(value) <= LONGEST_EVIDENCE]


def operations(saved: Saved) -> Markup:
    """How many operations of each kind ended how."""
    points = saved.points
    if points is None or not points.series:
        return tag("p", "No client operation was recorded.")
    rows = []
    directed = any(error_class == ELSEWHERE for error_class, _ in points.missed)
    for f in points.fs:
        ok, unknown, elsewhere, failed = (points.count(f, type) for type in OUTCOMES)
        unmet, total = points.count_class(f, MISMATCH), ok + unknown + elsewhere + failed
        answered = f"{(ok + unmet + elsewhere) / max(total, 1):.1%}"
        others = (elsewhere,) if directed else ()
        rows.append((f, total, ok, unmet, *others, unknown, failed - unmet, answered))
    elsewhere_word = (TYPE_WORDS[ELSEWHERE],) if directed else ()
    header = ("operation", "in all", TYPE_WORDS["ok"], "found another value", *elsewhere_word, TYPE_WORDS["info"])
    note = tag("p", _ASKED_EACH, class_="quiet") if directed and EACH_NODE in points.begins_s else None
    return join((table((*header, TYPE_WORDS["fail"], "answered"), rows), note, _errors(points)))


_ASKED_EACH = (
    "At the end every node is asked for every key. One that does not serve it says that others do, which is an answer."
)


def _errors(points: Points) -> Markup | None:
    """Why operations did not succeed, the most frequent first; a compare-and-set that found another value is none, nor
    is a node that says who else serves."""
    errors = [(key, missed) for key, missed in points.missed.items() if key[0] not in (MISMATCH, ELSEWHERE)]
    if not errors:
        return None
    rows = [
        (error_class, TYPE_WORDS[type], missed.by_f.total(), _by_f(missed), shown(missed.message))
        for (error_class, type), missed in sorted(errors, key=lambda item: -item[1].by_f.total())
    ]
    header = ("error", "outcome", "operations", "of which", "the first was told")
    return join((tag("h3", "Errors"), table(header, rows, "small")))


def _by_f(missed: MissedOperations) -> str:
    return ", ".join(f"{count:,} {f}" for f, count in missed.by_f.most_common())


def command(saved: Saved) -> str:
    """The shell command that makes this run again."""
    given = saved.options.get("command")
    if isinstance(given, str) and given:
        return given
    words = ["assay", "run", str(saved.run.get("workload") or saved.options.get("workload") or "WORKLOAD")]
    for name, value in saved.options.items():
        if name in ("workload", "workload_options", "command") or value in (None, "", [], {}):
            continue
        shown = (
            ",".join(map(str, value))
            if isinstance(value, list)
            else f"{value:g}"
            if isinstance(value, float)
            else value
        )
        words += [f"--{name.replace('_', '-')}", str(shown)]
    for name, value in _object(saved.options.get("workload_options")).items():
        words += ["-o", f"{name}={value}"]
    return shlex.join(words)


def _world(saved: Saved) -> Markup | None:
    """What the simulated world was drawn or told to be, if the run was in one."""
    rows = [(name, _plain(value)) for name, value in _object(saved.run.get("world")).items()]
    return tag("div", tag("h3", "World"), table(("key", "value"), rows, "small")) if rows else None


def again(saved: Saved) -> Markup:
    """The command, and everything that decided the run."""
    options = {**saved.options, **_object(saved.options.get("workload_options"))}
    rows = [(name, _plain(value)) for name, value in options.items() if name not in ("workload_options", "command")]
    provenance = _object(saved.run.get("provenance"))
    versions = {**_object(provenance.pop("versions", None)), **provenance}
    return join(
        (
            tag("pre", command(saved)),
            tag(
                "div",
                tag("div", tag("h3", "Options"), table(("option", "value"), rows, "small")),
                _world(saved),
                tag("div", tag("h3", "Versions"), table(("what", "version"), _pairs(versions), "small")),
                tag("div", tag("h3", "Course"), _course(saved)),
                class_="columns",
            ),
        )
    )


def _course(saved: Saved) -> Markup:
    stages = [stage for stage in _list(saved.outcome.get("stages")) if isinstance(stage, list) and len(stage) == 3]
    failures = [item for item in _list(saved.outcome.get("failures")) if isinstance(item, dict)]
    rows = [(name, seconds(begin), duration(end - begin)) for name, begin, end in stages]
    notes = [f"{item.get('stage')}: {item.get('error')} ({item.get('times', 1)} times)" for item in failures]
    return join(
        (
            tag("p", f"Started {saved.run['started']}.") if saved.run.get("started") else None,
            table(("stage", "began", "took"), rows, "small") if rows else None,
            tag("h3", "Failures of the harness") if notes else None,
            listing(notes) if notes else None,
        )
    )


def _pairs(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, _plain(value)) for name, value in values.items()]


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None or value == "" or value == {} else str(value)


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _object(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


OTHER_COLOR = "#5b6670"
MARKS = {"first_s": ("o", "first success on every group"), "rate_s": ("D", "95 % of the rate before")}


def recoveries(saved: Saved, colors: Mapping[str, str]) -> Markup | None:
    """After each kind of fault; None where no fault's recovery is known."""
    liveness = saved.verdict.get("liveness")
    details = liveness.get("details") if isinstance(liveness, dict) else None
    told = details.get("faults") if isinstance(details, dict) else None
    found = [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
    if not any(_seconds(each, "first_s") is not None for each in found):
        return None
    kinds = list(dict.fromkeys(str(each.get("kind")) for each in found))
    rows = [(kind, *_row([each for each in found if str(each.get("kind")) == kind])) for kind in kinds]
    header = ("kind", "faults", "known", "first success on every group: median, longest", "95 % of the rate: the same")
    picture = void(
        "img", src=data_uri(drawing(found, kinds, colors)), alt="seconds to recover after each kind of fault"
    )
    note = "Counted from each heal; not known where the next fault, or the end of the load, came first."
    return join((picture, table(header, rows), tag("p", note, class_="quiet")))


def _row(found: Sequence[Mapping[str, Any]]) -> tuple[object, ...]:
    firsts, rates = (sorted(_known(found, key)) for key in MARKS)
    return len(found), len(firsts), _words(firsts), _words(rates)


def _words(seconds: Sequence[float]) -> str:
    return f"{seconds[len(seconds) // 2]:.2f} s, {seconds[-1]:.2f} s" if seconds else "–"


def _known(found: Sequence[Mapping[str, Any]], key: str) -> list[float]:
    return [value for each in found if (value := _seconds(each, key)) is not None]


def _seconds(each: Mapping[str, Any], key: str) -> float | None:
    value = each.get(key)
    return float(value) if isinstance(value, int | float) else None


def drawing(found: Sequence[Mapping[str, Any]], kinds: Sequence[str], colors: Mapping[str, str]) -> bytes:
    """A lane a kind, a mark a fault; an SVG."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10.5, 0.8 + 0.34 * len(kinds)), layout="constrained")
        axis = figure.add_subplot()
        for lane, kind in enumerate(kinds):
            of_kind = [each for each in found if str(each.get("kind")) == kind]
            for shift, (key, (mark, _)) in zip((-0.15, 0.15), MARKS.items(), strict=True):
                seconds = _known(of_kind, key)
                color = colors.get(kind, OTHER_COLOR)
                axis.plot(seconds, [lane + shift] * len(seconds), mark, color=color, markersize=4, alpha=0.7)
        axis.set_yticks(range(len(kinds)), [plain(kind) for kind in kinds])
        axis.set_ylim(len(kinds) - 0.5, -0.5)
        axis.set_xlim(left=0)
        axis.set_xlabel(f"seconds from the heal (circle: {MARKS['first_s'][1]}; diamond: {MARKS['rate_s'][1]})")
        return svg_of(figure)
