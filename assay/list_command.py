"""`assay list`: the names that the command line takes, each with one line of explanation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.console import Console
from rich.table import Table

from harness.errors import UserError

Rows = list[tuple[str, ...]]


def workloads() -> tuple[tuple[str, ...], Rows]:
    from workloads.registry import WORKLOADS

    rows: Rows = [(w.name, ", ".join(w.checkers), w.description) for w in WORKLOADS.values()]
    return ("workload", "judged by", "what it does"), rows


def nemeses() -> tuple[tuple[str, ...], Rows]:
    from nemesis.registry import NEMESES

    return ("nemesis", "what it does"), [(name, info.description) for name, info in NEMESES.items()]


def flaws() -> tuple[tuple[str, ...], Rows]:
    from cluster.flaws import FLAWS

    rows: Rows = [(f.name, f.mechanism, f.consequence, f.workload, f.nemesis) for f in FLAWS.values()]
    return ("flaw", "breaks", "what goes wrong", "workload", "nemesis"), rows


def failpoints() -> tuple[tuple[str, ...], Rows]:
    from cluster.failpoints import FAILPOINTS

    rows: Rows = [
        (point.name, point.role or "any", "what passes" if point.alone else "the process", point.meaning)
        for point in FAILPOINTS.values()
    ]
    return ("failpoint", "nodes", "what waits there", "what has happened there"), rows


def worlds() -> tuple[tuple[str, ...], Rows]:
    from assay.worlds import CLOCK, CLOCK_KEYS, WORLD_KEYS

    rows: Rows = [(k.name, str(k.values), *map(choices, (k.mild, k.harsh)), k.meaning) for k in WORLD_KEYS.values()]
    clocks = WORLD_KEYS[CLOCK_KEYS[0]]
    rows.append((CLOCK, str(clocks.values), "", "", f"tells {', '.join(CLOCK_KEYS)} at once"))
    return ("key", "values", "mild worlds draw", "harsh worlds draw", "what it is"), rows


def choices(values: Iterable[object]) -> str:
    """The values of which one is drawn, without repetitions."""
    return " ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in dict.fromkeys(values))


def models() -> tuple[tuple[str, ...], Rows]:
    from checkers.models import MODELS

    rows: Rows = [(name, info.summary, ", ".join(info.settings)) for name, info in MODELS.items()]
    return ("model", "what it means", "settings (-o)"), rows


def consistency() -> tuple[tuple[str, ...], Rows]:
    from checkers.isolation.isolation_levels import LEVELS
    from checkers.isolation.judge_isolation import ALIASES
    from checkers.transactions import lattice

    aliases: dict[str, list[str]] = {}
    for alias, name in lattice.ALIASES.items():
        aliases.setdefault(name, []).append(alias)
    rows: Rows = [
        (name, ", ".join([canonical] * (canonical != name) + aliases.get(name, [])), "list-append, rw-register")
        for name, (canonical, _, _) in lattice.MODELS.items()
    ]
    for level in LEVELS[1:]:
        rows.append((level, ", ".join(alias for alias, name in ALIASES.items() if name == level), "isolation"))
    return ("consistency model", "also called", "with"), rows


def databases() -> tuple[tuple[str, ...], Rows]:
    from assay.discovery import REFERENCE, Discovered
    from assay.discovery import databases as found

    rows: Rows = [
        (REFERENCE, "", "5", "register, …", "the cluster that assay brings; `--masters`, `--flaw`, `--world`")
    ]
    for name, each in found():
        if isinstance(each, Discovered):
            plugin, origin = each.value, each.origin
            where = f"{origin.get('distribution', '')} {origin.get('version', '')}".strip()
            rows.append((name, where, str(plugin.default_nodes), ", ".join(plugin.workloads), plugin.description))
        else:
            rows.append((name, "", "", "", each))
    return ("database", "from", "nodes", "workloads", "what it is"), rows


LISTS: dict[str, Callable[[], tuple[tuple[str, ...], Rows]]] = {
    "workloads": workloads,
    "databases": databases,
    "nemeses": nemeses,
    "flaws": flaws,
    "failpoints": failpoints,
    "worlds": worlds,
    "models": models,
    "consistency": consistency,
}


def workload_settings() -> tuple[tuple[str, ...], Rows]:
    from workloads.registry import WORKLOADS

    rows: Rows = [
        (w.name, f"-o {each.name}={each.in_words[0]}", each.in_words[1], each.description)
        for w in WORKLOADS.values()
        for each in w.options
    ]
    return ("workload", "setting and default", "values", "what it is"), rows


def nemesis_settings() -> tuple[tuple[str, ...], Rows]:
    from nemesis.asked import PACED
    from nemesis.registry import KINDS, NEMESES

    rows: Rows = [("any", name, meaning) for name, meaning in PACED.items()]
    for name, info in NEMESES.items():
        rows.append((name, "needs", ", ".join(sorted(info.needs))))
        if name in KINDS:
            rows.append((name, "target", "|".join(KINDS[name].variants)))
            for setting, of in KINDS[name].settings.items():
                rows.append((name, f"{setting}={of.default:g}", f"{of.low:g} to {of.high:g}: {of.meaning}"))
            rows += [(name, f"{setting}=NAME|NAME…", of.meaning) for setting, of in KINDS[name].names.items()]
    return ("nemesis", "setting and default", "what it is"), rows


def database_settings() -> tuple[tuple[str, ...], Rows]:
    from assay.discovery import Discovered
    from assay.discovery import databases as found

    rows: Rows = [
        (name, f"-d {option.name}={option.in_words[0]}", option.in_words[1], option.description)
        for name, each in found()
        if isinstance(each, Discovered)
        for option in each.value.options
    ]
    return ("database", "setting and default", "values", "what it is"), rows


SETTINGS: dict[str, Callable[[], tuple[tuple[str, ...], Rows]]] = {
    "workloads": workload_settings,
    "nemeses": nemesis_settings,
    "databases": database_settings,
}
"""What `-v` adds: a line for each setting."""


def print_list(what: str, verbose: bool = False) -> None:
    """Print one of the lists as a table on standard output; raises UserError for an unknown list."""
    if what not in LISTS:
        raise UserError(f"There is no list of {what!r}; choose from: {', '.join(LISTS)}.")
    if verbose and what not in SETTINGS:
        raise UserError(f"{what} have no settings to list; -v goes with {' and '.join(SETTINGS)}.")
    print_table(*LISTS[what]())
    if verbose:
        print()
        print_table(*SETTINGS[what]())


def print_table(header: tuple[str, ...], rows: Rows) -> None:
    """A table on a terminal, else lines with tabs."""
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, title in enumerate(header):
        table.add_column(title, no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    if console.is_terminal:
        console.print(table)
    else:
        for row in rows:
            print("\t".join(row).rstrip())
