"""Scan: the numbers of a long JSON list of like records, without making an object of each.

A file of predictions is the same record two hundred thousand times with other numbers in it. If what remains
after deleting every digit, point and minus sign is exactly one record repeated, the numbers can be read as
columns by numpy, several times faster than through Python objects. Any file that is not so regular (strings,
other keys here and there, faults) gives None, and the ordinary reader takes over; the result is the same,
bit for bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import orjson
from numpy.typing import NDArray

from holdfast.core.types import Bools, Floats, Ints

if TYPE_CHECKING:
    from holdfast.metrics.ahead import Ahead

Words = NDArray[np.uint64]
Part = tuple[Floats, Bools]  # numbers (records, width), and which of the width have no point in any record
Span = tuple[int, int]  # first byte, and the one behind the last
NUMERIC = b"0123456789.-"
NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
MOST_SPECIAL = 200  # numbers of a piece to be read one by one before the ordinary reader is quicker
PIECE = 1 << 18  # bytes read at a time
LONGEST = 20  # characters of a number: 19 digits fit into 64 bits, and a point
PADDING = 24  # bytes, so that three words before any number exist
EXACT_POWERS: Floats = np.array([10.0**k for k in range(23)])  # larger powers of ten are not exact floats


@dataclass(frozen=True, eq=False)
class Scanned:
    """The values of each key, (n,) for a number and (n, k) for a list; and the keys of whole numbers only."""

    columns: dict[str, Floats]
    whole: frozenset[str]


@dataclass(frozen=True, eq=False)
class _Template:
    """The first record: where its numbers stand once all numbers are deleted, and what they belong to.

    `unit` is the record without numbers and what stands between it and the next, `begin` and `end` are where
    the records begin and end in the file.
    """

    unit: bytes
    between: bytes
    begin: int
    end: int
    slots: Ints
    keys: dict[str, int | None]  # None for a number, else the length of a list


def scan_records(data: bytes, ahead: Ahead | None = None) -> Scanned | None:
    """The columns of a regular list of records, or None if it must be read in the ordinary way.

    `ahead` is a process that scans the same bytes from the front: here they are read from the back, until
    the two meet.
    """
    template = _template(data)
    if template is None:
        return None
    spans, many = _spans(data, template), _many(template)
    back: list[Part] = []
    for number in reversed(range(len(spans))):
        if ahead is not None and not ahead.leaves(number, len(spans)):
            break
        part = _piece(data, spans[number], template, many)
        if part is None:
            return None
        back.append(part)
    rest = spans[: len(spans) - len(back)]
    front = ahead.found([low for low, _ in rest]) if ahead is not None else []
    for span in rest[len(front) :]:  # what neither has begun, or all if the other failed
        part = _piece(data, span, template, many)
        if part is None:
            return None
        front.append(part)
    return _columns(template, [*front, *reversed(back)])


def scan_front(data: bytes, leaves: Callable[[int, int], bool], put: Callable[[int, Part], None]) -> None:
    """Nothing; the parts of a regular list were put, first byte and numbers, as long as they were left."""
    template = _template(data)
    spans = [] if template is None else _spans(data, template)
    many = b"" if template is None else _many(template)
    for number, span in enumerate(spans):
        if template is None or not leaves(number, len(spans)):
            return
        part = _piece(data, span, template, many)
        if part is None:
            return
        put(span[0], part)


def _many(template: _Template) -> bytes:
    """The records of a whole piece without their numbers."""
    return template.unit * (2 * PIECE // len(template.unit) + 2)


def _spans(data: bytes, template: _Template) -> list[Span]:
    """The records a few thousand at a time, so that what is computed on the way stays in the cache."""
    seam = b"}" + template.between + b"{"
    spans, low = [], template.begin
    while low < template.end:
        cut = data.find(seam, low + PIECE, min(low + 2 * PIECE, template.end))
        if cut < 0:
            # no seam where there should be many: not regular, and an empty part says so
            spans.append((low, template.end) if template.end - low <= 2 * PIECE else (low, low))
            break
        spans.append((low, cut + len(seam) - 1))
        low = cut + len(seam) - 1
    return spans


def _piece(data: bytes, span: Span, template: _Template, many: bytes) -> Part | None:
    """The numbers of some whole records, or None if they are not all alike."""
    piece = data[span[0] : span[1]] + template.between * (span[1] == template.end)
    special: dict[int, float] = {}
    skeleton = piece.translate(None, NUMERIC)
    if skeleton != many[: len(skeleton)]:  # the letter of an exponent remains, or it is not regular
        plain = _without_exponents(piece)
        if plain is None:
            return None
        piece, special = plain
        skeleton = piece.translate(None, NUMERIC)
    records, rest = divmod(len(skeleton), len(template.unit))
    if rest or not records or skeleton != many[: len(skeleton)]:
        return None
    tokens = _tokens(piece, template, records)
    values = tokens and _values(piece, *tokens)
    if tokens is None or values is None:
        return None
    number, whole = values
    if special:
        at = np.searchsorted(tokens[0], list(special))
        number[at], whole[at] = list(special.values()), False
    return number.reshape(records, -1), np.logical_and.reduce(whole.reshape(records, -1), axis=0)


def _without_exponents(data: bytes) -> tuple[bytes, dict[int, float]] | None:
    """The same text with each number such as 5e-05 written as zeros, and the values by where they start.

    Scores below 0.0001 are written so, and are few; None if they are many or malformed.
    """
    at = data.find(b"e-")
    if at < 0:
        return data, {}
    edited, special = bytearray(data), dict[int, float]()
    while at >= 0:
        start, stop = at, at + 2
        while start > 0 and data[start - 1] in NUMERIC:
            start -= 1
        while stop < len(data) and data[stop] in NUMERIC:
            stop += 1
        if not NUMBER.fullmatch(data, start, stop) or len(special) >= MOST_SPECIAL:
            return None
        special[start] = float(data[start:stop])
        edited[start:stop] = b"0." + b"0" * (stop - start - 2)
        at = data.find(b"e-", stop)
    return bytes(edited), special


def _template(data: bytes) -> _Template | None:
    first, stop = data.find(b"{"), data.find(b"}") + 1
    second = data.find(b"{", stop)
    if first < 0 or stop <= first or second < 0 or data[:first].strip() != b"[":
        return None
    between, end = data[stop:second], data.rfind(b"}") + 1
    plain = _without_exponents(data[first:stop])
    if between.strip() != b"," or data[end:].strip() != b"]" or plain is None:
        return None
    record = plain[0]
    keys = _keys(record)
    skeleton = record.translate(None, NUMERIC)
    found = [(m.start(), len(m.group())) for m in re.finditer(rb"[0-9.\-]+", record)]
    if keys is None or len(found) != sum(size or 1 for size in keys.values()) or b"/" in skeleton:
        return None
    deleted = np.cumsum([0] + [size for _, size in found])[:-1]
    slots = np.array([start for start, _ in found]) - deleted
    return _Template(skeleton + between, between, first, end, slots, keys)


def _keys(record: bytes) -> dict[str, int | None] | None:
    """The keys of a record of numbers and flat lists of numbers, or None if it is not one."""
    try:
        example = orjson.loads(record)
    except orjson.JSONDecodeError:
        return None
    keys: dict[str, int | None] = {}
    for key, value in example.items():
        items = value if isinstance(value, list) else [value]
        if not items or not all(type(item) in (int, float) for item in items):
            return None
        if not key.isidentifier() or any(character.isdigit() for character in key):
            return None
        keys[key] = len(value) if isinstance(value, list) else None
    return keys or None


def _tokens(data: bytes, template: _Template, records: int) -> tuple[Ints, Ints] | None:
    """Where each number starts and stops, if every number stands at its place in the record."""
    characters = np.frombuffer(data, dtype=np.uint8)
    numeric = (characters - np.uint8(45)) < 13  # "-" is 45, "." 46, "0" to "9" 48 to 57; no "/" (47) occurs
    edges = np.flatnonzero(numeric[1:] != numeric[:-1]) + 1
    start, stop = edges[0::2], edges[1::2]
    width = len(template.slots)
    if len(start) != records * width or len(stop) != len(start):
        return None
    size = stop - start
    place = (start - (np.cumsum(size) - size)).reshape(records, width)
    origin = len(template.unit) * np.arange(records)
    if not (place == origin[:, None] + template.slots[None, :]).all():
        return None
    return start, stop


def _values(data: bytes, start: Ints, stop: Ints) -> tuple[Floats, Bools] | None:
    """The value of each number and whether it is written without a point, or None for a malformed one."""
    long = np.flatnonzero(stop - start > LONGEST)
    if len(long) > MOST_SPECIAL or not all(NUMBER.fullmatch(data, start[i], stop[i]) for i in long.tolist()):
        return None
    characters = np.frombuffer(data, dtype=np.uint8)
    negative = characters.take(start) == ord("-")
    size = np.minimum(stop - start - negative, LONGEST)
    if int(size.min()) < 1 or not _well_begun(characters, start + negative, size):
        return None
    read = _decimals(_words(data), stop, size)
    value = read and _quotient(data, read[0], read[1], start + negative, stop)
    if read is None or value is None:
        return None
    value, whole = np.where(negative, -value, value), ~read[2]
    for i in long.tolist():
        text = data[start[i] : stop[i]]
        value[i], whole[i] = float(text), b"." not in text
    return value, whole


def _decimals(words: Words, stop: Ints, size: Ints) -> tuple[Words, Ints, Bools] | None:
    """All digits of each number as an integer, how many stand behind the point, and whether there is one."""
    digits, fraction, pointed, good = _eight(words, stop, size)
    width = 8 - pointed.astype(np.int64)
    for back in (8, 16):
        longer = np.flatnonzero(size > back)
        if len(longer) == 0:
            break
        part, places, point, fit = _eight(words, stop[longer] - back, size[longer] - back)
        good &= fit and not bool((point & pointed[longer]).any())
        digits[longer] += part * _INTEGER_POWERS.take(width[longer])
        fraction[longer] += np.where(point, places + back, 0)
        width[longer] += 8 - point
        pointed[longer] |= point
    if not good or bool((pointed & (fraction == 0)).any()):  # "5." is not JSON
        return None
    return digits, fraction, pointed


_INTEGER_POWERS: Words = np.array([10**k for k in range(20)], dtype=np.uint64)


def _well_begun(characters: NDArray[np.uint8], start: Ints, size: Ints) -> bool:
    """Whether every number begins with a digit, and with a zero only before a point or alone."""
    first = characters.take(start)
    if bool(((first - np.uint8(48)) >= 10).any()):
        return False
    zero = np.flatnonzero((first == ord("0")) & (size > 1))
    return bool((characters.take(start.take(zero) + 1) == ord(".")).all())


def _words(data: bytes) -> Words:
    """The bytes eight at a time, little end first, after `PADDING` zeros and with a word to spare."""
    whole = np.zeros((PADDING + len(data)) // 8 + 2, dtype="<u8")
    whole.view(np.uint8)[PADDING : PADDING + len(data)] = np.frombuffer(data, dtype=np.uint8)
    return whole


def _u(value: int) -> np.uint64:
    return np.uint64(value)


def _eight(words: Words, stop: Ints, size: Ints) -> tuple[Words, Ints, Bools, bool]:
    """The number in the last eight characters before `stop`, of which `size` belong to it.

    Gives the digits as an integer, how many stand behind the point, whether there is a point, and whether
    all characters were fit. All eight bytes are handled at once as one 64-bit word: the first character is
    the lowest byte.
    """
    at = stop + (PADDING - 8)
    shift = ((at & 7) << 3).astype(np.uint64)
    index = at >> 3
    word = (words.take(index) >> shift) | ((words.take(index + 1) << _u(1)) << (_u(63) - shift))
    foreign = (np.maximum(8 - size, 0) << 3).astype(np.uint64)
    word = ((word ^ _u(0x3030303030303030)) >> foreign) << foreign  # digits become 0 to 9, the rest 0
    # The point, 0x2e, became 0x1e. A byte of `mark` is 0x80 exactly where it stands.
    other = word ^ _u(0x1E1E1E1E1E1E1E1E)
    mark = ~(((other & _u(0x7F7F7F7F7F7F7F7F)) + _u(0x7F7F7F7F7F7F7F7F)) | other) & _u(0x8080808080808080)
    pointed = mark != 0
    behind = ~((mark << _u(1)) - _u(1))  # bytes after the point; none if there is no point
    before = (mark >> _u(7)) - _u(1)  # bytes in front of it; all if there is none
    word = (word & behind) | ((word & before) << (pointed.astype(np.uint64) << _u(3)))
    fit = not (
        (mark & (mark - _u(1)))[pointed].any()
        or ((word + _u(0x7676767676767676)) & _u(0x8080808080808080)).any()
    )
    places = (((behind & _u(0x0101010101010101)) * _u(0x0101010101010101)) >> _u(56)).astype(np.int64)
    # Pairs, fours, eight: each step joins neighbours, the left one being worth 10, 100, 10000 times more.
    word = (word * _u(10) + (word >> _u(8))) & _u(0x00FF00FF00FF00FF)
    word = (word * _u(100) + (word >> _u(16))) & _u(0x0000FFFF0000FFFF)
    word = (word * _u(10000) + (word >> _u(32))) & _u(0x00000000FFFFFFFF)
    return word, places, pointed, fit


def _quotient(data: bytes, digits: Words, fraction: Ints, start: Ints, stop: Ints) -> Floats | None:
    """Digits / 10^fraction, each rounded once to the nearest float, as a correct reader does."""
    value = digits.astype(np.float64) / EXACT_POWERS.take(fraction)
    large = np.flatnonzero(digits >= _u(1 << 53))  # below, both operands are exact and so is the rounding
    if len(large) == 0:
        return value
    if np.finfo(np.longdouble).nmant != 63:
        return None
    long = digits[large].astype(np.longdouble) / EXACT_POWERS.take(fraction[large]).astype(np.longdouble)
    near = long.astype(np.float64)
    # Rounding first to 64 and then to 53 bits differs from rounding once only where the first lands half-way.
    half_way = np.abs(long - near) * 2 == np.spacing(near)
    below = np.abs(long - near) * 4 == np.spacing(near)  # half a step below a power of two
    value[large] = near
    for i in large[half_way | below].tolist():
        value[i] = float(data[start[i] : stop[i]])
    return value


def _columns(template: _Template, parts: list[Part]) -> Scanned:
    whole = np.logical_and.reduce([no_point for _, no_point in parts])
    columns: dict[str, Floats] = {}
    whole_keys = set()
    place = 0
    for key, size in template.keys.items():
        slots = place if size is None else slice(place, place + size)
        columns[key] = np.concatenate([table[:, slots] for table, _ in parts])
        if bool(whole[slots].all()):
            whole_keys.add(key)
        place += size or 1
    return Scanned(columns, frozenset(whole_keys))
