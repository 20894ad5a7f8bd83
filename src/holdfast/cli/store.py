"""`holdfast store`: what a store of cells contains, whether it is intact, and what can be removed."""

from collections.abc import Sequence

from holdfast.cli.options import StoreInfoOptions, StorePruneOptions, StoreVerifyOptions
from holdfast.config.output import say, write_json
from holdfast.core.errors import InputError
from holdfast.engine import housekeeping
from holdfast.engine.executor import progress
from holdfast.engine.store import Store, open_store
from holdfast.report.tables import Column, Table, many, to_text

DAMAGED = 1  # exit code
SHOWN = 10  # names that are printed


def info(options: StoreInfoOptions) -> None:
    """Print the number and size of the cells by kind of work and age."""
    groups = housekeeping.usage(_existing(options.url))
    columns: list[Column | str] = ["kind of work", "written", "cells", Column("MB", 2)]
    say(to_text(Table(columns, [[g.kind or "leftovers", g.age, g.cells, g.bytes / 1e6] for g in groups])))
    total = sum(group.bytes for group in groups) / 1e6
    say(f"{many(sum(group.cells for group in groups), 'entry', 'entries')}, {total:,.2f} MB")
    if options.json:
        write_json(options.json, [vars(group) for group in groups])


def verify(options: StoreVerifyOptions) -> int:
    """Check every cell against its key and checksum.

    Exit code 1 means: some cells are damaged or belong to another key.
    """
    store = _existing(options.url)
    with progress("verify", sum(1 for entry in store.entries() if entry.key), "cells") as step:
        cells, damaged = housekeeping.verify(store, lambda done: step(done, 0))
    say(f"{many(cells, 'cell')} checked, {len(damaged)} damaged")
    _list(damaged)
    if damaged and options.delete:
        store.delete(damaged)
        say(f"{many(len(damaged), 'damaged cell')} deleted")
        return 0
    return DAMAGED if damaged else 0


def prune(options: StorePruneOptions) -> None:
    """List what no kept run needs, and leftovers of killed writers; delete it with --delete."""
    store = _existing(options.url)
    removable = housekeeping.unneeded(store, options.runs, options.older_than * housekeeping.DAY)
    entries = sorted((*removable.cells, *removable.leftovers), key=lambda entry: -entry.size)
    counts = many(len(removable.cells), "cell"), many(len(removable.leftovers), "leftover file")
    total = f"{' and '.join(counts)}, {sum(entry.size for entry in entries) / 1e6:,.2f} MB"
    if options.delete:
        removable.delete(store)
        say(f"deleted: {total}")
        return
    _list([entry.name for entry in entries])
    say(f"not needed: {total}; delete them with --delete")


def _existing(url: str) -> Store:
    store = open_store(url)
    if store.is_new:
        raise InputError(f"{url}: expected a store, got no such folder; the default is holdfast-runs/cells")
    return store


def _list(names: Sequence[str]) -> None:
    for name in names[:SHOWN]:
        say(f"  {name}")
    if len(names) > SHOWN:
        say(f"  and {len(names) - SHOWN:,} more")
