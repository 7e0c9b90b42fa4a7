"""What happens on a rig, in words for the golden transcripts."""

from __future__ import annotations

from cluster.raft.log import configuration_of
from cluster.raft.types import Configuration, Entry, EntryKind, Message, Persist, SnapshotChunk


def describe_entry(entry: Entry) -> str:
    if entry.kind == EntryKind.CONFIG:
        return f"({entry.index} term {entry.term} {describe_configuration(configuration_of(entry))})"
    return f"({entry.index} term {entry.term} {entry.data.decode() or 'empty'})"


def describe_configuration(configuration: Configuration) -> str:
    learners = f" and learners {' '.join(configuration.learner_ids)}" if configuration.learners else ""
    return f"voters {' '.join(configuration.voter_ids)}{learners}"


def describe_persist(persist: Persist) -> str:
    parts = [f"#{persist.sequence}"]
    if persist.hard_state is not None:
        parts.append(f"term {persist.hard_state.term} vote {persist.hard_state.vote}")
    if persist.snapshot is not None:
        parts.append(f"snapshot up to {persist.snapshot.index}")
    parts.extend(describe_entry(entry) for entry in persist.entries)
    parts.extend(f"then {message.source} -> {message.target} {describe(message)}" for message in persist.then_send)
    return ", ".join(parts)


HIDDEN = frozenset({"source", "target", "sent_ns", "read_round", "entries", "meta", "data"})
ONLY_IF_SET = frozenset({"quiesce", "quiesced", "until"})


def describe(message: Message) -> str:
    """A message without its times."""
    shown = [name for name in message.__struct_fields__ if name not in HIDDEN]
    fields = [f"{name}={getattr(message, name)}" for name in shown if name not in ONLY_IF_SET or getattr(message, name)]
    fields.extend(describe_entry(entry) for entry in getattr(message, "entries", ()))
    if isinstance(message, SnapshotChunk):
        fields.append(f"{len(message.data)} bytes of the snapshot up to {message.meta.index}")
    return f"{type(message).__name__}({', '.join(fields)})"
