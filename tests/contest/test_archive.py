"""Hostile zips and pictures, one by one: each is refused in one line, and nothing is written."""

import os
import stat
import struct
import subprocess
import sys
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from helpers import contest as entering
from helpers.contest import Raw, chunk, encoded, good, goods, picture, raw_png, raw_zip, rules
from holdfast.contest.entry.archive import EntryError, open_entry
from holdfast.core.errors import InputError

GOOD = raw_zip(goods())


def opened(folder, data, name="advimages_team.zip", **changes):
    path = folder / name
    path.write_bytes(data)
    entry = open_entry(path, rules(**changes))
    return entry, list(entry.images())


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
    assert len(entry) == 4
    assert [number for number, _ in images] == [1, 2, 3, 4]
    for number, image in images:
        np.testing.assert_array_equal(image, picture(number))


@pytest.mark.parametrize(
    "data",
    [
        raw_zip(goods(method=8)),
        raw_zip([Raw(b"advimages/", mode=0o40755), *goods()]),
        raw_zip(goods(), comment=b"made by hand"),
        raw_zip(goods(flags=8, local_size=0, behind=b"PK\7\x08" + bytes(12))),
        raw_zip(goods(mode=0)),
    ],
    ids=["deflate", "folder entry", "comment", "figures behind the data", "no mode"],
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
        assert len(list(open_entry(path, rules()).images())) == 4


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
    "absolute path": (other(b"/etc/passwd"), "/etc/passwd: an absolute path; expected advimages/N.png"),
    "parent": (
        other(b"advimages/../../x"),
        "advimages/../../x: a path with '..', '.' or '//'; expected advi",
    ),
    "empty part": (other(b"advimages//1.png"), "advimages//1.png: a path with '..', '.' or '//'"),
    "backslash": (other(b"..\\x.png"), "..\\x.png: a path with a backslash"),
    "drive": (other(b"C:/x.png"), "C:/x.png: a path with a drive letter"),
    "stream": (other(b"advimages/1.png:x"), "advimages/1.png:x: a path with a drive letter or ':'"),
    "nul": (other(b"advimages/1.png\0.exe"), "advimages/1.png\\x00.exe: a name with control characters"),
    "escape": (other(b"\x1b[2J"), "\\x1b[2J: a name with control characters"),
    "no name": (other(b""), "'': a name with control characters, of unreadable bytes or longer than 255"),
    "long name": (other(b"a" * 60_000), "…aaaaaaaaaaaaaaaa: a name with control characters"),
    "not utf-8": (other(b"\xff\xfe.png", flags=1 << 11), "ÿþ.png: a name with control characters, of unr"),
    "two names": (
        raw_zip(goods(extra=struct.pack("<HHBI", 0x7075, 10, 1, 0) + b"x.png")),
        "advimages/1.png: carries two different names",
    ),
    "link": (
        other(b"advimages/l", mode=stat.S_IFLNK | 0o777),
        "advimages/l: a symbolic link; expected a file",
    ),
    "device": (other(b"dev", mode=stat.S_IFCHR | 0o600), "dev: a device, pipe or the like; expected a file"),
    "pipe": (other(b"pipe", mode=stat.S_IFIFO | 0o600), "pipe: a device, pipe or the like"),
    "folder as file": (other(b"advimages/9", mode=stat.S_IFDIR | 0o700), "advimages/9: a device, pipe or"),
    "folder with data": (other(b"advimages/"), "advimages/: a folder that holds data"),
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
    "pickle": (other(b"advimages/net.pt"), "unexpected: advimages/net.pt (1 file); expected nothing but"),
    "too many files": (
        raw_zip([Raw(b"%d" % n) for n in range(117)]),
        "117 files in the zip, limit 116",
    ),
    "100,000 empty files": (
        lambda: empties(count=0xFFFF, zip64=100_000),
        "100000 files in the zip, limit 116",
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
        "the list of files in the zip is damaged: file 5 of 5 cannot be read",
    ),
    "count too small": (
        raw_zip(goods(), count=3),
        "the list of files in the zip is damaged: 244 bytes for 3 files",
    ),
    "zip64": (raw_zip(goods(), zip64=4), "a zip64 archive; expected a plain zip"),
    "zip64 far away": (raw_zip(goods(), zip64=1 << 60), f"{1 << 60} files in the zip, limit 116"),
    "zip64 list size": (raw_zip(goods(), length=0xFFFFFFFF), "a zip64 archive"),
    "zip64 file size": (raw_zip(goods(size=0xFFFFFFFF)), "a zip64 archive"),
    "zip64 field": (raw_zip(goods(extra=struct.pack("<HHQ", 1, 8, 1 << 60))), "a zip64 archive"),
    "several parts": (raw_zip(goods(), disk=1), "one part of a zip in several parts"),
    "file in another part": (raw_zip(goods(disk=2)), "one part of a zip in several parts"),
    "list out of the file": (
        raw_zip(goods(), start=1 << 30),
        "the list of files in the zip is damaged: it ends at",
    ),
    "list size": (raw_zip(goods(), length=1 << 30), "the list of files in the zip is damaged: it ends at"),
    "prefix": (raw_zip(goods(), prefix=b"#!/bin/sh\n"), "10 bytes that belong to no file of the zip"),
    "prefix unaccounted": (b"MZ" + GOOD, "2 bytes that belong to no file of the zip"),
    "gap": (raw_zip(goods(), gap=bytes(99)), "99 bytes that belong to no file of the zip"),
    "gap between files": (raw_zip(goods(behind=bytes(25))), "25 bytes that belong to no file of the zip"),
    "appended": (GOOD + b"more", "4 bytes of other data behind the end of the zip"),
    "appended much": (GOOD + bytes(1 << 17), "a zip without its end: cut off, or followed by other data"),
    "cut comment": (raw_zip(goods(), comment=b"comment")[:-3], "a zip without its end"),
    "truncated": (GOOD[: len(GOOD) // 2], "a zip without its end: cut off"),
    "last byte gone": (GOOD[:-1], "a zip without its end: cut off"),
    "empty file": (b"", "the file is empty (0 bytes)"),
    "empty zip": (raw_zip([]), "the zip holds no files"),
    "not a zip": (b"hello, world, this is text", "not a zip file: 'hello, w'"),
    "RAR": (b"Rar!\x1a\x07\x01\0" + bytes(99), "not a zip file: RAR"),
    "image": (encoded(picture(1)), "not a zip file: PNG"),
    "overlap": (overlapping(), "advimages/2.png: shares its bytes with advimages/1.png"),
    "inside another": (inside(), "advimages/2.png: shares its bytes with advimages/1.png"),
    "into the list": (
        raw_zip([*goods()[:3], Raw(b"advimages/4.png", packed=b"x", size=150, packed_size=150)]),
        "advimages/4.png: shares its bytes with advimages_team.zip",
    ),
    "other local name": (
        raw_zip(goods(local_name=b"advimages/7.png")),
        "advimages/1.png: its own header and",
    ),
    "other local size": (raw_zip(goods(local_size=7)), "advimages/1.png: its own header and the list"),
    "stored sizes differ": (
        raw_zip(goods(size=7, local_size=7)),
        "advimages/1.png: its own header and the list",
    ),
    "no header there": (
        raw_zip([*goods()[:3], Raw(b"advimages/4.png", header=5)]),
        "advimages/4.png: shares",
    ),
    "ratio": (
        raw_zip(goods(method=8, size=400_000, packed=bytes(1000))),
        "advimages/1.png: packed 400 to 1, limit 200 to 1",
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
        "advimages/1.png: the packed data is cut off",
    ),
    "stream cut": (
        raw_zip(goods(method=8, packed=entering.deflated(good(1).data)[:-9])),
        "advimages/1.png: the packed data is cut off or damaged",
    ),
    "stream with more behind": (
        raw_zip(goods(method=8, packed=entering.deflated(good(1).data) + b"more")),
        "advimages/1.png: the packed data is cut off or damaged",
    ),
    "no deflate": (
        raw_zip(goods(method=8, packed=b"\xff" * 99)),
        "advimages/1.png: the packed data is cut off",
    ),
    "checksum": (raw_zip(goods(crc=7)), "advimages/1.png: damaged: the checksum in the zip differs"),
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
    with pytest.raises(EntryError, match=r"mine.zip: the zip's name: expected advimages_TEAM.zip"):
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


MEMORY = """
import sys
from pathlib import Path
from holdfast.contest.entry.archive import EntryError, open_entry
import numpy, PIL.Image, holdfast.data.images
sys.path.insert(0, sys.argv[1])
from helpers.contest import rules
from holdfast.contest.rules import Archive
limits = rules(archive=Archive())
def peak():  # the process's own; what getrusage tells begins at its parent's
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak()
for path in sorted(Path(sys.argv[2]).iterdir()):
    try:
        list(open_entry(path, limits).images())
    except EntryError:
        continue
    sys.exit(f"{path} was taken")
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is asked of Linux")
def test_the_worst_ones_take_little_memory(tmp_path):
    (tmp_path / "advimages_many.zip").write_bytes(empties(count=0xFFFF, zip64=100_000))
    (tmp_path / "advimages_overlap.zip").write_bytes(overlapping())
    bomb = raw_png(chunk(b"iCCP", b"x\0\0" + zlib.compress(bytes(60_000_000))), raw=bytes(70_000_000))
    (tmp_path / "advimages_bomb.zip").write_bytes(raw_zip(goods(data=bomb)))
    # Said to be 10 MB, unpacks to 100 MB.
    stream = entering.deflated(bytes(100_000_000), level=1)
    liar = raw_zip(goods(method=8, packed=stream, size=10_000_000))
    (tmp_path / "advimages_liar.zip").write_bytes(liar)
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, tests, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40_000  # kB above what Python, numpy and Pillow take by themselves
