"""The commands of nights at the command line; what they do is loaded once one of them is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from assay.cli_options import Debug


class NightGroup(TyperGroup):
    """`assay night PLAN` and `assay night` alone are `assay night run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._named(args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        return super().resolve_command(ctx, self._named(args))

    def _named(self, args: list[str]) -> list[str]:
        return args if args and args[0] in (*self.commands, "--help") else ["run", *args]


night_app = typer.Typer(cls=NightGroup, help="Torture by a plan, unattended: `assay night [PLAN.toml]`.")

TriageFile = Annotated[Path, typer.Option("--triage", help="The file of what is known.")]
NightStore = Annotated[Path, typer.Option("--store", help="The store whose nights are meant.")]


@night_app.command(name="run")
def night_run(
    plan: Annotated[Path | None, typer.Argument(help="The plan; without, one of the reference cluster.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest night, if it is open.")] = False,
    store: Annotated[Path | None, typer.Option(help="The store, instead of the plan's.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Cells and steps of such names (with *); repeatable.")] = None,
    triage: TriageFile = Path("triage.toml"),
    debug: Debug = False,
) -> int:
    """Make the runs and steps of a plan until its budget is used up; the default."""
    from assay.night_command import NightRequest, run_night

    return run_night(NightRequest(plan, resume, store, only or [], triage))


@night_app.command(name="status")
def night_status(
    max_age: Annotated[str | None, typer.Option(help="2 if no run was adequate within this time, such as 36h.")] = None,
    store: NightStore = Path("store"),
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    debug: Debug = False,
) -> int:
    """Tell the newest night, and whether nights have stopped."""
    from assay.night_command import show_status

    return show_status(store, max_age, json_output)


def index(
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Make it again from journals and runs.")] = False,
    store: NightStore = Path("store"),
    debug: Debug = False,
) -> int:
    """Bring the index of a store's nights and runs up to date."""
    from assay.night_command import show_index

    return show_index(store, rebuild)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@night_app.command(name="report")
def night_report(
    night: Annotated[str | None, typer.Argument(help="A night: its id or folder; or the newest.")] = None,
    store: NightStore = Path("store"),
    triage: TriageFile = Path("triage.toml"),
    debug: Debug = False,
) -> int:
    """Make index.html, night.json, junit.xml and summary.md of a night again."""
    from assay.night_review import report_night

    return report_night(store, night, triage)


def triage(
    signature: Annotated[str | None, typer.Argument(help="A family, or one with -DETAIL; none: tell all.")] = None,
    ticket: Annotated[str | None, typer.Option(help="Where the bug is tracked.")] = None,
    until: Annotated[str | None, typer.Option(help="The last day on which it is known, such as 2027-01-31.")] = None,
    cells: Annotated[list[str] | None, typer.Option(help="Names of cells it holds for; repeatable; none: all.")] = None,
    rate: Annotated[float | None, typer.Option(help="The share of runs that show it at most; more is new.")] = None,
    fixed: Annotated[str | None, typer.Option(help="The commit that mended it; after it, it is back.")] = None,
    store: NightStore = Path("store"),
    file: Annotated[Path, typer.Option(help="The file that is written.")] = Path("triage.toml"),
    debug: Debug = False,
) -> int:
    """Say of a signature who has it, until when; nothing else writes triage.toml."""
    from assay.night_review import TriageRequest, triage_signature

    return triage_signature(signature, TriageRequest(ticket, until, cells or [], rate, fixed), store, file)


def gate(
    policy: Annotated[Path, typer.Argument(help="The conditions, a TOML file.")],
    nights: Annotated[list[str] | None, typer.Argument(help="Nights by id or folder; the newest if none.")] = None,
    store: NightStore = Path("store"),
    triage: TriageFile = Path("triage.toml"),
    junit: Annotated[Path | None, typer.Option(help="Write the conditions as JUnit too.")] = None,
    json_output: Json = False,
    debug: Debug = False,
) -> int:
    """Judge nights by a policy: 0 passes, 1 something was found, 2 they prove too little."""
    from assay.night_review import GateRequest
    from assay.night_review import gate as judge

    return judge(GateRequest(policy, nights or [], store, triage, json_output, junit))


def compare(
    first: Annotated[str, typer.Argument(help="A run's folder, a night, or a commit.")],
    second: Annotated[str, typer.Argument(help="The same of what it is compared with.")],
    store: NightStore = Path("store"),
    json_output: Json = False,
    debug: Debug = False,
) -> int:
    """Tell what is different between two runs, nights or commits."""
    from assay.night_review import compare as tell

    return tell(first, second, store, json_output)
