"""Broken promises of snapshots and change feeds in words."""

from __future__ import annotations

from typing import Any

from checkers.explain.speaker import Speaker, opening
from checkers.findings import Finding


def _read(speaker: Speaker, finding: Finding, index: int, shown: dict[str, Any]) -> str:
    node = f" on node {speaker.rows[index]['node']}" if speaker.rows[index]["node"] else ""
    at = f" as of {shown['requested_ts']}" if shown["requested_ts"] is not None else ""
    value = speaker.source.shown(shown["value"])
    return f"{speaker.process(index)} read {value} from {speaker.key(finding.key)}{at}{node}"


def say_read(speaker: Speaker, finding: Finding) -> str:
    """What a read at a timestamp or with a bound shows that it must not (`snapshot-reads`)."""
    row, other, _ = finding.ops
    mine, its = finding.facts["mine"], finding.facts["other"]
    if finding.anomaly == "late-commit":
        return _say_late(speaker, finding)
    if finding.anomaly == "session-behind":
        return _say_behind(speaker, finding)
    if other < 0 and finding.anomaly != "commit-from-the-future":
        return _say_stated(speaker, finding)
    first = opening(_read(speaker, finding, row, mine))
    if finding.anomaly == "unequal-snapshots":
        return f"{first}, but {_read(speaker, finding, other, its)}: a snapshot must be the same for everyone, always."
    if finding.anomaly == "commit-from-the-future":
        return f"{first}, but that was committed at {finding.facts['committed']} only, which is later."
    if finding.anomaly == "snapshot-went-back":
        return (
            f"{first}, which was there at or before {its['requested_ts']} already; but "
            f"{_read(speaker, finding, other, its)} in between, so the newer of the two is missing from one of them."
        )
    value = speaker.source.shown(its["value"])
    if finding.anomaly == "missed-commit":
        nobodys = "what was read is no commit's value" if finding.facts["nobodys"] else "it is newer than what was read"
        return (
            f"{first}, but {speaker.process(other)} committed {value} at {its['served_ts']}, which is not after that "
            f"time, and {nobodys}."
        )
    return (
        f"{first} at {speaker.when(row, 'invoke')} with a staleness bound of {mine['bound'] / 1e9:g} s, but "
        f"{speaker.process(other)}'s write of {value}, which is newer, {speaker.ended(other)}, longer ago "
        "than the bound."
    )


def _say_late(speaker: Speaker, finding: Finding) -> str:
    row, other, _ = finding.ops
    mine, its = finding.facts["mine"], finding.facts["other"]
    value = speaker.source.shown(mine["value"])
    return (
        f"{opening(speaker.process(row))} wrote {value} to {speaker.key(finding.key)} and it was committed at "
        f"{mine['served_ts']}; but {_read(speaker, finding, other, its)} and that {speaker.ended(other)}, before the "
        f"write {speaker.began(row)}: nothing may be committed any more at or below a time that has been read."
    )


def _say_behind(speaker: Speaker, finding: Finding) -> str:
    row, other, _ = finding.ops
    mine, its = finding.facts["mine"], finding.facts["other"]
    what, before = speaker.rows[row]["f"], speaker.rows[other]["f"]
    return (
        f"{opening(speaker.process(row))}'s {what} of {speaker.key(finding.key)} is at {mine['served_ts']}, but before "
        f"it a {before} of the same session was at {its['served_ts']}: what it does now is to be at that time or later."
    )


def _say_stated(speaker: Speaker, finding: Finding) -> str:
    row, mine = finding.ops[0], finding.facts["mine"]
    first = f"{opening(speaker.process(row))}'s {speaker.rows[row]['f']} of {speaker.key(finding.key)}"
    if finding.anomaly == "below-minimum":
        return f"{first} was served at {mine['served_ts']}, and no time before {mine['min_ts']} would do."
    if finding.anomaly == "ahead-of-clocks":
        return (
            f"{first} was acknowledged with the time {mine['served_ts']}, but by any clock within the bounds it was "
            f"{mine['latest_ts']} at most by then: nobody may hear of a time before his own clock has passed it."
        )
    return (
        f"{first} waited for {mine['blocked_ns'] / 1e6:g} ms, though what is there could be read at "
        f"{mine['unblocked_ts']} without waiting, and any time from {mine['min_ts']} on would do."
    )


def say_feed(speaker: Speaker, finding: Finding) -> str:
    """What a change feed told, or did not, that it must not, or had to (`change-feed`)."""
    row, other = finding.ops
    mine, its, feed = finding.facts["mine"], finding.facts["other"], f"feed {finding.facts['feed']}"
    value, where = speaker.source.shown(mine["value"]), speaker.key(finding.key)
    row_words = f"{opening(feed)} told at {speaker.when(row, 'invoke')} that {where} became {value} at {mine['ts']}"
    if finding.anomaly == "resolved-went-back":
        return (
            f"{opening(feed)} sent the resolved mark {mine['ts']} at {speaker.when(row, 'invoke')}, after it had sent "
            f"{its['ts']} at {speaker.when(other, 'invoke')}: marks never go back."
        )
    if finding.anomaly == "row-below-resolved":
        return (
            f"{row_words}, but its resolved mark {its['ts']} of {speaker.when(other, 'invoke')} had promised that "
            "nothing at or below that time would follow."
        )
    if finding.anomaly == "duplicate-row":
        return f"{row_words}, which it had told already at {speaker.when(other, 'invoke')}."
    if finding.anomaly == "unwritten-row":
        return f"{row_words}, but no write that can have taken effect by then wrote {value} there."
    if finding.anomaly == "wrong-timestamp":
        became = speaker.source.shown(its["value"])
        if finding.facts["by_row"]:
            return f"{row_words}, but it was also told to have become {became} at {its['ts']}: no writes did both."
        return (
            f"{row_words}, but {speaker.process(other)}'s write of {became} was acknowledged with timestamp "
            f"{its['ts']}."
        )
    if finding.facts["told_by"] is not None:
        return (
            f"Feed {finding.facts['told_by']} told that {where} became {value} at {mine['ts']}, but {feed} never told "
            f"it, although its resolved mark {its['ts']} of {speaker.when(other, 'invoke')} covers that time."
        )
    at = f"at {mine['ts']}" if mine["ts"] is not None else "with an element that was told"
    return (
        f"{opening(speaker.process(row))}'s write of {value} to {where} was committed {at}, but {feed} "
        f"never told it, although its resolved mark {its['ts']} of {speaker.when(other, 'invoke')} covers that time."
    )
