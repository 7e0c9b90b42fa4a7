"""What to change so that a run that proved nothing proves something: a remedy for each kind of reason (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_OF_FAULTS: Final = (
    "give faults more time (--time-limit) or ask for fewer kinds at once (--nemesis): what is skipped found no victim, "
    "what was never observed did not come about here"
)
_OF_RATES: Final = (
    "ask for no more than the cluster serves (--rate, --concurrency), or give it more time (--time-limit, --op-timeout)"
)
_OF_KEYS: Final = "a longer --time-limit or a higher --rate reaches more keys; or have fewer of them (-o keys=N)"
_OF_FILES: Final = "run it again: what is saved here can't become valid (`assay check RUN` says what it refutes)"
_OF_ENDS: Final = "the nodes' logs in the run's folder say what kept them from answering; a longer --time-limit won't"
_OF_SEARCHES: Final = (
    "judge a shorter history, or one with fewer clients at a time, fewer operations of unknown outcome or more keys; "
    "from Python `CheckOptions(time_limit_s=…, memory_mib=…)` gives the search more"
)

CANT_TELL: Final = "can't tell: "
"""What goes before a checker's own reason."""

REMEDIES: Final = (
    ("stopped before its end", "let the run come to its end"),
    ("no load was put on", "see what failed in the set-up; `assay doctor` says whether this machine can do it"),
    ("the harness failed", "that is no word on the database: `assay doctor` looks at this machine; then run it again"),
    ("not seen to be gone", "that is no word on the database: `assay doctor` looks at this machine; then run it again"),
    ("files are not those of", _OF_FILES),
    ("the harness ended before", _OF_FILES),
    ("recovery was not observed", "give the cluster longer (--recovery-budget), or look why nobody saw it recover"),
    ("took longer than its", _OF_SEARCHES),
    ("needs more than its", _OF_SEARCHES),
    ("were not searched to the end", _OF_SEARCHES),
    ("several operations wrote", "have each value written once: nobody knows whose a repeated one is"),
    ("crashed", "that is no word on the database but a bug of ours: --debug shows its traceback"),
    ("ended early", "judge a run that came to its end"),
    (CANT_TELL, "make the history say more: operations that succeed, and reads of what was written, by a longer run"),
    ("no checker judged", "name what to judge it for: `assay check HISTORY --model MODEL`"),
    ("fault", _OF_FAULTS),
    ("was in effect", _OF_FAULTS),
    ("the load lasted", "see what ended the load early, in the run's log; or ask for less time (--time-limit)"),
    ("final read", _OF_ENDS),
    ("at the end", _OF_ENDS),
    ("say which node answered", "the client has to say which node answered it, or nobody knows that one did"),
    ("keys", _OF_KEYS),
    ("succeeded", _OF_RATES),
)
"""What is to be changed for reasons with these words in them, the first that fits."""

FLOORS: Final = "what is enough can be set too, if you mean it: --floor NAME=SHARE"


def advice(overall: str, reasons: Sequence[str]) -> tuple[str, ...]:
    """What to change, each thing once, of a run that is `unknown`; nothing for other words."""
    if overall != "unknown":
        return ()
    found = [remedy_of(reason) for reason in reasons]
    told = tuple(dict.fromkeys(remedy for remedy in found if remedy))
    return (*told, FLOORS) if any("the floor is" in reason for reason in reasons) else told


def remedy_of(reason: str) -> str | None:
    """What to change for one reason."""
    return next((remedy for words, remedy in REMEDIES if words in reason), None)
