"""What coordinators and replicas of quorum tables tell of mutations and of what is forgotten (G10)."""

from __future__ import annotations

from collections.abc import Collection

from cluster.quorum.ids import MutationId
from cluster.quorum.messages import QuorumReply, ReplicaRequest, StoreLogged, StoreMutation
from cluster.quorum.slices import Page, Slice
from cluster.quorum.summaries import Summary


class QuorumObserver:
    """Whom a node's coordinator and its replicas of quorum tablets tell; `group` names the tablet."""

    __slots__ = ()

    def replica_answers(self, request: ReplicaRequest, reply: QuorumReply) -> None:
        """A replica of this node answers a coordinator, which may be its own."""

    def write_acknowledged(self, level: str, replicas: Collection[str], message: StoreMutation | StoreLogged) -> None:
        """This node's coordinator is about to tell its client that a write is durable at this level; `message` is what
        each of the replicas was sent."""

    def id_made(self, each: MutationId) -> None:
        """This node's coordinator names a mutation so, and has sent it to nobody."""

    def mutation_stored(self, group: str, replicas: Collection[str], each: MutationId, number: int) -> None:
        """A mutation of a logged tablet is durable here, at this place of the log, or was found there at a restart;
        `replicas` are the nodes that hold the tablet."""

    def mutations_set_aside(self, group: str, numbers: Collection[int]) -> None:
        """The mutations of these places of the log are durable elsewhere too."""

    def log_collected(self, group: str, number: int) -> None:
        """The log of a logged tablet keeps nothing here up to this place any more."""

    def snapshot_read(self, group: str, asked: Slice, summary: Summary, page: Page) -> None:
        """What this replica of a logged tablet holds of a slice, and what it has applied, as of one moment."""

    def bound_raised(self, group: str, bound: int) -> None:
        """This replica of a logged tablet knows that all have everything below the bound; also after a restart."""

    def deletion_purged(self, group: str, taken_ns: int) -> None:
        """This replica of a logged tablet forgets a deletion, which counts as taken then."""


UNOBSERVED = QuorumObserver()
