"""Read the zip of an entry: check every figure before unpacking, decode in memory, never write to the disk.

`zipfile` reads the list of files. It is lenient and unbounded, so this module adds the checks that it lacks.
Before it runs: position, size and entries of the list. After it ran: paths, encryption, links, sizes and
ratios; local headers, which must agree with the list; and the layout, in which files must follow one another
from the first byte of the zip to its list. Data is inflated up to its stated size, and bytes after the end of
a stream are rejected.
"""

import stat
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from holdfast.contest.messages import EntryError, Problem, content_kind, printable
from holdfast.contest.png import check_header, decode, longest
from holdfast.contest.rules import Archive
from holdfast.core.types import Image, Size

_END = struct.Struct("<4s4H2IH")  # end record
_LOCAL = struct.Struct("<4s5H3I2H")  # local file header
_NONE32 = 0xFFFFFFFF  # "see the zip64 record"
_UTF8 = 1 << 11
_ENCRYPTED = 1 | 1 << 6 | 1 << 13
_BEHIND = 1 << 3  # a data descriptor follows the data
_DESCRIPTOR = 24  # its maximum length
_SLACK = 1 << 16  # overhead of deflate for incompressible data


def read_members(path: Path, images: int, limits: Archive) -> list[ZipInfo]:
    """The files in the zip, in the order of its list; raise EntryError if a value is out of bounds."""
    most = 4 * images + 100  # leaves room to report the files that macOS adds per image
    with _opened(path) as file:
        start, size, count = _list_position(file, limits.bytes, most)
        infos = _infolist(file, start + size)
        if len(infos) != count:
            raise EntryError(Problem("list-bytes", facts={"got": size, "count": count}))
        for info in infos:
            info.filename = _name(info)
            for problem in (*_path_problems(info), *_kind_problems(info, limits)):
                raise EntryError(problem)
        total = sum(info.file_size for info in infos)
        if total > limits.bytes:
            raise EntryError(Problem("zip-total", facts={"got": total, "limit": limits.bytes}))
        _check_layout(file, infos, start)
    return infos


def read_image(path: Path, info: ZipInfo, size: Size) -> Image:
    """The pixels of a file of the zip; EntryError has all problems of its header, or the first other one."""
    limit, name = longest(size), info.filename
    most, complete = min(info.file_size, limit) + 1, True
    with _opened(path) as file:
        file.seek(_data_start(file, info))
        data = file.read(min(info.compress_size, limit + _SLACK))
        if info.compress_type == ZIP_STORED:
            data = data[:most]
        else:  # ZipFile.open ignores bytes behind the end of the stream, and data above the stated size
            stream = zlib.decompressobj(-zlib.MAX_WBITS)
            try:
                data = stream.decompress(data, most)
            except zlib.error:
                raise EntryError(Problem("packed-damaged", name)) from None
            complete = stream.eof and not stream.unused_data
        if info.file_size > limit:
            check_header(data, size, name)
            raise EntryError(Problem("file-bytes", name, {"got": info.file_size, "limit": limit}))
        if len(data) > info.file_size:
            raise EntryError(Problem("packed-longer", name, {"got": info.file_size}))
        if not complete or len(data) < info.file_size or zlib.crc32(data) != info.CRC:
            raise EntryError(Problem("packed-damaged", name))
        return decode(data, size, name)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open the zip for reading; every error inside becomes an EntryError that names the zip."""
    if path.exists() and not path.is_file():  # opening a pipe would block until somebody writes
        facts = {"found": "a folder or device", "found_zh": "文件夹或设备"}
        raise EntryError(Problem("no-file", str(path), facts))
    try:
        with path.open("rb") as file:
            yield file
    except OSError as problem:
        facts = {"found": problem.strerror or "nothing", "found_zh": "无法读取的文件"}
        raise EntryError(Problem("no-file", str(path), facts)) from None
    except EntryError as error:
        problems = [replace(problem, where=problem.where or path.name) for problem in error.problems]
        raise EntryError(*problems, archive=path.name) from None


def _list_position(file: BinaryIO, limit: int, most: int) -> tuple[int, int, int]:
    """Offset, bytes and entries of the list of files, from an end record with sound figures."""
    length = file.seek(0, 2)
    if length > limit:
        raise EntryError(Problem("zip-bytes", facts={"got": length, "limit": limit}))
    if not length:
        raise EntryError(Problem("empty"))
    file.seek(max(0, length - _END.size - 0xFFFF))
    tail = file.read()
    record = tail.rfind(b"PK\5\6")  # `zipfile` finds the same record, since nothing follows it
    if record < 0 or len(tail) - record < _END.size:
        file.seek(0)
        head = file.read(16)
        cut = head.startswith(b"PK")
        raise EntryError(Problem("zip-cut") if cut else Problem("no-zip", facts={"got": content_kind(head)}))
    _, disk, first, entries_on_disk, count, size, start, comment = _END.unpack_from(tail, record)
    trailing = len(tail) - record - _END.size - comment
    if trailing:
        raise EntryError(Problem("zip-behind" if trailing > 0 else "zip-cut", facts={"got": trailing}))
    record_start = length - len(tail) + record
    file.seek(max(record_start - 20, 0))
    if file.read(4) == b"PK\6\7" or _NONE32 in (size, start):
        raise EntryError(Problem("zip64"))
    if disk or first or entries_on_disk != count:
        raise EntryError(Problem("zip-parts"))
    if count > most:
        raise EntryError(Problem("zip-members", facts={"count": count, "limit": most}))
    if not count:
        raise EntryError(Problem("zip-none"))
    if start + size > record_start:
        raise EntryError(Problem("list-place", facts={"got": start + size, "limit": record_start}))
    if start + size < record_start:
        raise EntryError(Problem("zip-between", facts={"got": record_start - start - size}))
    file.seek(start)
    # zipfile ignores the count and creates an object per entry in these bytes.
    if size > 65536 + 1024 * count or file.read(size).count(b"PK\1\2") > 2 * count:
        raise EntryError(Problem("list-bytes", facts={"got": size, "count": count}))
    return start, size, count


def _infolist(file: BinaryIO, end: int) -> list[ZipInfo]:
    """The entries of the list, which ends at `end`; EntryError if it is damaged."""
    try:
        with ZipFile(file) as archive:
            infos = archive.infolist()
        if infos:  # zipfile accepts a last entry that is longer than the list
            lengths = (len(_raw_name(infos[-1])), len(infos[-1].extra), len(infos[-1].comment))
            file.seek(end - sum(lengths) - 18)
            if struct.unpack("<3H", file.read(6)) != lengths:
                raise BadZipFile("Truncated last entry")
    except UnicodeDecodeError as problem:
        raise EntryError(Problem("path-odd", problem.object.decode("latin-1"))) from None
    except (BadZipFile, NotImplementedError) as problem:
        raise EntryError(Problem("list-damaged", facts={"got": printable(str(problem))})) from None
    return infos


def _raw_name(info: ZipInfo) -> bytes:
    """The bytes of the name in the list; cp437, which `zipfile` assumes, maps every byte to a character."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def _name(info: ZipInfo) -> str:
    """The name of a file; if it is not marked as UTF-8, GB 18030 of Chinese Windows is tested too."""
    if not info.flag_bits & _UTF8:
        for code in ("utf-8", "gb18030"):
            try:
                return _raw_name(info).decode(code)
            except UnicodeDecodeError:
                continue
    return info.orig_filename


def _path_problems(info: ZipInfo) -> Iterator[Problem]:
    name, raw = info.filename, _raw_name(info)
    parts = name.removesuffix("/").split("/")
    if not name or len(raw) > 255 or any(ord(c) < 32 or ord(c) == 127 for c in name):
        yield Problem("path-odd", name or "''")
    elif any(part in ("", ".", "..") for part in parts) or ":" in name or "\\" in name:
        yield Problem("path", name)
    names = [value[5:] for kind, value in _extra_fields(info) if kind == 0x7075]  # Unicode path
    if any(other not in (raw, name.encode()) for other in names):
        yield Problem("path-two", name)


def _extra_fields(info: ZipInfo) -> Iterator[tuple[int, bytes]]:
    rest = info.extra
    while len(rest) >= 4:
        kind, length = struct.unpack_from("<HH", rest)
        yield kind, rest[4 : 4 + length]
        rest = rest[4 + length :]


def _kind_problems(info: ZipInfo, limits: Archive) -> Iterator[Problem]:
    """Yield the reasons not to unpack a file of this kind and of the stated sizes."""
    name, extras = info.filename, {kind for kind, _ in _extra_fields(info)}
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.flag_bits & _ENCRYPTED or info.compress_type == 99 or 0x9901 in extras:
        yield Problem("encrypted", name)
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        yield Problem("method", name, {"got": info.compress_type})
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR) or (kind == stat.S_IFDIR and not name.endswith("/")):
        yield Problem("special", name)
    if info.volume:
        yield Problem("zip-parts", name)
    if 0x0001 in extras or _NONE32 in (info.file_size, info.compress_size, info.header_offset):
        yield Problem("zip64", name)
    if name.endswith("/"):
        if info.file_size or info.compress_size > 2:  # 2: nothing, deflated
            yield Problem("folder-data", name)
        return
    size = max(info.file_size, info.compress_size - _SLACK)
    if size > limits.file_bytes:
        yield Problem("file-bytes", name, {"got": size, "limit": limits.file_bytes})
    ratio = info.file_size / max(info.compress_size, 1)
    if ratio > limits.ratio:
        yield Problem("ratio", name, {"got": f"{ratio:.0f}", "limit": f"{limits.ratio:g}"})
    if info.compress_type == ZIP_STORED and info.file_size != info.compress_size:
        yield Problem("local", name)


def _check_layout(file: BinaryIO, infos: Sequence[ZipInfo], end: int) -> None:
    """Raise EntryError if files overlap, or if bytes before the list belong to no file."""
    position, previous, slack = 0, "", 0
    for info in sorted(infos, key=lambda info: info.header_offset):
        if info.header_offset < position:
            raise EntryError(Problem("overlap", info.filename, {"other": printable(previous)}))
        if info.header_offset > position + slack:
            raise EntryError(Problem("zip-between", facts={"got": info.header_offset - position}))
        position = _data_start(file, info) + info.compress_size
        previous, slack = info.filename, _DESCRIPTOR if info.flag_bits & _BEHIND else 0
    if position > end:
        raise EntryError(Problem("overlap", previous, {"other": printable(Path(file.name).name)}))
    if end > position + slack:
        raise EntryError(Problem("zip-between", facts={"got": end - position}))


def _data_start(file: BinaryIO, info: ZipInfo) -> int:
    """Offset of the packed data of a file; EntryError if its local header contradicts the list."""
    file.seek(info.header_offset)
    head = file.read(_LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != b"PK\3\4":
        raise EntryError(Problem("local", info.filename))
    _, _, flags, method, _, _, crc, packed, size, name_length, extra_length = _LOCAL.unpack(head)
    deferred = flags & _BEHIND  # the figures are in the data descriptor
    figures = ((crc, info.CRC), (packed, info.compress_size), (size, info.file_size))
    consistent = all(local in (listed, _NONE32) or (deferred and not local) for local, listed in figures)
    same_kind = method == info.compress_type and not (flags ^ info.flag_bits) & (_ENCRYPTED | _BEHIND)
    if not (consistent and same_kind) or file.read(name_length) != _raw_name(info):
        raise EntryError(Problem("local", info.filename))
    return info.header_offset + _LOCAL.size + int(name_length + extra_length)
