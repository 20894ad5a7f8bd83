"""The files in a stranger's zip: read from its list with every figure checked before it is believed.

The standard library's reader believes what it finds: it makes an object for each of a hundred thousand empty
files, looks for a beginning behind a prefix, and unpacks as long as data comes. This one refuses at the first
figure that is out of bounds, reads no more than the figures allow, and never writes to the disk. Refused as a
whole: zip64, parts of a series, encryption, methods but stored and deflate, links, paths that leave the
folder, bytes that belong to no file or to two, figures that contradict one another.
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from holdfast.contest.entry.messages import EntryError, Problem, printable
from holdfast.contest.rules import Archive

_END = struct.Struct("<4s4H2IH")  # end of the list
_FILE = struct.Struct("<4s6H3I5H2I")  # an entry of the list
_LOCAL = struct.Struct("<4s5H3I2H")  # a file's own header
_TAIL = _END.size + 0xFFFF
_NONE32 = 0xFFFFFFFF
_ENCRYPTED = 1 | 1 << 6 | 1 << 13
_OTHERS = (
    (b"Rar!", "RAR"),
    (b"7z\xbc\xaf", "7-Zip"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ", "xz"),
    (b"\x89PNG", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
)


@dataclass(frozen=True)
class Packed:
    """A file in a zip: its name, how and where it is packed, and what it says of itself."""

    name: str
    method: int
    flags: int
    crc: int
    packed_bytes: int
    bytes: int
    header: int  # where its own header begins

    @property
    def is_folder(self) -> bool:
        """Whether it is the entry of a folder."""
        return self.name.endswith("/")


def most_members(images: int) -> int:
    """How many entries a zip may have before its list is not even read.

    More than the images: what macOS adds, doubling them, is better named than refused.
    """
    return 4 * images + 100


def read_directory(path: Path, images: int, limits: Archive) -> tuple[Packed, ...]:
    """The files in the zip, in the order of the list; EntryError if anything is not as it must be."""
    where = path.name
    with _opened(path) as file:
        length = file.seek(0, 2)
        if length > limits.bytes:
            raise EntryError(Problem("zip-bytes", where, {"got": length, "limit": limits.bytes}))
        at, count, size, start = _end(file, length, where, most_members(images))
        if start + size > at:
            raise EntryError(Problem("list-place", where, {"got": start + size, "limit": at}))
        if start + size < at:
            raise EntryError(Problem("zip-between", where, {"got": at - start - size}))
        if size > 65536 + 1024 * count:
            raise EntryError(Problem("list-bytes", where, {"got": size, "count": count}))
        file.seek(start)
        members = tuple(_members(file.read(size), count, where))
        for member in members:
            _check_figures(member, limits, where)
        total = sum(m.bytes for m in members)
        if total > limits.bytes:
            raise EntryError(Problem("zip-total", where, {"got": total, "limit": limits.bytes}))
        _check_places(file, members, start, where)
    return members


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, to be read; EntryError if that is not possible, however late it turns out."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for somebody to write
            facts = {"found": "a folder or device", "found_zh": "文件夹或设备"}
            raise EntryError(Problem("no-file", str(path), facts))
        with path.open("rb") as file:
            yield file
    except OSError as problem:
        facts = {"found": problem.strerror or "nothing", "found_zh": "无法读取的文件"}
        raise EntryError(Problem("no-file", str(path), facts)) from None


def unpack(path: Path, member: Packed, most: int | None = None) -> bytes:
    """The bytes of a file, length and checksum proven; with `most` the first ones alone, unproven."""
    where = path.name
    with _opened(path) as file:
        file.seek(_data_at(file, member, where))
        # Of a stranger's stream no more is read for the first bytes than an honest one needs.
        wanted = member.packed_bytes if most is None else min(member.packed_bytes, most + 4096)
        data = file.read(wanted)
    if len(data) != wanted:
        raise EntryError(Problem("packed-cut", member.name), where)
    if member.method == 0:
        out, whole = data, True
    else:
        unpacker = zlib.decompressobj(-15)
        try:
            out = unpacker.decompress(data, member.bytes + 1 if most is None else most)
        except zlib.error:
            raise EntryError(Problem("packed-cut", member.name), where) from None
        whole = unpacker.eof and not unpacker.unused_data
    if most is not None:
        return out[:most]
    if len(out) > member.bytes:
        raise EntryError(Problem("packed-longer", member.name, {"got": member.bytes}), where)
    if not whole or len(out) < member.bytes:
        raise EntryError(Problem("packed-cut", member.name), where)
    if zlib.crc32(out) != member.crc:
        raise EntryError(Problem("packed-sum", member.name), where)
    return out


def _end(file: BinaryIO, size: int, where: str, most: int) -> tuple[int, int, int, int]:
    """Where the end record is, and what it says: number of files, bytes and place of the list."""
    if not size:
        raise EntryError(Problem("zip-empty", where))
    file.seek(max(0, size - _TAIL))
    tail = file.read(_TAIL)
    found = tail.rfind(b"PK\5\6")
    if found < 0 or len(tail) - found < _END.size:
        file.seek(0)
        raise EntryError(_no_zip(file.read(16), where))
    _, disk, first, here, count, length, start, comment = _END.unpack_from(tail, found)
    behind = len(tail) - found - _END.size - comment
    if behind:
        kind = "zip-behind" if behind > 0 else "zip-cut"
        raise EntryError(Problem(kind, where, {"got": behind}))
    at = size - len(tail) + found
    large = _zip64_count(file, at)
    if large is not None or 0xFFFF in (disk, here, count) or _NONE32 in (length, start):
        if max(large or 0, count) > most:
            raise EntryError(Problem("zip-members", where, {"count": max(large or 0, count), "limit": most}))
        raise EntryError(Problem("zip64", where))
    if disk or first or here != count:
        raise EntryError(Problem("zip-parts", where))
    if count > most:
        raise EntryError(Problem("zip-members", where, {"count": count, "limit": most}))
    if not count:
        raise EntryError(Problem("zip-none", where))
    return at, count, length, start


def _no_zip(head: bytes, where: str) -> Problem:
    if head.startswith(b"PK"):
        return Problem("zip-cut", where)
    named = next((name for magic, name in _OTHERS if head.startswith(magic)), None)
    return Problem("no-zip", where, {"got": named or f"{head[:8]!r}"[1:]})


def _zip64_count(file: BinaryIO, at: int) -> int | None:
    """How many files the record of a zip64 archive states, None if it is none."""
    if at < 20:
        return None
    file.seek(at - 20)
    mark, _, place, _ = struct.unpack("<4sIQI", file.read(20))
    if mark != b"PK\6\7":
        return None
    if place + 56 > at:
        return 0
    file.seek(place)
    record = file.read(56)
    return int(struct.unpack_from("<Q", record, 32)[0]) if record[:4] == b"PK\6\6" else 0


def _members(data: bytes, count: int, where: str) -> Iterator[Packed]:
    at = 0
    for number in range(count):
        if at + _FILE.size > len(data) or data[at : at + 4] != b"PK\1\2":
            raise EntryError(Problem("list-entry", where, {"got": number + 1, "count": count}))
        row = _FILE.unpack_from(data, at)
        flags, method, crc, packed, size, name_length, extra_length, note_length = (
            row[3],
            row[4],
            *row[7:13],
        )
        end = at + _FILE.size + name_length
        if end + extra_length + note_length > len(data):
            raise EntryError(Problem("list-entry", where, {"got": number + 1, "count": count}))
        raw, extra = data[at + _FILE.size : end], data[end : end + extra_length]
        name = _name(raw, bool(flags & 1 << 11), where)
        _check_kind(name, flags, method, row[15] >> 16, where)
        if row[13] or _NONE32 in (packed, size, row[16]):
            raise EntryError(Problem("zip-parts" if row[13] and row[13] != 0xFFFF else "zip64", where))
        _check_extra(name, raw, extra, where)
        yield Packed(name, method, flags, crc, packed, size, row[16])
        at = end + extra_length + note_length
    if at != len(data):
        raise EntryError(Problem("list-bytes", where, {"got": len(data), "count": count}))


def _name(raw: bytes, is_utf8: bool, where: str) -> str:
    """The name of a file, checked; where it is not marked as UTF-8, Chinese Windows' code is tried too."""
    for code in ("utf-8",) if is_utf8 else ("utf-8", "gb18030", "cp437"):
        try:
            name = raw.decode(code)
            break
        except UnicodeDecodeError:
            continue
    else:
        raise EntryError(Problem("path-odd", raw.decode("latin-1")), where)
    kind = _odd_path(name, raw)
    if kind:
        raise EntryError(Problem(kind, name or "''"), where)
    return name


def _odd_path(name: str, raw: bytes) -> str:
    if not name or len(raw) > 255 or any(ord(c) < 32 or ord(c) == 127 for c in name):
        return "path-odd"
    if name.startswith("/"):
        return "path-absolute"
    if ":" in name:
        return "path-drive"
    if "\\" in name:
        return "path-backslash"
    parts = name.removesuffix("/").split("/")
    return "path-parent" if any(part in ("", ".", "..") for part in parts) else ""


def _check_kind(name: str, flags: int, method: int, mode: int, where: str) -> None:
    """Nothing; the entry is a plain file or folder, packed by a method that is read here."""
    if flags & _ENCRYPTED or method == 99:
        raise EntryError(Problem("encrypted", name), where)
    if method not in (0, 8):
        raise EntryError(Problem("method", name, {"got": method}), where)
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise EntryError(Problem("link", name), where)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR) > name.endswith("/"):
        raise EntryError(Problem("special", name), where)


def _check_extra(name: str, raw: bytes, extra: bytes, where: str) -> None:
    """Nothing; no extra field says something else than the entry."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        value = extra[at + 4 : at + 4 + length]
        if kind == 0x0001:
            raise EntryError(Problem("zip64", where))
        if kind == 0x9901:
            raise EntryError(Problem("encrypted", name), where)
        if kind == 0x7075 and value[5:] not in (raw, name.encode()):
            raise EntryError(Problem("path-two", name), where)
        at += 4 + length


def _check_figures(member: Packed, limits: Archive, where: str) -> None:
    if member.is_folder:
        if member.bytes or member.packed_bytes > 2:  # 2: nothing, deflated
            raise EntryError(Problem("folder-data", member.name), where)
        return
    longest = max(member.bytes, member.packed_bytes - 65536)  # what is packed badly grows a little
    if longest > limits.file_bytes:
        raise EntryError(
            Problem("file-bytes", member.name, {"got": longest, "limit": limits.file_bytes}), where
        )
    ratio = member.bytes / max(member.packed_bytes, 1)
    if ratio > limits.ratio:
        facts = {"got": f"{ratio:.0f}", "limit": f"{limits.ratio:g}"}
        raise EntryError(Problem("ratio", member.name, facts), where)
    if member.method == 0 and member.bytes != member.packed_bytes:
        raise EntryError(Problem("local", member.name), where)


def _data_at(file: BinaryIO, member: Packed, where: str) -> int:
    """Where a file's packed data begins, its own header having been compared with the list."""
    file.seek(member.header)
    head = file.read(_LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != b"PK\3\4":
        raise EntryError(Problem("local", member.name), where)
    _, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(head)
    raw = file.read(name_length)
    said = ((crc, member.crc), (packed, member.packed_bytes), (size, member.bytes))
    later = flags & 8  # the figures follow the data
    same = all(a in (b, _NONE32) or (later and not a) for a, b in said)
    try:
        same = same and _name(raw, bool(flags & 1 << 11), where) == member.name
    except EntryError:
        same = False
    if not same or method != member.method or flags & _ENCRYPTED or (flags ^ member.flags) & 8:
        raise EntryError(Problem("local", member.name), where)
    return member.header + _LOCAL.size + int(name_length + extra_length)


def _check_places(file: BinaryIO, members: tuple[Packed, ...], end: int, where: str) -> None:
    """Nothing; the files lie one behind the other, from the first byte to the list, none inside another."""
    at, before, slack = 0, "", 0
    for member in sorted(members, key=lambda m: m.header):
        if member.header < at:
            raise EntryError(Problem("overlap", member.name, {"other": printable(before)}), where)
        if member.header > at + slack:
            raise EntryError(Problem("zip-between", where, {"got": member.header - at}))
        at = _data_at(file, member, where) + member.packed_bytes
        before, slack = member.name, 24 if member.flags & 8 else 0  # the figures that follow the data
    if at > end:
        raise EntryError(Problem("overlap", before, {"other": printable(where)}), where)
    if end > at + slack:
        raise EntryError(Problem("zip-between", where, {"got": end - at}))
