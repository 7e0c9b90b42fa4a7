"""Our own saved histories: checked for version and columns, then streamed by whoever judges them."""

from __future__ import annotations

from checkers.importers.integrity import verify_here
from checkers.source import Source
from harness.errors import UNDECODABLE, UserError
from harness.history.address import Place, place_of
from harness.history.saved import dictionary_of, open_saved

MAGIC = b"PAR1"


def open_parquet(place: Place, verify: bool = True) -> Source:
    """A source over a saved history, a file or a folder of parts; raises UserError for anything that is not one, whole
    and of this version. Unless `verify`, what is within it is left for an engine to look at (`Engine.verify`)."""
    place = place_of(place)
    reader = open_saved(place)
    try:
        dictionary = dictionary_of(reader.manifest)
    except (*UNDECODABLE, TypeError) as error:
        raise UserError(f"{place} has a dictionary of foreign values that can't be read: {error}.") from error
    source = Source(place, "parquet", reader.manifest.rows, saved=reader, dictionary=dictionary)
    if verify:
        verify_here(source)
    return source
