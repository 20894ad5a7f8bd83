"""Checking a folder: what a position really does, and each thing that may be wrong with it."""

import gzip
import json
import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from holdfast.graph.inspect import read_proto
from holdfast.patchbench.check import check_bench
from holdfast.patchbench.folder import listed, open_benchmark
from holdfast.patchbench.probe import effect_of, open_probe


def kinds(folder):
    return {finding.kind for finding in check_bench(listed(folder)).findings}


def edited(path, old, new):
    text = path.read_text()
    assert re.search(old, text), old
    path.write_text(re.sub(old, new, text))


def a_spec(folder):
    return sorted((folder / "vnnlib").iterdir())[0]


def test_what_make_wrote_is_well(bench, holdfast, tmp_path):
    folder = bench("--patch", 1, "--patch", 3)
    done = holdfast("patchbench", "check", folder, "--json", tmp_path / "out.json")
    assert done.code == 0, done
    assert "a 3×3 patch in all colours, set to 0, its left side at column = first value" in done.out
    assert "fractions are cut off" in done.out
    assert " outputs recomputed, largest difference" in done.out
    assert done.out.endswith("no problems\n")
    content = json.loads((tmp_path / "out.json").read_text())
    assert content["well"] is True
    assert content["findings"] == []


@pytest.mark.parametrize("side", [9, 13, 16])
def test_a_patch_that_always_covers_the_middle_is_well_too(bench, holdfast, side):
    done = holdfast("patchbench", "check", bench("--patch", side))
    assert done.code == 0, done
    if side < 16:  # else there is only one position
        assert f"a {side}×{side} patch in all colours, set to 0, its left side at column = first" in done.out


def test_wrong_ranges_are_found(bench, holdfast):
    folder = bench("--patch", 1)
    edited(a_spec(folder), r"\(<= X_768 15.0\)", "(<= X_768 14.0)")
    edited(a_spec(folder), r"\(>= X_769 0.0\)", "(>= X_769 2.0)")
    done = holdfast("patchbench", "check", folder)
    assert done.code == 1
    assert "column 0 to 14; a 1×1 patch fits at 0 to 15: column 15 is never tried" in done.out
    assert "row 2 to 15; a 1×1 patch fits at 0 to 15: it should begin at 0" in done.out
    assert "stale file: vnnlib/" in done.out


def test_a_patch_that_leaves_the_picture_is_found(bench, holdfast):
    folder = bench("--patch", 3)
    edited(a_spec(folder), r"\(<= X_768 13.0\)", "(<= X_768 14.0)")
    assert "fits at 0 to 13: beyond it the patch is cut off" in holdfast("patchbench", "check", folder).out


def test_other_targets_pictures_rules_and_thresholds_are_found(bench):
    folder = bench("--patch", 1)
    first, second = sorted((folder / "vnnlib").iterdir())
    edited(first, r"X_774 1.0\)", "X_774 0.75)")
    edited(second, r"\(<= Y_0 0.5\)", "(< Y_0 0.4)")
    edited(second, r"X_5 1.0\)", "X_5 0.5)")
    found = kinds(folder)
    assert {"stale file", "other target", "clean output not 1"} <= found
    assert {"other threshold", "other rule", "other picture"} <= found


def test_missing_and_unlisted_files_are_found(bench, holdfast):
    folder = bench("--patch", 1)
    spec = a_spec(folder)
    spec.rename(spec.with_name("else.vnnlib"))
    (folder / "images" / sorted(p.name for p in (folder / "images").iterdir())[1]).unlink()
    done = holdfast("patchbench", "check", folder)
    assert done.code == 1
    assert f"missing file: instances.csv:1: no vnnlib/{spec.name} (nor" in done.out
    assert "not listed: vnnlib/else.vnnlib" in done.out
    assert "not in the manifest: vnnlib/else.vnnlib" in done.out
    assert "missing image" in done.out


def test_a_network_that_computes_something_else_is_found(bench):
    folder = bench("--patch", 1)
    path = folder / "onnx" / "patch-1.onnx"
    proto = onnx.load(path)
    weight = next(w for w in proto.graph.initializer if w.name == "wb")
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) * np.float32(0.5), "wb"))
    onnx.save(proto, path)
    assert {"stale file", "clean output not 1"} <= kinds(folder)


def swapped(path):
    """The network with its two position values exchanged, as a bug would."""
    proto = onnx.load(path)
    cast = next(n for n in proto.graph.node if n.op_type == "Cast")
    order = numpy_helper.from_array(np.array([1, 0]), "order")
    proto.graph.initializer.append(order)
    turned = onnx.helper.make_node("Gather", [cast.input[0], "order"], ["turned"])
    at = list(proto.graph.node).index(cast)
    proto.graph.node.insert(at, turned)
    proto.graph.node[at + 1].input[0] = "turned"
    onnx.save(proto, path)


def test_exchanged_rows_and_columns_are_found(bench, holdfast):
    folder = bench("--patch", 3)
    swapped(folder / "onnx" / "patch-3.onnx")
    done = holdfast("patchbench", "check", folder)
    assert done.code == 1
    assert (
        "rows and columns swapped: all colour channels, rows first to first + 2, columns second" in done.out
    )


def test_folders_that_are_none_are_one_line(fails, tmp_path, bench):
    assert "expected a benchmark folder with instances.csv" in fails("patchbench", "check", tmp_path / "no")
    (tmp_path / "instances.csv").write_text("a,b\n")
    assert "instances.csv:1: expected network,specification,seconds" in fails("patchbench", "check", tmp_path)
    folder = bench()
    (folder / "manifest.json").write_text("{")
    assert "manifest.json: expected JSON" in fails("patchbench", "check", folder)
    (folder / "manifest.json").write_text('{"kind": "holdfast patch benchmark", "format": 1}')
    assert "manifest.json: expected a whole manifest of format 1" in fails("patchbench", "check", folder)


def test_without_a_manifest_and_packed_it_is_read_all_the_same(bench):
    folder = bench("--patch", 3)
    (folder / "manifest.json").unlink()
    for path in [*(folder / "onnx").iterdir(), *(folder / "vnnlib").iterdir()]:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    result = check_bench(open_benchmark(folder))
    assert result.findings == ()
    assert "0 of 20 outputs differ from those of a black square laid by numpy" in "\n".join(result.facts)


@pytest.mark.parametrize("side", [1, 3])
def test_the_published_networks_blank_rows_of_a_colour_channel(shared_data, side):
    packed = shared_data / "vnncomp" / "cctsdb_yolo" / "onnx" / f"patch-{side}.onnx.gz"
    probe = open_probe(read_proto(packed), 12296)
    places = (0, 1, 2, 3, 4, 20, 31, 45, 60, 61, 62)
    effect = effect_of(probe, np.zeros(12296, np.float32), places, places)
    assert effect.drivers == {"channel": "first", "row": "second", "column": "all"}
    assert effect.patch == (side, side)
    assert "rows of a colour channel" in str(effect)
    assert "nothing for the first coordinate ≥ 3" in str(effect)


def test_the_published_folder_has_these_faults(shared_data, tmp_path):
    source = shared_data / "vnncomp" / "cctsdb_yolo"
    for part in ("onnx", "vnnlib", "dataset"):
        (tmp_path / part).symlink_to(source / part)
    lines = (source / "instances.csv").read_text().splitlines()
    chosen = [line for line in lines if "01673_0" in line or "00559_0" in line]
    (tmp_path / "instances.csv").write_text("\n".join(chosen) + "\n")
    result = check_bench(open_benchmark(tmp_path))
    said = "\n".join(str(finding) for finding in result.findings)
    assert "column 0 to 62; a 1×1 patch fits at 0 to 63: column 63 is never tried" in said
    assert "row 0 to 62; a 3×3 patch fits at 0 to 61: beyond it the patch is cut off" in said
    assert "idx_01673_0.vnnlib: the output without a patch is 0.97754" in said
    assert "rows of a colour channel: colour channels first to first + 2, rows second to second + 2" in said
    assert "pictures are in BGR order" in "\n".join(result.facts)
    assert "idx_01673_0.vnnlib: its picture differs from the image by up to 16 of 255" in said
    assert not {"other target", "missing image", "missing label"} & {f.kind for f in result.findings}
