"""The options of commands that take more than a line: what each is called and says of itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

LISTS_HELP = "workloads, databases, nemeses, flaws, failpoints, worlds, models or consistency"
MASTERS_HELP = "Master nodes of the reference cluster (an odd number); 3 if not given."
NODES_HELP = "Tablet servers, 5 if not given; of another database its nodes, as many as it has by default."
ZONES_HELP = "Zones that the nodes stand in, in turn; 3 in containers, else those of the world."
SEEDS_HELP = "FIRST..LAST: one run for each seed, a line each; reports for those that are not valid."
UNTIL_HELP = "End at the first seed that is invalid: of --seeds, else from --seed upwards."
COUNT_HELP = "So many seeds from --seed upwards, until one is invalid; else it is told how rare that is."
SEED_LIMIT_HELP = "Seconds after which a seed that has not ended is given up, as unknown."
SEARCH_HELP = "{} that a search takes at most; past them the answer is unknown."
LOAD_HELP = "Seconds of load (virtual ones in the simulator); more while too little was seen of what was asked."


def state_debug(debug: bool) -> bool:
    """Remember that tracebacks are wanted (also by the processes that this one starts)."""
    if debug:
        os.environ["ASSAY_DEBUG"] = "1"
    return debug


Flaws = Annotated[list[str] | None, typer.Option(help="Known bugs to switch on; see `assay list flaws`.")]
Database = Annotated[
    str | None,
    typer.Option(help="Another than the reference cluster (`assay list databases`), or FILE.py, or FILE.py:NAME."),
]
Plugins = Annotated[
    list[str] | None, typer.Option("--plugin", help="FILE.py with workloads or nemeses of one's own; repeatable.")
]
Image = Annotated[
    str | None, typer.Option(help="An image that nodes are made of, with the database, sshd and Python 3.9 in it.")
]
Hosts = Annotated[
    Path | None, typer.Option(help="The file of the hosts to run on with --on ssh (TOML, a table [[host]] for each).")
]
DatabaseOptions = Annotated[
    list[str] | None, typer.Option("-d", help="KEY=VALUE for the database (`assay list databases -v`); repeatable.")
]
Model = Annotated[
    str | None,
    typer.Option(help="What to check for (`assay list models`, or FILE.py:NAME); else what the input is for."),
]
Nemeses = Annotated[
    list[str] | None, typer.Option(help="Faults, separated by commas, such as kill(every=5s),partition; or all.")
]
Swarm = Annotated[
    bool, typer.Option("--swarm", help="Let the seed draw cluster, load, and a part of the faults with their pace.")
]
KeepJournal = Annotated[bool, typer.Option("--keep-journal", help="Keep the journal though the table says the same.")]
WhatIsWhole = Annotated[
    bool, typer.Option("--what-is-whole", help="Judge what is whole of a damaged table: unknown at best.")
]
Again = Annotated[bool, typer.Option("--again", help="Judge all runs of a store: the word then, the word now.")]
Debug = Annotated[bool, typer.Option("--debug", callback=state_debug, help="Show tracebacks of errors.")]
FailedCas = Annotated[
    str, typer.Option(help="What a failed compare-and-set says of the state: auto, observed or absent.")
]
Consistency = Annotated[
    list[str] | None,
    typer.Option(help="What must hold (`assay list consistency`); several: by commas, or repeated."),
]
CompletionsAlone = Annotated[
    bool, typer.Option("--completions-alone", help="The files have no invocations: all operations are concurrent.")
]
CheckReport = Annotated[
    Path | None,
    typer.Option(help="Also write one HTML page on all inputs, anomalies drawn; a directory gets a check.html."),
]
Evidence = Annotated[
    Path | None,
    typer.Option(help="Also write what refutes the inputs: FILE.graphml, a graph, or FILE.parquet, a history."),
]
ModelSettings = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        help="KEY=VALUE for the model, such as linearizable-keys=true for rw-register or total=100 for bank "
        "(`assay list models` has all); repeatable.",
    ),
]
Manifest = Annotated[
    Path | None, typer.Option(help="Judge a table (TSV) of file, format, model, valid and compare the verdicts.")
]
SparkMaster = Annotated[
    str | None, typer.Option(help="Where Spark judges: local[*], spark://HOST:PORT, yarn, k8s://URL.")
]
SparkArchive = Annotated[
    Path | None, typer.Option(help="What executors run, made by `assay pack`; else what they have.")
]
Inputs = Annotated[Path | None, typer.Option(help="A folder of inputs, which are carried out (docs/reproduce.md).")]
Targets = Annotated[str, typer.Option(help="Whom the faults of --inputs hit: their node, or who has its role then.")]
Record = Annotated[Path | None, typer.Option(help="Also save the run's inputs, in this folder.")]
