"""The page of an audit: first screen, details, gates, commands, and its size."""

import base64
import hashlib
import re
from dataclasses import replace
from html import unescape

import pytest

from helpers.audit import NAMES, sample_audit
from helpers.pages import Reader
from holdfast.audit.gates import gate_of, judge
from holdfast.audit.page import SIZE_LIMIT, fitting, page, write
from holdfast.audit.pages.sections import LISTED
from holdfast.audit.result import NO_THREAT, TRAINED, Audit, Clean, Matrix, MatrixCell, NoiseResult
from holdfast.core.errors import OutputError
from holdfast.report.parts import Figure, Section
from holdfast.stages.families import option

BARE = Audit({"name": "net"}, {"name": "data"}, Clean("top1", "top-1", 0.5, None, None, 10, "top-1"))


def plain(text):
    """The words of a page, without tags and with plain spaces."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", text)).replace("\u00a0", " "))


@pytest.mark.parametrize("audit", [sample_audit(), BARE])
def test_the_page_is_well_formed_and_loads_nothing(audit):
    text = page(audit)
    reader = Reader(text)
    assert len(reader.all("h1")) == 1
    identifiers = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(identifiers) == len(set(identifiers))
    assert {a["href"][1:] for a in reader.all("a")} <= set(identifiers)
    assert {"verdict", "bounds", "matrix", "about"} <= set(identifiers)
    for _, attrs in reader.tags:
        assert "style" not in attrs  # the policy would refuse it
        assert not [name for name in attrs if name.startswith("on")]
        for name in ("src", "href", "action"):
            assert name not in attrs or attrs[name].startswith(("#", "data:"))
    assert not re.search(r"https?:|@import|url\(|//[a-z]+\.", text)
    for svg in reader.all("svg"):
        assert svg.get("role") == "img" or svg.get("aria-hidden") == "true"


def test_the_policy_allows_exactly_the_style_and_script_of_the_page():
    text = page(sample_audit())
    policy = next(a["content"] for a in Reader(text).all("meta") if "http-equiv" in a)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (body,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy


def test_hostile_names_stay_text():
    evil = '<script>alert(1)</script><img src=x onerror="alert(2)">'
    audit = sample_audit()
    audit = replace(
        audit,
        model={**audit.model, "name": evil},
        noises=tuple(replace(c, label=f"resize={evil}", note=evil, command=evil) for c in audit.noises),
        proofs=tuple(replace(p, image=evil, note=evil) for p in audit.proofs),
        bounds=tuple(replace(x, words=evil, threat=evil) for x in audit.bounds),
        matrix=Matrix(
            (NO_THREAT, evil), (TRAINED, evil), (MatrixCell(evil, evil, None, 0, note=evil, command=evil),)
        ),
        notes=(evil,),
    )
    reader = Reader(page(audit))
    assert len(reader.all("script")) == 1
    assert reader.all("img") == []
    assert not any("onerror" in attrs for _, attrs in reader.tags)


def test_the_matrix_is_a_table_with_every_number_and_headings():
    text = page(sample_audit())
    table = re.search(r'<table class="heat">.*?</table>', text, re.DOTALL).group()
    reader = Reader(table)
    assert [th["scope"] for th in reader.all("th")].count("row") == 4
    assert [th["scope"] for th in reader.all("th")].count("col") == 4  # with the corner
    audit = sample_audit()
    numbers = [f"{m.value:.3f}" if m.value is not None else "–" for m in audit.matrix.cells]
    assert [t.strip() for t in reader.texts("b")] == numbers
    assert table.count("breaks 4/5") == 5
    assert "not run" in table
    assert "– not run: square under precision=int8: no images left to calibrate on." in plain(text)
    steps = [td["class"] for td in reader.all("td")]
    assert steps[0] == "h0"
    assert steps[-1] == "h6"  # 0.25 of 0.91: more than half is lost
    assert "none" in steps


def test_figures_of_few_images_are_grey_and_called_an_indication():
    text = page(sample_audit())
    assert re.findall(
        r'<li class="\w+( few)?">\s*<svg.*?<h3>(.*?)</h3><p class="word">(.*?)<', text, re.DOTALL
    ) == [
        ("", "Clean mAP@.5", "AP rule VOC"),
        ("", "Worst single noise", "significant"),
        ("", "Combined noise", "significant"),
        (" few", "Smallest attack", "indication"),
        (" few", "Proofs", "indication"),
    ]
    assert "exactly 5 of 8 images, indication" in plain(text)
    many = tuple(replace(b, per_image=b.per_image * 3) for b in sample_audit().bounds)
    assert "images, indication" not in plain(page(replace(sample_audit(), bounds=many)))


def test_a_broad_matrix_shows_signs_and_says_the_words():
    names = (TRAINED, *(f"resize=vendor-{i}" for i in range(11)), "resize=a + boxes=b + ceil=c")
    met = tuple(MatrixCell(t, d, 0.5, 8, 5, 4, 10.0, 5.0, 15.0) for t in (NO_THREAT, "square") for d in names)
    text = page(replace(sample_audit(), matrix=Matrix((NO_THREAT, "square"), names, met)))
    table = re.search(r'<table class="heat dense">.*?</table>', text, re.DOTALL).group()
    assert '<span class="unseen">magnified</span>' in table
    assert '<span class="unseen">breaks 4/5</span>' in table
    assert "3 combined" in table
    assert "3 combined: resize=a, boxes=b, ceil=c." in plain(text)
    assert "▲ magnified: more points lost" in plain(text)
    assert "overlaps" not in plain(text)


def test_notes_of_the_matrix_stand_below_it():
    matrix = replace(sample_audit().matrix, notes=("2 of 8 images are skipped in all cells: calibrated on",))
    said = plain(page(replace(sample_audit(), matrix=matrix)))
    assert "2 of 8 images are skipped in all cells: calibrated on." in said


def test_few_images_magnify_nothing():
    names, threats = (TRAINED, "precision=int8"), (NO_THREAT, "square")
    met = tuple(MatrixCell(t, d, 0.5, 4, 4, 4, 50.0, 50.0, 50.0) for t in threats for d in names)
    said = plain(page(replace(sample_audit(), matrix=Matrix(threats, names, met))))
    assert "magnified" not in said
    assert "With fewer than 5 images, interactions of threat and deployment are not judged." in said


def test_what_changes_nothing_is_counted_and_not_drawn():
    still = NoiseResult("decode=ffmpeg", "decode", "measured", 0.0, 0.0, 0.0, 0, 40, value=0.9)
    said = plain(page(replace(sample_audit(), noises=(*sample_audit().noises, still))))
    assert "1 option without a changed prediction not shown." in said
    assert "decode=ffmpeg 0.00 [0.00, 0.00] 0.900 no effect 0 of 40" in said


def test_what_was_not_measured_is_said_and_nothing_else():
    said = plain(page(BARE))
    assert said.count("not measured") >= 4
    assert "Nothing is proven." in said
    assert "✓" not in said


def test_every_command_of_the_verdict_and_of_the_tables_is_on_the_page():
    audit = sample_audit()
    said = plain(page(audit))
    for command in (
        audit.command,
        audit.clean.command,
        audit.noises[0].command,
        audit.attacks[0].command,
        audit.matrix.cells[0].command,
    ):
        assert command in said


def test_a_finding_is_told_in_words():
    said = plain(page(sample_audit()))
    assert "certified for the training pipeline, violated under precision=int8" in said
    assert "3 answers rechecked under other runtimes and precisions; 1 changed." in said
    calm = replace(sample_audit(), rechecks=sample_audit().rechecks[1:])
    assert "No answer changed in 2 rechecks" in plain(page(calm))


def test_gates_are_shown_with_value_and_reason():
    gates = [
        gate_of("clean.map50 < 0.5"),
        gate_of("noise.map50.points_lost > 2"),
        gate_of("verify.violated > 0"),
    ]
    values = {"clean.map50": 0.91, "noise.map50.points_lost": 5.0}
    said = plain(page(sample_audit(), (), judge(gates, values)))
    assert "Gates 2 failed, 1 passed" in said
    assert "passed fails if clean.map50 < 0.5 measured 0.91" in said
    assert "failed fails if noise.map50.points_lost > 2 measured 5" in said
    assert "failed fails if verify.violated > 0 not measured" in said
    assert "Gates 1 passed" in plain(page(sample_audit(), (), judge(gates[:1], values)))
    ends = plain(page(sample_audit(), (), judge(gates, sample_audit())))
    assert "passed fails if noise.map50.points_lost > 2 lower end 2 of 5; n = 40; resize=opencv" in ends
    few = plain(page(sample_audit(), (), judge([gate_of("attack.1000px.Se > 0.5")], sample_audit())))
    assert "Gates 1 not decided" in few
    assert re.search(r"not decided fails if attack.1000px.Se > 0.5 measured 0.86\d+; n = 8 < 20", few)
    assert 'id="gates"' not in page(sample_audit())


def test_long_tables_are_cut_and_the_rest_counted():
    proof = sample_audit().proofs[0]
    audit = replace(
        sample_audit(), proofs=tuple(replace(proof, image=f"n{i}.png") for i in range(LISTED + 7))
    )
    text = page(audit)
    assert "7 more rows are in audit.json." in text
    assert f"n{LISTED - 1}.png" in text
    assert f"n{LISTED}.png" not in text


def section(name, *sizes):
    return Section(name, name.title(), tuple(Figure(f"{name} {n}", "x" * n) for n in sizes))


def test_what_does_not_fit_is_dropped_and_named(tmp_path):
    given = [section("maps", 3_000_000, 3_000_000, 1000), section("curves", 500), section("huge", SIZE_LIMIT)]
    out = write(sample_audit(), tmp_path / "report.html", given)
    text = out.read_text("utf-8")
    assert out.stat().st_size <= SIZE_LIMIT
    assert "Dropped to keep this page below 5 MB: Maps: 1 of 3 figures; Huge: 1 of 1 figures" in text
    assert 'id="curves"' in text
    assert 'id="huge"' not in text
    whole, nothing = fitting(given[1:2], 10_000)
    assert whole == given[1:2]
    assert nothing == ()


def test_sections_of_others_come_before_the_last_and_under_their_own_names():
    text = page(sample_audit(), [section("about", 5), section("matrix", 5), section("curves", 5)])
    order = [attrs["id"] for attrs in Reader(text).all("section") if "id" in attrs]
    assert order[-6:] == ["about", "matrix-2", "curves", "images", "cells", "about-2"]


def test_failed_images_are_the_first_thing_said():
    text = page(replace(sample_audit(), failed=("a.png: truncated", "b.png: empty")))
    assert "2 images failed and not included in any number" in text
    assert text.index("2 images failed") < text.index('id="verdict"')
    assert "a.png: truncated" in text


def test_the_bounds_are_listed_for_every_image():
    said = plain(page(sample_audit()))
    assert f"{NAMES[0]} ✕ broken ✕ broken" in said
    assert f"{NAMES[7]} ✓ certified ? unknown" in said
    assert "exactly 5 of 8 images" in said
    assert "0 to 1 of 8 images" in said
    assert "certified by: –; attacked with: gradient" in said


def test_a_folder_is_no_page(tmp_path):
    with pytest.raises(OutputError, match="is a folder"):
        write(sample_audit(), tmp_path)


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def tokens_of(style):
    """The colours of the light and of the dark scheme, by name."""
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in style.split("@media")[:2]]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1])
def test_every_field_of_the_heat_map_and_part_of_the_bounds_is_legible(scheme):
    style = re.search(r"<style>(.*?)</style>", page(BARE), re.DOTALL).group(1)
    tokens = tokens_of(style)[scheme]
    used = dict(re.findall(r"\.h(\d) \{ background: var\(--h\d\); color: var\(--([\w-]+)\)", style))
    assert len(used) == 8
    pairs = [(f"h{step}", ink) for step, ink in used.items()]
    pairs += [("right", "on"), ("wrong", "on"), ("soft", "ink")]  # proven, broken, unknown
    for ground, ink in pairs:
        assert contrast(tokens[ground], tokens[ink]) >= 4.5, (scheme, ground, ink)


def test_every_noise_is_told_in_words():
    text = plain(page(sample_audit()))
    assert "resize=opencv-nearest" in text
    assert option("resize=opencv-nearest").summary.rstrip(".") in text
    own = replace(
        sample_audit(), noises=(NoiseResult("mine=fog", "mine", "measured", 10.0, 5.0, 20.0, 3, 40),)
    )
    assert "mine=fog" in plain(page(own))


def test_parts_without_results_are_collapsed_with_the_reason():
    audit = replace(sample_audit(), proofs=(), rechecks=(), attacks=(), bounds=())
    text = page(audit)
    for name in ("budgets", "proofs", "rechecks", "images"):
        section = text.split(f'<section id="{name}" class="short"')[1].split("</section>")[0]
        assert '<details class="empty">' in section
        assert "Not measured: " in section
        assert f'<a href="#{name}">' in text
    assert '<section id="noises" class="short"' not in text
