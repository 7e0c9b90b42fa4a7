"""Intervals of transactions whose place in time is only known by what they depend on and what depends on them.

A tie says that its target depends on its source: the target begins no earlier than the source, the source ends no later
than the target. Bounds only ever get tighter and take finitely many values, so passing them on comes to an end; each
sweep passes them along all of a chain that runs in the order of the ties.
"""

from __future__ import annotations

from checkers.compiled import kernel


@kernel
def pass_bounds(order, source, target, begin, end, source_begin, target_end):
    """Pass bounds on along ties until none changes.

    `source` and `target` are places in `begin` and `end`, or -1 for nodes that are not there: of these ties know what
    `source_begin` and `target_end` say, which are brought up to date for the others.
    """
    # Begins go forward along the order and ends backward, so where ties agree with the order one turn is enough; what
    # runs against it takes another. Bounds only narrow and are of finitely many, so it ends.
    changed = True
    while changed:
        changed = False
        for tie in order:
            if source[tie] >= 0:
                source_begin[tie] = max(source_begin[tie], begin[source[tie]])
            if target[tie] >= 0 and begin[target[tie]] < source_begin[tie]:
                begin[target[tie]] = source_begin[tie]
                changed = True
        for tie in order[::-1]:
            if target[tie] >= 0:
                target_end[tie] = min(target_end[tie], end[target[tie]])
            if source[tie] >= 0 and end[source[tie]] > target_end[tie]:
                end[source[tie]] = target_end[tie]
                changed = True
