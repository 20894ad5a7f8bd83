"""`holdfast store`: what a store of cells contains, whether it is intact, and what can be removed."""

from collections.abc import Sequence

from holdfast.cli.options import StoreInfoOptions, StorePruneOptions, StoreVerifyOptions
from holdfast.config.output import say, write_json
from holdfast.core.errors import InputError
from holdfast.engine import housekeeping
from holdfast.engine.executor import progress
from holdfast.engine.store import Store, StoreEntry, open_store
from holdfast.report.tables import Column, Table, many, to_text

DAMAGED = 1  # exit code
SHOWN = 10  # names that are printed


def info(options: StoreInfoOptions) -> None:
    """Print the number and size of the cells by kind of work and age."""
    rows = housekeeping.usage(_existing(options.url))
    columns: list[Column | str] = ["kind of work", "written", "cells", Column("MB", 2)]
    say(
        to_text(
            Table(columns, [[row.kind or "leftovers", row.age, row.cells, row.bytes / 1e6] for row in rows])
        )
    )
    total = sum(row.bytes for row in rows) / 1e6
    say(f"{many(sum(row.cells for row in rows), 'entry', 'entries')}, {total:,.2f} MB")
    if options.json:
        write_json(options.json, [vars(row) for row in rows])


def verify(options: StoreVerifyOptions) -> int:
    """Check every cell against its key and checksum.

    Exit code 1 means: some cells are damaged or belong to another key.
    """
    store = _existing(options.url)
    with progress("verify", sum(1 for entry in store.entries() if entry.key), "cells") as step:
        found = housekeeping.verify(store, lambda done: step(done, 0))
    say(f"{many(found.cells, 'cell')} checked, {len(found.damaged)} damaged")
    _list(found.damaged)
    if found.damaged and options.delete:
        store.delete(found.damaged)
        say(f"{many(len(found.damaged), 'damaged cell')} deleted")
        return 0
    return DAMAGED if found.damaged else 0


def prune(options: StorePruneOptions) -> None:
    """List what no kept run needs, and leftovers of killed writers; delete it with --delete."""
    store = _existing(options.url)
    found = housekeeping.unneeded(store, options.runs, options.older_than * housekeeping.DAY)
    size = sum(entry.size for entry in (*found.cells, *found.leftovers)) / 1e6
    counted = (
        f"{many(len(found.cells), 'cell')} and {many(len(found.leftovers), 'leftover file')}, {size:,.2f} MB"
    )
    if options.delete:
        found.delete(store)
        say(f"deleted: {counted}")
        return
    _list([entry.name for entry in _largest((*found.cells, *found.leftovers))])
    say(f"not needed: {counted}; delete them with --delete")


def _existing(url: str) -> Store:
    store = open_store(url)
    if store.is_new:
        raise InputError(f"{url}: expected a store, got no such folder; the default is holdfast-runs/cells")
    return store


def _largest(entries: Sequence[StoreEntry]) -> list[StoreEntry]:
    return sorted(entries, key=lambda entry: -entry.size)


def _list(names: Sequence[str]) -> None:
    for name in names[:SHOWN]:
        say(f"  {name}")
    if len(names) > SHOWN:
        say(f"  and {len(names) - SHOWN:,} more")
