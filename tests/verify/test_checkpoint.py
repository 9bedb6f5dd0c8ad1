"""`amp-migrate checkpoint`: the mapping, the refusals, and that nothing else moves."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from amp_migrate.checkpoint import CheckpointError, convert
from amp_migrate.cli.checkpoint import command


def apex_state(*scalers: tuple[float, int]) -> OrderedDict[str, dict[str, Any]]:
    return OrderedDict(
        (f"loss_scaler{i}", {"loss_scale": scale, "unskipped": unskipped})
        for i, (scale, unskipped) in enumerate(scalers)
    )


def native(scale: float, tracker: int) -> dict[str, Any]:
    return {
        "scale": scale,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": tracker,
    }


@pytest.fixture
def training() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    return model, optimizer


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments])


def save(path: Path, value: object) -> Path:
    torch.save(value, path)
    return path


def same(a: Any, b: Any, path: str = "") -> None:
    """Equal types, keys in equal order, tensors equal bit for bit with equal dtype."""
    assert type(a) is type(b), path
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype, path
        assert torch.equal(a, b), path
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}.{i}")
    else:
        assert a == b, path


def test_a_usual_checkpoint(tmp_path: Path, training: Any) -> None:
    model, optimizer = training
    content = {"epoch": 3, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "best": 0.5}
    source = save(tmp_path / "old.pt", {**content, "amp": apex_state((32768.0, 17)), "args": {"lr": 0.1}})
    before = source.read_bytes()

    result = run(source, tmp_path / "new.pt")

    assert result.exit_code == 0
    assert "amp.loss_scaler0 -> scaler: scale 32768, growth tracker 17 of 2000" in result.output
    assert source.read_bytes() == before
    converted = torch.load(tmp_path / "new.pt", weights_only=True)
    same(converted, {**content, "scaler": native(32768.0, 17), "args": {"lr": 0.1}})
    assert converted["model"]._metadata == model.state_dict()._metadata  # type: ignore[attr-defined]


def test_the_native_scaler_continues_where_apex_was(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((4096.0, 1999))})
    assert run(source, tmp_path / "new.pt").exit_code == 0
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(torch.load(tmp_path / "new.pt", weights_only=True)["scaler"])
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.0)

    def step(factor: float) -> float:
        optimizer.zero_grad()
        scaler.scale(weight.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    assert step(1.0) == 8192.0  # the 2000th clean step doubles the scale, as in Apex
    assert step(float("inf")) == 4096.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"state": {"trainer": {"amp": apex_state((2.0, 1))}}}, {"state": {"trainer": {"scaler": native(2.0, 1)}}}),
        ({"a": [0, {"amp": apex_state((2.0, 1)), "z": 1}]}, {"a": [0, {"scaler": native(2.0, 1), "z": 1}]}),
        ({"apex_amp": apex_state((2.0, 1))}, {"scaler": native(2.0, 1)}),
        ([1, apex_state((2.0, 1))], [1, OrderedDict(native(2.0, 1))]),
        ((1, apex_state((2.0, 1))), (1, OrderedDict(native(2.0, 1)))),
        (apex_state((2.0, 1)), native(2.0, 1)),
    ],
    ids=["nested", "in a list", "another key", "list element", "tuple element", "bare"],
)
def test_wherever_the_state_lies(before: Any, after: Any) -> None:
    converted, done = convert(before)
    same(converted, after)
    assert len(done) == 1


def test_several_scalers_keep_their_order(tmp_path: Path) -> None:
    scalers = [(2.0**i, i) for i in range(12)]  # loss_scaler10 sorts after loss_scaler9
    source = save(tmp_path / "old.pt", {"amp": apex_state(*scalers), "epoch": 1})
    assert run(source, tmp_path / "new.pt").exit_code == 0
    converted = torch.load(tmp_path / "new.pt", weights_only=True)
    assert list(converted) == ["scaler", *(f"scaler{i}" for i in range(1, 12)), "epoch"]
    assert converted["scaler"] == native(1.0, 0)
    assert converted["scaler10"] == native(1024.0, 10)


def test_several_scalers_can_be_put_into_a_list(tmp_path: Path) -> None:
    checkpoint = {"amp": apex_state((8.0, 1), (16.0, 2)), "epoch": 3}
    result = run(save(tmp_path / "in.pt", checkpoint), tmp_path / "out.pt", "--list")
    assert result.exit_code == 0, result.output
    assert "amp.loss_scaler1 -> scaler[1]" in result.output
    same(torch.load(tmp_path / "out.pt"), {"scaler": [native(8.0, 1), native(16.0, 2)], "epoch": 3})
    assert convert(apex_state((8.0, 1)), as_list=True)[0] == [native(8.0, 1)]
    with pytest.raises(CheckpointError, match="no list can take its place"):
        convert([apex_state((8.0, 1))], as_list=True)


def test_two_apex_states_in_one_file() -> None:
    converted, done = convert({"g": {"amp": apex_state((2.0, 0))}, "d": {"amp": apex_state((4.0, 9))}})
    assert converted == {"g": {"scaler": native(2.0, 0)}, "d": {"scaler": native(4.0, 9)}}
    assert [c.source for c in done] == ["d.amp.loss_scaler0", "g.amp.loss_scaler0"]


@given(st.integers(-10, 24), st.integers(0, 1999))
def test_every_dynamic_state_maps_exactly(exponent: int, unskipped: int) -> None:
    converted, done = convert({"amp": apex_state((2.0**exponent, unskipped))})
    assert converted == {"scaler": native(2.0**exponent, unskipped)}
    assert not done[0].static


def test_a_count_past_the_window_proves_a_static_scale() -> None:
    converted, done = convert({"amp": apex_state((128.0, 2000))})
    assert done[0].static
    scaler = torch.amp.GradScaler("cpu")
    scaler.load_state_dict(converted["scaler"])
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(weight.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 128.0


def test_static_and_window_can_be_told(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((128.0, 7))})
    assert run(source, tmp_path / "a.pt", "--static").exit_code == 0
    state = torch.load(tmp_path / "a.pt", weights_only=True)["scaler"]
    assert (state["growth_factor"], state["backoff_factor"], state["scale"]) == (1.0, 1.0, 128.0)
    assert run(source, tmp_path / "b.pt", "--growth-interval", 500).exit_code == 0
    state = torch.load(tmp_path / "b.pt", weights_only=True)["scaler"]
    assert (state["growth_interval"], state["_growth_tracker"]) == (500, 7)


def test_ddp_prefixes_and_shared_storage_stay(tmp_path: Path) -> None:
    weight = torch.arange(6.0)
    model = OrderedDict({"module.encoder.weight": weight, "module.decoder.weight": weight[2:4], "module.half": weight})
    source = save(tmp_path / "old.pt", {"model": model, "amp": apex_state((1.0, 0))})
    assert run(source, tmp_path / "new.pt").exit_code == 0
    loaded = torch.load(tmp_path / "new.pt", weights_only=True)["model"]
    assert list(loaded) == list(model)
    loaded["module.half"][2] = 100.0
    assert loaded["module.encoder.weight"][2] == 100.0
    assert loaded["module.decoder.weight"][0] == 100.0


def test_the_device_of_each_tensor_is_kept(tmp_path: Path) -> None:
    """A checkpoint written on a GPU is converted on a machine without one."""
    from torch import serialization

    gpu_storage = torch.ones(3)
    pointer = gpu_storage.untyped_storage().data_ptr()

    def tag(storage: Any) -> str | None:
        return "cuda:1" if storage.data_ptr() == pointer else None

    serialization.register_package(-1, tag, lambda storage, location: None)
    try:
        source = save(tmp_path / "old.pt", {"w": gpu_storage, "c": torch.zeros(2), "amp": apex_state((1.0, 0))})
    finally:
        serialization._package_registry[:] = [e for e in serialization._package_registry if e[1] is not tag]
    assert run(source, tmp_path / "new.pt").exit_code == 0
    locations = []
    torch.load(tmp_path / "new.pt", map_location=lambda s, where: locations.append(where) or s, weights_only=True)
    assert sorted(locations) == ["cpu", "cuda:1"]


def test_the_older_format_stays_the_older_format(tmp_path: Path) -> None:
    torch.save(
        {"w": torch.ones(2), "amp": apex_state((1.0, 0))}, tmp_path / "old.pt", _use_new_zipfile_serialization=False
    )
    assert run(tmp_path / "old.pt", tmp_path / "new.pt").exit_code == 0
    assert not zipfile.is_zipfile(tmp_path / "new.pt")
    assert torch.load(tmp_path / "new.pt", weights_only=True)["scaler"] == native(1.0, 0)


@pytest.mark.skipif(os.name == "nt", reason="no such limit there")
@pytest.mark.parametrize("zipped", [True, False])
def test_a_disk_that_fills_up_leaves_nothing(tmp_path: Path, zipped: bool) -> None:
    """A limit on the size of files stands for the disk: the same error comes out of the same writer."""
    import resource
    import subprocess
    import sys

    content = {"model": {"w": torch.zeros(200_000)}, "amp": apex_state((32768.0, 17))}
    source = tmp_path / "old.pt"
    torch.save(content, source, _use_new_zipfile_serialization=zipped)
    done = subprocess.run(
        [sys.executable, "-m", "amp_migrate", "checkpoint", str(source), str(tmp_path / "new.pt")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "new.pt: cannot be written (" in done.stderr
    assert "Traceback" not in done.stderr
    assert os.listdir(tmp_path) == ["old.pt"]


class Payload:
    """A pickle that runs a command when loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.marker),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_hostile_pickle_is_refused_with_the_reason(tmp_path: Path, zipped: bool) -> None:
    marker = tmp_path / "ran"
    source = tmp_path / "old.pt"
    torch.save({"amp": apex_state((1.0, 0)), "x": Payload(marker)}, source, _use_new_zipfile_serialization=zipped)
    result = run(source, tmp_path / "new.pt")
    assert result.exit_code == 2
    assert "--unsafe-pickle" in result.output
    assert "mkdir" in result.output
    assert not marker.exists()
    assert not (tmp_path / "new.pt").exists()


def test_unsafe_pickle_loads_what_needs_it(tmp_path: Path) -> None:
    import argparse

    source = save(tmp_path / "old.pt", {"args": argparse.Namespace(lr=0.5), "amp": apex_state((8.0, 3))})
    refused = run(source, tmp_path / "new.pt")
    assert refused.exit_code == 2
    assert "argparse.Namespace" in refused.output
    assert run(source, tmp_path / "new.pt", "--unsafe-pickle").exit_code == 0
    converted = torch.load(tmp_path / "new.pt", weights_only=False)
    assert converted == {"args": argparse.Namespace(lr=0.5), "scaler": native(8.0, 3)}


def test_every_truncation_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    whole = io.BytesIO()
    torch.save({"w": torch.ones(64), "amp": apex_state((1.0, 0))}, whole)
    content = whole.getvalue()
    for cut in (0, 1, 10, len(content) // 2, len(content) - 1):
        source = tmp_path / "cut.pt"
        source.write_bytes(content[:cut])
        result = run(source, tmp_path / "new.pt")
        assert result.exit_code == 2, cut
        assert "not a readable PyTorch checkpoint" in result.output
        assert "Traceback" not in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["cut.pt"]


@pytest.mark.parametrize("content", [b"hello", b"\x80\x04N.", pickle.dumps({"amp": 1}), b"PK\x03\x04"])
def test_other_files_are_errors(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "other.bin"
    source.write_bytes(content)
    result = run(source, tmp_path / "new.pt")
    assert result.exit_code == 2
    assert not (tmp_path / "new.pt").exists()


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ({"model": {}, "epoch": 1}, (), "its keys are 'model', 'epoch'"),
        ({"scaler": native(2.0, 0)}, (), "a GradScaler state already"),
        ({"amp": apex_state((1.0, 0))}, ("--key", "apex"), "there is one at amp"),
        ({"amp": apex_state((1.0, 0)), "scaler": 1}, (), "--to-key"),
        ({"amp": {"loss_scaler0": {"loss_scale": "dynamic", "unskipped": 0}}}, (), "loss_scale is 'dynamic'"),
        ({"amp": {"loss_scaler0": {"loss_scale": float("nan"), "unskipped": 0}}}, (), "loss_scale is nan"),
        ({"amp": {"loss_scaler0": {"loss_scale": 1.0, "unskipped": -3}}}, (), "unskipped is -3"),
        ({"amp": {"loss_scaler0": {"unskipped": 3}}}, (), "no Apex state"),
        ([1, 2], (), "it holds a list"),
        (torch.ones(2), (), "it holds a Tensor"),
    ],
)
def test_nothing_to_convert_says_what_is_there(tmp_path: Path, content: Any, options: Any, says: str) -> None:
    source = save(tmp_path / "old.pt", content)
    result = run(source, tmp_path / "new.pt", *options)
    assert result.exit_code == 2
    assert says in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["old.pt"]


def test_the_input_is_never_the_output(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((1.0, 0))})
    before = source.read_bytes()
    (tmp_path / "link.pt").symlink_to(source)
    os.link(source, tmp_path / "hard.pt")
    for target in ("old.pt", "link.pt", "hard.pt"):
        result = run(source, tmp_path / target)
        assert result.exit_code == 2
        assert "the input itself" in result.output
    assert source.read_bytes() == before


def test_missing_files_and_folders(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((1.0, 0))})
    assert "no such file" in run(tmp_path / "none.pt", tmp_path / "new.pt").output
    assert "not a file" in run(tmp_path, tmp_path / "new.pt").output
    assert "its folder does not exist" in run(source, tmp_path / "no" / "new.pt").output
    assert run(source, tmp_path).exit_code == 2


@pytest.mark.skipif(os.name == "nt", reason="no such files there")
def test_a_device_or_a_pipe_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((1.0, 0))})
    os.mkfifo(tmp_path / "pipe")
    result = run(source, tmp_path / "pipe")
    assert (result.exit_code, "no file that could be replaced" in result.output) == (2, True)
    assert (tmp_path / "pipe").is_fifo()


def test_a_failed_write_leaves_the_old_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((1.0, 0))})
    target = save(tmp_path / "new.pt", {"amp": apex_state((2.0, 1))})
    precious = target.read_bytes()

    def full(value: object, path: Path, **options: object) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    result = run(source, target)
    assert result.exit_code == 2
    assert "No space left" in result.output
    assert target.read_bytes() == precious
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.pt", "old.pt"]


def test_json(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((16.0, 2))})
    result = run(source, tmp_path / "new.pt", "--format", "json")
    assert json.loads(result.output) == {
        "version": 1,
        "path": str(tmp_path / "new.pt"),
        "scalers": [{"source": "amp.loss_scaler0", "target": "scaler", "static": False, "state": native(16.0, 2)}],
    }


def test_a_self_referencing_checkpoint_is_walked_once() -> None:
    checkpoint: dict[str, Any] = {"amp": apex_state((1.0, 0))}
    checkpoint["self"] = checkpoint
    converted, done = convert(checkpoint)
    assert len(done) == 1
    assert converted["self"] is converted


def test_deep_nesting_needs_no_recursion() -> None:
    checkpoint: dict[str, Any] = {"amp": apex_state((1.0, 0))}
    for _ in range(5000):
        checkpoint = {"inner": checkpoint}
    assert len(convert(checkpoint)[1]) == 1


def test_wrong_values_name_their_place() -> None:
    with pytest.raises(CheckpointError, match=r"a\.amp\.loss_scaler1"):
        convert({"a": {"amp": {**apex_state((1.0, 0)), "loss_scaler1": {"loss_scale": -1.0, "unskipped": 0}}}})


@pytest.mark.parametrize("there", ["x = 1\n", "# Notes\n"])
def test_what_is_no_checkpoint_is_not_replaced(there: str, tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((1024.0, 7))})
    (tmp_path / "train.py").write_text(there)
    result = run(source, tmp_path / "train.py")
    assert result.exit_code == 2
    assert "is there already and is no checkpoint" in result.stderr
    assert (tmp_path / "train.py").read_text() == there


def test_a_read_only_output_is_not_replaced_and_a_link_stays_one(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((1024.0, 7))})
    target = save(tmp_path / "new.pt", {})
    target.chmod(0o444)
    before = target.read_bytes()
    assert "read-only" in run(source, target).stderr
    assert target.read_bytes() == before
    target.chmod(0o644)
    link = tmp_path / "link.pt"
    link.symlink_to(target)
    assert run(source, link).exit_code == 0
    assert link.is_symlink()
    assert target.read_bytes() != before


def test_what_a_killed_run_left_goes_with_the_next(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((1024.0, 7))})
    (tmp_path / ".new.pt.0123456789ab.part").write_bytes(b"half")
    (tmp_path / ".new.pt.theirs.part").write_bytes(b"of another program")
    (tmp_path / ".other.pt.0123456789ab.part").write_bytes(b"of another output")
    assert run(source, tmp_path / "new.pt").exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".part") == [
        ".new.pt.theirs.part",
        ".other.pt.0123456789ab.part",
    ]


@pytest.mark.skipif(os.name == "nt", reason="names are limited there")
def test_so_it_goes_beside_a_name_as_long_as_names_may_be(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"amp": apex_state((1024.0, 7))})
    target = tmp_path / ("n" * 250 + ".pt")
    left = tmp_path / f".{'n' * (255 - len('..0123456789ab.part'))}.0123456789ab.part"
    left.write_bytes(b"half")
    assert run(source, target).exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([source.name, target.name])


def test_a_polite_kill_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(value: object, path: Path, **options: object) -> None:
        path.write_bytes(b"half")
        os.kill(os.getpid(), signal.SIGTERM)

    source = save(tmp_path / "old.pt", {"amp": apex_state((1024.0, 7))})
    monkeypatch.setattr(torch, "save", terminated)
    assert run(source, tmp_path / "new.pt").exit_code == 128 + signal.SIGTERM
    assert [p.name for p in tmp_path.iterdir()] == ["old.pt"]


def test_keys_and_names_move_no_cursor(tmp_path: Path) -> None:
    source = save(tmp_path / "old.pt", {"a\x1b]0;b\x07\n": apex_state((1024.0, 7))})
    result = run(source, tmp_path / "new\x1b[31m.pt")
    assert result.exit_code == 0
    assert not {"\x1b", "\x07"} & set(result.stdout)
    assert result.stdout.count("\n") == 2
    assert "\x1b" not in run(tmp_path / "gone\x1b[31m", tmp_path / "b.pt").stderr
