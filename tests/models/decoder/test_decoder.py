"""The learned decoder's training in miniature: pairs, loss, gain, resuming, and the command around it."""

import sys
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from holdfast.core.fingerprint import of_file  # noqa: E402
from holdfast.data.signs import scene as signs  # noqa: E402
from holdfast.graph.session import runtime  # noqa: E402
from holdfast.stages.decode.learned import PLANES, RIM  # noqa: E402
from holdfast.train.loop import Job, Stage, fit  # noqa: E402
from models.decoder import __main__ as command  # noqa: E402
from models.decoder import make as making_it  # noqa: E402
from models.decoder.make import Gain, Order, Restorer, gains, loss, make, write  # noqa: E402
from models.decoder.pairs import SIDE, WINDOWS, draw, recoloured, turned, varied, window_row  # noqa: E402
from models.signs.pool import Pool  # noqa: E402

STAGE = Stage("windows", 4, 4, 32, 2e-3, 1e-4)


@pytest.fixture(scope="module")
def pool():
    rows = [window_row(1, index) for index in range(3)]
    return Pool({name: np.stack([row[name] for row in rows]) for name in rows[0]}, "few")


@pytest.fixture
def few(pool, monkeypatch):
    monkeypatch.setattr(making_it, "open_pool", lambda *_: pool)
    monkeypatch.setattr(making_it, "STAGES", (STAGE,))
    monkeypatch.setattr(making_it, "QUALITIES", (30,))


def test_windows_are_of_the_scene_as_it_was_before_encoding(pool):
    images = pool["images"][0]
    assert images.shape == (WINDOWS, SIDE, SIDE, 3)
    whole = signs.scene(1, 0).image
    rows = np.lib.stride_tricks.sliding_window_view(whole[:, :, 0], (SIDE, SIDE))
    for window in images:
        start = np.argwhere((rows[:, :, 0, :] == window[0, :, 0]).all(axis=2))
        assert any((whole[y : y + SIDE, x : x + SIDE] == window).all() for y, x in start)


def test_pairs_are_what_was_decoded_and_what_it_was_made_from(pool):
    seen, wanted = draw(pool, STAGE, np.random.default_rng(0))
    assert seen.shape == (4, PLANES, 16, 16)
    assert wanted.shape == (4, 3, 32, 32)
    shown = torch.nn.functional.pixel_shuffle(seen[:, :12], 2)
    away = (shown - wanted).abs().mean((1, 2, 3))
    assert (away > 0).all()
    assert (away < 0.15).all()
    again = draw(pool, STAGE, np.random.default_rng(0))
    assert torch.equal(seen, again[0])
    assert torch.equal(wanted, again[1])


def test_qualities_and_subsamplings_are_mixed(pool):
    many = Stage("windows", 1, 60, 16, 1e-3, 1e-3)
    facts = draw(pool, many, np.random.default_rng(0))[0][:, 16:, 0, 0]
    assert len(facts[:, 0].unique()) > 20
    assert facts[:, 2].unique().tolist() == [0, 1]


def test_some_windows_are_as_they_were_and_others_of_other_colours(pool):
    one, other = pool["images"][0, :2, :32, :32]
    made = [varied(one, other, np.random.default_rng(seed)) for seed in range(80)]
    assert {(m.shape, m.dtype.name) for m in made} == {((32, 32, 3), "uint8")}
    same = [np.array_equal(m, one) for m in made]
    assert 20 < sum(same) < 50
    assert len({m.tobytes() for m in made}) == 81 - sum(same)


def test_recoloured_keeps_edges_where_they_were():
    window = np.zeros((8, 8, 3), np.uint8) + np.uint8(100)
    window[:, 4:] = 160
    for seed in range(10):
        made = recoloured(window, np.random.default_rng(seed)).astype(int)
        assert (np.ptp(made[:, :4], axis=(0, 1)) == 0).all()
        assert (made[:, 3] != made[:, 4]).all()


def test_a_turned_window_has_the_same_pixels():
    window = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    seen = {turned(window, np.random.default_rng(seed)).tobytes() for seed in range(60)}
    assert len(seen) == 8
    assert all(sorted(one) == sorted(window.tobytes()) for one in seen)


def test_untrained_it_adds_nothing(pool):
    seen, wanted = draw(pool, STAGE, np.random.default_rng(1))
    shown = torch.nn.functional.pixel_shuffle(seen[:, :12], 2)
    assert torch.equal(Restorer()(seen), shown)
    want = 1000 * float((shown - wanted).square().mean())
    assert float(loss(Restorer(), (seen, wanted)).detach()) == pytest.approx(want)


def test_what_is_left_as_it_was_gains_nothing(few):
    for one in gains(Restorer(), 1, len):
        assert 25 < one.plain == one.restored < 40


def test_the_rim_is_what_the_net_sees():
    torch.manual_seed(0)
    net = Restorer()
    torch.nn.init.normal_(net.tail.weight)
    for block in net.body:
        torch.nn.init.normal_(block.second.weight)
    x = torch.rand(1, PLANES, 40, 40, dtype=torch.float32, requires_grad=True)
    net(x)[0, :, 40, 40].sum().backward()  # of the square 20, 20
    reached = torch.nonzero(x.grad.abs().sum((0, 1)))
    assert (20 - reached.min()) * 2 == RIM
    assert (reached.max() - 20) * 2 == RIM


def test_the_onnx_file_gives_what_the_net_gives_at_any_size(tmp_path):
    torch.manual_seed(0)
    net = Restorer(width=4, blocks=1)
    torch.nn.init.normal_(net.tail.weight)
    write(net, tmp_path / "restore.onnx")
    session = runtime().InferenceSession(str(tmp_path / "restore.onnx"), providers=["CPUExecutionProvider"])
    for shape in ((1, PLANES, 5, 9), (3, PLANES, 16, 8)):
        x = torch.rand(shape)
        with torch.no_grad():
            want = net(x).numpy()
        np.testing.assert_allclose(session.run(None, {"planes": x.numpy()})[0], want, atol=1e-5)


@pytest.mark.slow
def test_it_learns_to_restore_what_it_is_shown(pool, tmp_path):
    shown = draw(pool, STAGE, np.random.default_rng(2))
    torch.manual_seed(0)
    stages = (Stage("windows", 80, 4, 32, 4e-3, 1e-3, warmup=5),)
    job = Job("restore", Restorer(), lambda *_: shown, loss, stages, 0, averaging=0.0)
    net = fit(job, tmp_path / "restore.pt", len)
    assert float(loss(net, shown).detach()) < 0.98 * float(loss(Restorer(), shown).detach())


def test_made_it_is_told_with_its_gains_and_the_hash_the_decoder_names(few, tmp_path):
    said = []
    found = make(Order(tmp_path, tmp_path / "work", held_out=1), said.append)
    assert [(one.quality, one.subsampling) for one in found] == [(30, "4:2:0"), (30, "4:4:4")]
    assert any(of_file(tmp_path / "restore.onnx")[:8] in line for line in said)
    assert all(f"restore: {one}" in said for one in found)


def test_a_run_that_was_killed_ends_as_one_that_was_not(tmp_path, few, monkeypatch):
    whole = Order(tmp_path / "whole", tmp_path / "a", held_out=1)
    make(whole, len)
    write_it = making_it.fit

    def killed(job, checkpoint, say):
        def draw_until(stage, rng, count=[0]):  # noqa: B006
            count[0] += 1
            if count[0] == 4:
                raise KeyboardInterrupt
            return job.draw(stage, rng)

        return write_it(replace(job, draw=draw_until), checkpoint, say, save_every=1)

    monkeypatch.setattr(making_it, "fit", killed)
    with pytest.raises(KeyboardInterrupt):
        make(Order(tmp_path / "part", tmp_path / "b", held_out=1), len)
    assert list((tmp_path / "b").glob("*.pt"))
    monkeypatch.setattr(making_it, "fit", write_it)
    make(Order(tmp_path / "part", tmp_path / "b", held_out=1), len)
    assert of_file(tmp_path / "part" / "restore.onnx") == of_file(tmp_path / "whole" / "restore.onnx")


def test_a_gain_is_told_in_one_line():
    assert str(Gain(30, "4:2:0", 30.0, 30.456)) == "quality 30 4:2:0: 30.00 dB, +0.46 dB restored"


def test_the_command_makes_the_file(few, tmp_path, capsys):
    assert command.main(["--out", str(tmp_path), "--work", str(tmp_path / "w"), "--held-out", "1"]) == 0
    assert (tmp_path / "restore.onnx").exists()
    assert "quality 30 4:4:4" in capsys.readouterr().out


def test_missing_torch_is_told_with_the_line_that_installs_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert command.main(["--out", str(tmp_path)]) == 2
    assert "pip install 'holdfast[train]'" in capsys.readouterr().err
