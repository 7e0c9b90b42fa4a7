"""What is wrong with a catalog, in words."""

from __future__ import annotations

from typing import Any, Final

from checkers.explain.conclude import Say, whose
from checkers.explain.speaker import Speaker, listed, opening
from checkers.findings import Finding

_WHATS: Final = {
    "create": "creation",
    "delete": "deletion",
    "alter": "alteration",
    "rename": "renaming",
    "list": "list of tables",
    "locations": "question for locations",
}


def _op(speaker: Speaker, index: int) -> str:
    f = speaker.rows[index]["f"]
    return whose(speaker, index, _WHATS.get(f, f"question `{f}`"))


def _name(finding: Finding) -> str:
    return f"table {finding.key.partition}"


def _id(facts: dict[str, Any]) -> str:
    return f"the table with the id {facts['id']:x}"


def _uncommitted(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    seen = f"a {facts['what']} of {_name(finding)} in the state {facts['state']}"
    return f"{opening(_op(speaker, finding.ops[0]))} shows {seen}, which no committed record that clients see has."


def _no_location(speaker: Speaker, finding: Finding) -> str:
    tablet = f"the tablet of partition {finding.facts['bucket']} of {_name(finding)}"
    told = f"shows {tablet} RUNNING and names no replica of it"
    return f"{opening(_op(speaker, finding.ops[0]))} {told}. Where a tablet is stands in its record."


def _half_made(speaker: Speaker, finding: Finding) -> str:
    buckets = " ".join(map(str, finding.facts["buckets"])) or "none"
    shown = f"shows partitions {buckets} of {_name(finding)}, which has {finding.facts['of']}"
    return f"{opening(_op(speaker, finding.ops[0]))} {shown}: a table is made with all of them, once each."


def _twice(speaker: Speaker, finding: Finding) -> str:
    if finding.facts["what"] == "created":
        both = " and ".join(_op(speaker, index) for index in finding.ops)
        return f"{opening(_id(finding.facts))} was made twice: by {both}."
    return f"{opening(_op(speaker, finding.ops[0]))} shows the same {finding.facts['what']} twice."


def _phantom(speaker: Speaker, finding: Finding) -> str:
    seen = f"{opening(_id(finding.facts))} is known to {_op(speaker, finding.ops[0])}"
    if len(finding.ops) > 1:
        return f"{seen}, before {_op(speaker, finding.ops[1])}, which made it, had begun."
    return f"{seen}, but no creation can have made it: each that had begun by then made another table or none."


def _flickering(speaker: Speaker, finding: Finding) -> str:
    known, listing, again = (_op(speaker, index) for index in finding.ops)
    return f"{opening(known)} tells of {_id(finding.facts)}, {listing} does not show it, and {again} tells of it again."


def _lost(speaker: Speaker, finding: Finding) -> str:
    known, listing = (_op(speaker, index) for index in finding.ops)
    return (
        f"{opening(known)} tells of {_id(finding.facts)}; {listing} misses it, and nobody can have deleted it between."
    )


def _returned(speaker: Speaker, finding: Finding) -> str:
    gone, again = (_op(speaker, index) for index in finding.ops)
    return f"{opening(_id(finding.facts))} was deleted by {gone}, and {again} finds it all the same."


def _went_back(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    earlier, later = (_op(speaker, index) for index in finding.ops)
    versions = f"at version {facts['was']}", f"at version {facts['now']}"
    return f"{opening(earlier)} shows {_id(facts)} {versions[0]}, and later {later} shows it {versions[1]}."


def _unasked(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    shown = f"{opening(_op(speaker, finding.ops[0]))} shows {_id(facts)} at version {facts['now']}"
    if facts["now"] > facts["most"]:
        return f"{shown}, but only {facts['most']} changes of it can have begun by then."
    return f"{shown}, but {facts['least']} changes of it had been acknowledged before."


def _tablet_back(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    ops = [_op(speaker, index) for index in finding.ops]
    place = f"partition {facts['bucket']} of {_id(facts)}"
    if facts["ran"]:
        return f"{opening(ops[1])} shows another tablet for {place} than {ops[0]}, which saw its tablet RUNNING."
    return f"{opening(ops[1])} shows another tablet for {place} than {ops[0]}, and {ops[2]} shows the first one again."


def _tablet_gone(speaker: Speaker, finding: Finding) -> str:
    shown, asked = (_op(speaker, index) for index in finding.ops)
    tablet = f"the tablet with the id {finding.facts['id']:x}"
    return f"{opening(shown)} shows {tablet}, of which there is no record by {asked}. Records are kept for ever."


def _schemas_differ(speaker: Speaker, finding: Finding) -> str:
    version = f"version {finding.facts['version']} of the schema"
    ops = [_op(speaker, index) for index in finding.ops]
    if len(ops) == 1:
        return f"{opening(ops[0])} shows {version}, in which columns share an id or a name."
    return f"{opening(ops[0])} and {ops[1]} contradict each other about {version}: a version is one schema."


def _schema_went_back(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    earlier, later = (_op(speaker, index) for index in finding.ops)
    return (
        f"{opening(earlier)} told version {facts['was']} of the schema, and later {later} told version {facts['now']}."
    )


def _column_came_back(speaker: Speaker, finding: Finding) -> str:
    before, gone, again = (_op(speaker, index) for index in finding.ops)
    column = f"the column with the id {finding.facts['id']}"
    return f"{opening(before)} shows {column}, {gone} a later schema without it, and {again} one that has it again."


def _stuck(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    what = "it is" if facts["what"] == "table" else "a tablet of it is"
    place = "" if facts["what"] == "table" else f" with {facts['replicas']} replicas told"
    said = f"{_op(speaker, finding.ops[0])} says {what} {facts['state']}{place}"
    return f"All faults are healed, and of {_name(finding)} {said}."


def _late(speaker: Speaker, finding: Finding) -> str:
    facts = finding.facts
    took = f"took {facts['took_ns'] / 1e9:.1f} s; {facts['budget_ns'] / 1e9:g} s are allowed"
    return f"All faults were healed, and {_op(speaker, finding.ops[0])} {took}."


def _no_order(speaker: Speaker, finding: Finding) -> str:
    states = [_state(state) for state in finding.facts["states"]]
    more = finding.facts["more"]
    what = "Of the names that have to do with it the" if finding.facts["apart"] else "The"
    before = f"{what} catalog may have been {listed(states, more)} by then" if states else "Nothing is known before"
    return f"{opening(_op(speaker, finding.ops[0]))} fits no order of the operations before it. {before}."


def _state(tables: list[list[int]]) -> str:
    named = [f"{name}: {'?' if table_id < 0 else format(table_id, 'x')} at version {v}" for name, table_id, v in tables]
    return f"{{{', '.join(named)}}}" if named else "empty"


_SENTENCES: Final[dict[str, Say]] = {
    "uncommitted-record": _uncommitted,
    "half-made-table": _half_made,
    "no-location": _no_location,
    "table-twice": _twice,
    "phantom-table": _phantom,
    "flickering-table": _flickering,
    "lost-table": _lost,
    "deleted-table-seen": _returned,
    "version-went-back": _went_back,
    "version-without-alter": _unasked,
    "tablet-came-back": _tablet_back,
    "vanished-tablet": _tablet_gone,
    "ddl-stuck": _stuck,
    "ddl-late": _late,
    "no-order": _no_order,
    "schemas-differ": _schemas_differ,
    "schema-went-back": _schema_went_back,
    "column-came-back": _column_came_back,
}
SENTENCES: Final = _SENTENCES
