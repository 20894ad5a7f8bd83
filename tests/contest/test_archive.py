"""Hostile zips and pictures, one by one: each is refused in one line, and nothing is written."""

import json
import os
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers import contest as entering
from helpers.contest import Raw, chunk, encoded, good, goods, header, picture, raw_png, raw_zip, rules
from holdfast.contest.entry import open_entry
from holdfast.contest.messages import EntryError
from holdfast.core.errors import InputError

GOOD = raw_zip(goods())


def opened(folder, data, name="advimages_team.zip", **changes):
    path = folder / name
    path.write_bytes(data)
    entry = open_entry(path, rules(**changes))
    return entry, [(number, entry.image(number)) for number in entry.members]


def refused(folder, data, **changes) -> str:
    """The one line by which it is refused; nothing but the zip is in the folder afterwards."""
    with pytest.raises(EntryError) as caught:
        opened(folder, data, **changes)
    line = str(caught.value)
    assert_one_line(line)
    assert line.startswith("advimages_team.zip: ")
    assert [p.name for p in folder.iterdir()] == ["advimages_team.zip"]
    return line.removeprefix("advimages_team.zip: ")


def assert_one_line(line: str) -> None:
    assert line
    assert line.isprintable()  # no line feed either


def test_good_entry_gives_every_image_in_order(tmp_path):
    entry, images = opened(tmp_path, raw_zip(list(reversed(goods()))))
    assert entry.team == "team"
    assert len(entry.members) == 4
    assert [number for number, _ in images] == [1, 2, 3, 4]
    for number, image in images:
        np.testing.assert_array_equal(image, picture(number))


@pytest.mark.parametrize(
    "data",
    [
        raw_zip(goods(method=8)),
        raw_zip([Raw(b"advimages/", mode=0o40755), *goods()]),
        raw_zip(goods(), comment=b"made by hand"),
        raw_zip(goods(), comment=bytes(65535)),
        raw_zip(goods(flags=8, local_size=0, behind=b"PK\7\x08" + bytes(12))),
        raw_zip(goods(mode=0)),
    ],
    ids=["deflate", "folder entry", "comment", "long comment", "figures behind the data", "no mode"],
)
def test_what_ordinary_tools_write_is_taken(tmp_path, data):
    assert len(opened(tmp_path, data)[1]) == 4


def test_what_zipfile_writes_is_taken(tmp_path):
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        path = tmp_path / "advimages_team.zip"
        with zipfile.ZipFile(path, "w", kind) as archive:
            archive.mkdir("advimages")
            for number in range(1, 5):
                with archive.open(f"advimages/{number}.png", "w", force_zip64=True) as file:
                    file.write(encoded(picture(number)))
        entry = open_entry(path, rules())
        assert len([entry.image(number) for number in entry.members]) == 4


def other(name: bytes, **facts):
    return raw_zip(goods(Raw(name, b"x", **facts)))


def overlapping() -> bytes:
    """Every entry of the list names the bytes of the first file, as in a bomb of overlapping files."""
    first, *rest = goods()
    for file in rest:
        file.listed_only, file.header, file.data = True, 0, first.data
    return raw_zip([first, *rest])


def inside() -> bytes:
    """A file that begins inside the data of another."""
    inner = raw_zip([good(2)])[: 30 + 15 + len(good(2).data)]
    first = Raw(b"advimages/1.png", inner)
    second = good(2)
    second.listed_only, second.header = True, 30 + 15
    return raw_zip([first, second, good(3), good(4)])


def unfinished(data: bytes) -> bytes:
    """A deflate stream that gives all the data but does not end."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


def longer_last_entry() -> bytes:
    """A list whose last entry has a comment that would end behind the list."""
    at = len(GOOD) - 22 - 15 - 46
    return GOOD[: at + 32] + b"\1\0" + GOOD[at + 34 :]


def quoted() -> bytes:
    """A bomb of quoted overlap: the stream of each file holds the header of the next and shares its data."""
    data, packed, body = good(4).data, entering.deflated(good(4).data), b""
    files: list[Raw] = []
    for number in (4, 3, 2, 1):
        name, crc = b"advimages/%d.png" % number, zlib.crc32(data)
        figures = (crc, len(packed), len(data), len(name), 0)
        local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 33, *figures) + name
        header = (number - 1) * (len(local) + 5)
        files.insert(0, Raw(name, data, 8, packed=packed, header=header, listed_only=True))
        body = local + packed
        data, packed = local + data, struct.pack("<BHH", 0, len(local), len(local) ^ 0xFFFF) + body
    return raw_zip(files, prefix=body)


@lru_cache
def hundred_thousand() -> bytes:
    return raw_zip([Raw(b"advimages/%06d.png" % n) for n in range(100_000)], count=4)


def empties(count: int, zip64: int | None = None) -> bytes:
    """A hundred thousand empty files, counted as is said."""
    body, end = hundred_thousand()[:-22], hundred_thousand()[-22:]
    if zip64 is not None:
        body += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, zip64, zip64, 0, 0)
        body += struct.pack("<4sIQI", b"PK\6\7", 0, len(body) - 56, 1)
    return body + end[:8] + struct.pack("<HH", count, count) + end[12:]


ZIPS = {
    "absolute path": (other(b"/etc/passwd"), "/etc/passwd: an absolute path, or one with"),
    "parent": (
        other(b"advimages/../../x"),
        "advimages/../../x: an absolute path, or one with '..'",
    ),
    "empty part": (other(b"advimages//1.png"), "advimages//1.png: an absolute path, or one with"),
    "backslash": (other(b"..\\x.png"), "..\\x.png: an absolute path, or one with"),
    "drive": (other(b"C:/x.png"), "C:/x.png: an absolute path, or one with"),
    "stream": (other(b"advimages/1.png:x"), "advimages/1.png:x: an absolute path, or one with"),
    "nul": (other(b"advimages/1.png\0.exe"), "advimages/1.png\\x00.exe: a name with control characters"),
    "escape": (other(b"\x1b[2J"), "\\x1b[2J: a name with control characters"),
    "no name": (other(b""), "'': a name with control characters, of unreadable bytes or longer than 255"),
    "long name": (other(b"a" * 60_000), "…aaaaaaaaaaaaaaaa: a name with control characters"),
    "not utf-8": (other(b"\xff\xfe.png", flags=1 << 11), "ÿþ.png: a name with control characters, of unr"),
    "two names": (
        raw_zip(goods(extra=struct.pack("<HHBI", 0x7075, 10, 1, 0) + b"x.png")),
        "advimages/1.png: has two different names",
    ),
    "link": (
        other(b"advimages/l", mode=stat.S_IFLNK | 0o777),
        "advimages/l: a symbolic link, device or other special file; expected a regular file",
    ),
    "device": (
        other(b"dev", mode=stat.S_IFCHR | 0o600),
        "dev: a symbolic link, device or other special",
    ),
    "pipe": (other(b"pipe", mode=stat.S_IFIFO | 0o600), "pipe: a symbolic link, device or other special"),
    "folder as file": (other(b"advimages/9", mode=stat.S_IFDIR | 0o700), "advimages/9: a symbolic link, dev"),
    "folder with data": (other(b"advimages/"), "advimages/: a folder entry with data"),
    "encrypted": (raw_zip(goods(flags=1)), "advimages/1.png: encrypted; expected a zip without a password"),
    "strongly encrypted": (raw_zip(goods(flags=65)), "advimages/1.png: encrypted"),
    "AES": (raw_zip(goods(method=99, packed=b"x")), "advimages/1.png: encrypted"),
    "AES field": (raw_zip(goods(extra=struct.pack("<HH", 0x9901, 0))), "advimages/1.png: encrypted"),
    "bzip2": (raw_zip(goods(method=12, packed=b"x")), "advimages/1.png: compression method 12; expected st"),
    "duplicate": (raw_zip(goods(good(2))), "advimages/2.png: 2 files of this name"),
    "case": (other(b"ADVIMAGES/1.PNG"), "ADVIMAGES/1.PNG: differs from advimages/1.png only in case or in"),
    "unicode": (
        other("advimages/１.png".encode()),
        "advimages/１.png: differs from advimages/1.png only in case or in how its characters are encoded",
    ),
    "combined characters": (
        raw_zip(goods(Raw("é.txt".encode()), Raw("e\u0301.txt".encode()))),
        "e\u0301.txt: differs from é.txt only in case",
    ),
    "zip inside": (other(b"advimages/more.zip"), "unexpected: advimages/more.zip (1 archive inside the zip)"),
    "pickle": (other(b"advimages/net.pt"), "unexpected: advimages/net.pt (1 file); expected only the"),
    "too many files": (
        raw_zip([Raw(b"%d" % n) for n in range(117)]),
        "117 files in the zip, limit 116",
    ),
    "100,000 empty files": (
        lambda: empties(count=0xFFFF, zip64=100_000),
        "uses zip64; expected a plain zip",
    ),
    "100,000 empty files, counted badly": (
        lambda: empties(count=100_000 & 0xFFFF),
        "34464 files in the zip, limit 116",
    ),
    "100,000 empty files said to be four": (
        lambda: empties(count=4),
        "the list of files in the zip is damaged: 6600000 bytes for 4 files",
    ),
    "huge count": (raw_zip(goods(), count=65_534), "65534 files in the zip, limit 116"),
    "count too large": (
        raw_zip(goods(), count=5),
        "the list of files in the zip is damaged: 244 bytes for 5 files",
    ),
    "count too small": (
        raw_zip(goods(), count=3),
        "the list of files in the zip is damaged: 244 bytes for 3 files",
    ),
    "last entry longer than the list": (
        longer_last_entry(),
        "the list of files in the zip is damaged: Truncated last entry",
    ),
    "extra field": (
        raw_zip(goods(extra=b"UT\x50\0\1")),
        "the list of files in the zip is damaged: Corrupt extra field",
    ),
    "later version": (GOOD.replace(b"PK\1\2\x14\3\x14", b"PK\1\2\x14\3\xff"), "zip file version 25.5"),
    "zip64": (raw_zip(goods(), zip64=4), "uses zip64; expected a plain zip"),
    "zip64 far away": (raw_zip(goods(), zip64=1 << 60), "uses zip64"),
    "zip64 list size": (raw_zip(goods(), length=0xFFFFFFFF), "uses zip64"),
    "zip64 file size": (raw_zip(goods(size=0xFFFFFFFF)), "uses zip64"),
    "zip64 field": (raw_zip(goods(extra=struct.pack("<HHQ", 1, 8, 1 << 60))), "uses zip64"),
    "several parts": (raw_zip(goods(), disk=1), "part of a multi-part zip"),
    "file in another part": (raw_zip(goods(disk=2)), "part of a multi-part zip"),
    "list out of the file": (
        raw_zip(goods(), start=1 << 30),
        "the list of files in the zip is damaged: it ends at",
    ),
    "list size": (raw_zip(goods(), length=1 << 30), "the list of files in the zip is damaged: it ends at"),
    "prefix": (raw_zip(goods(), prefix=b"#!/bin/sh\n"), "10 bytes that do not belong to any file in the zip"),
    "prefix unaccounted": (b"MZ" + GOOD, "2 bytes that do not belong to any file in the zip"),
    "gap": (raw_zip(goods(), gap=bytes(99)), "99 bytes that do not belong to any file in the zip"),
    "gap between files": (
        raw_zip(goods(behind=bytes(25))),
        "25 bytes that do not belong to any file in the zip",
    ),
    "appended": (GOOD + b"more", "4 bytes of other data after the end of the zip"),
    "appended much": (
        GOOD + bytes(1 << 17),
        "the end of the zip is missing: it is truncated or foll",
    ),
    "cut comment": (raw_zip(goods(), comment=b"comment")[:-3], "the end of the zip is missing"),
    "truncated": (GOOD[: len(GOOD) // 2], "the end of the zip is missing: it is truncated"),
    "last byte gone": (GOOD[:-1], "the end of the zip is missing: it is truncated"),
    "empty file": (b"", "the file is empty (0 bytes)"),
    "empty zip": (raw_zip([]), "the zip contains no files"),
    "not a zip": (b"hello, world, this is text", "not a zip file: 'hello, w'"),
    "RAR": (b"Rar!\x1a\x07\x01\0" + bytes(99), "not a zip file: RAR"),
    "image": (encoded(picture(1)), "not a zip file: PNG"),
    "overlap": (overlapping(), "advimages/2.png: overlaps advimages/1.png"),
    "inside another": (inside(), "advimages/2.png: overlaps advimages/1.png"),
    "quoted overlap": (quoted(), "advimages/2.png: overlaps advimages/1.png"),
    "into the list": (
        raw_zip([*goods()[:3], Raw(b"advimages/4.png", packed=b"x", size=150, packed_size=150)]),
        "advimages/4.png: overlaps advimages_team.zip",
    ),
    "other local name": (
        raw_zip(goods(local_name=b"advimages/7.png")),
        "advimages/1.png: its local header and",
    ),
    "other local size": (raw_zip(goods(local_size=7)), "advimages/1.png: its local header and the list"),
    "stored sizes differ": (
        raw_zip(goods(size=7, local_size=7)),
        "advimages/1.png: its local header and the list",
    ),
    "no header there": (
        raw_zip([*goods()[:3], Raw(b"advimages/4.png", header=5)]),
        "advimages/4.png: overlaps",
    ),
    "ratio": (
        raw_zip(goods(method=8, size=400_000, packed=bytes(1000))),
        "advimages/1.png: compression ratio 400:1, limit 200:1",
    ),
    "file too long": (
        raw_zip(goods(method=8, size=1 << 31, packed_size=1 << 20)),
        f"advimages/1.png: unpacks to {1 << 31} bytes, limit {1 << 19}",
    ),
    "packed too long": (
        raw_zip(goods(method=8, size=9, packed_size=1 << 30)),
        f"advimages/1.png: unpacks to {(1 << 30) - 65536} bytes, limit {1 << 19}",
    ),
    "all too long": (
        raw_zip(goods(*(Raw(b"%d" % n, method=8, size=1 << 19, packed=bytes(5000)) for n in range(33)))),
        f"the files unpack to {33 * (1 << 19) + sum(len(f.data) for f in goods())} bytes, limit {1 << 24}",
    ),
    "longer than stated": (
        raw_zip(goods(method=8, size=100)),
        "advimages/1.png: unpacks to more than the 100 bytes stated",
    ),
    "shorter than stated": (
        raw_zip(goods(method=8, size=5000)),
        "advimages/1.png: damaged: its data is truncated",
    ),
    "stream cut": (
        raw_zip(goods(method=8, packed=entering.deflated(good(1).data)[:-9])),
        "advimages/1.png: damaged: its data is truncated",
    ),
    "stream with more behind": (
        raw_zip(goods(method=8, packed=entering.deflated(good(1).data) + b"more")),
        "advimages/1.png: damaged: its data is truncated",
    ),
    "stream without its last block": (
        raw_zip(goods(method=8, packed=unfinished(good(1).data))),
        "advimages/1.png: damaged: its data is truncated",
    ),
    "longer than stated, with the right checksum": (
        raw_zip(goods(method=8, packed=entering.deflated(good(1).data + b"more"))),
        f"advimages/1.png: unpacks to more than the {len(good(1).data)} bytes stated",
    ),
    "no deflate": (
        raw_zip(goods(method=8, packed=b"\xff" * 99)),
        "advimages/1.png: damaged: its data is truncated",
    ),
    "checksum": (
        raw_zip(goods(crc=7)),
        "advimages/1.png: damaged: its data is truncated or does not match its checksum",
    ),
    "missing": (raw_zip(goods()[1:3]), "missing: 1.png, 4.png (2 files)"),
    "macOS": (other(b"__MACOSX/advimages/._1.png"), "unexpected: __MACOSX/ (1 file of macOS or Windows)"),
}


@pytest.mark.parametrize("case", ZIPS)
def test_hostile_zip_is_refused(tmp_path, case):
    data, line = ZIPS[case]
    assert line in refused(tmp_path, data() if callable(data) else data)


def test_large_zip_is_refused_unread(tmp_path):
    with (tmp_path / "advimages_team.zip").open("wb") as file:
        file.truncate(3 << 30)  # a hole: takes no disk
    with pytest.raises(EntryError, match=f"{3 << 30} bytes, limit {1 << 30}"):
        open_entry(tmp_path / "advimages_team.zip", rules(archive=entering.Archive()))


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(EntryError, match="expected a zip file, found a folder or device"):
        open_entry(tmp_path, rules())
    with pytest.raises(EntryError, match="No such file"):
        open_entry(tmp_path / "advimages_x.zip", rules())
    os.mkfifo(tmp_path / "advimages_pipe.zip")
    with pytest.raises(EntryError, match="found a folder or device"):
        open_entry(tmp_path / "advimages_pipe.zip", rules())


def test_zip_of_another_name_is_refused(tmp_path):
    with pytest.raises(EntryError, match=r"mine.zip: expected the name advimages_TEAM.zip"):
        opened(tmp_path, GOOD, name="mine.zip")


CHANGES = st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=8)
DEFLATED = raw_zip(goods(method=8))


@given(data=st.sampled_from([GOOD, DEFLATED]), changes=CHANGES, cut=st.none() | st.integers(0, len(GOOD)))
@example(data=GOOD, changes=[(len(GOOD) - 12, 255)], cut=None)
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_random_damage_is_refused_or_harmless(tmp_path, data, changes, cut):
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    try:
        _, images = opened(tmp_path, bytes(damaged[:cut]))
    except InputError as problem:
        images = []
        assert_one_line(str(problem))
    for number, image in images:  # a date, a version, a mode: what is read is what was handed in
        np.testing.assert_array_equal(image, picture(number))


def bombs() -> dict[str, bytes]:
    """Zips of 416×416 images that try to exhaust memory or time, for rules with the usual limits."""
    head = header(416, 416)
    short = zlib.compress(bytes(9))
    texts = [chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1_000_000)))] * 250
    profile = chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(60_000_000)))
    pngs = {
        "texts": entering.SIGNATURE + head + b"".join(texts) + chunk(b"IDAT", short) + chunk(b"IEND", b""),
        "pixels": raw_png(profile, head=head, raw=bytes(70_000_000)),
        "chunks": raw_png(*[chunk(b"tEXt", b"")] * 60_000, head=head),
        "dimensions": raw_png(head=header(1 << 31, 1 << 31)),
    }
    found = {name: raw_zip([good(n, data) for n in range(1, 33)]) for name, data in pngs.items()}
    start = entering.SIGNATURE + head
    stream = entering.deflated(start + bytes(100_000_000), level=1)
    for name, size in (("liar", 800_000), ("long", 16_000_000)):
        files = [Raw(b"advimages/%d.png" % n, method=8, packed=stream, size=size) for n in range(1, 33)]
        found[name] = raw_zip(files)
    found["many"] = empties(count=0xFFFF, zip64=100_000)
    found["list"] = raw_zip([Raw(b"", listed_only=True, header=0)] * 92_000, count=4100)
    same = [Raw(b"advimages/%d.png" % n, good(1).data, listed_only=n > 1, header=0) for n in range(1, 1001)]
    found["overlap"] = raw_zip(same)
    return found


MEMORY = """
import json, sys, time
from pathlib import Path
sys.path[:0] = sys.argv[1:2]
from helpers.contest import Archive, rules
from holdfast.contest.entry import examine
usual = rules(images=1000, width=416, height=416, archive=Archive())
seconds = {}
for path in sorted(Path(sys.argv[2]).iterdir()):
    limits = usual if path.name.startswith("advimages_bomb") else rules()
    begun = time.process_time()
    if not examine(path, Path(sys.argv[3]), limits, jobs=8).problems:
        sys.exit(f"{path} was accepted")
    seconds[path.name] = time.process_time() - begun
# Of this process alone: ru_maxrss starts at the peak of its parent.
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
print(json.dumps([peak, max(seconds, key=seconds.get), max(seconds.values())]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_hostile_zips_take_less_than_200_mb(tmp_path):
    contest = entering.make_contest(tmp_path / "contest")
    (tmp_path / "zips").mkdir()
    cases = {f"advimages_bomb-{name}.zip": data for name, data in bombs().items()}
    cases |= {f"advimages_case-{n}.zip": data for n, (data, _) in enumerate(ZIPS.values())}
    for name, data in cases.items():
        (tmp_path / "zips" / name).write_bytes(data() if callable(data) else data)
    with (tmp_path / "zips" / "advimages_bomb-hole.zip").open("wb") as file:
        file.truncate(1 << 30)  # takes no disk
    tests = str(entering.Path(entering.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, tests, tmp_path / "zips", contest],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0] < 200_000  # kB
