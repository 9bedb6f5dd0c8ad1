"""Checkpoint files in and out, without running what a pickle asks for and without touching the input."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amp_migrate.checkpoint.states import (
    DEFAULT_TO_KEY,
    GROWTH_INTERVAL,
    CheckpointError,
    Conversion,
    NothingFound,
    convert,
)
from amp_migrate.sources import beside
from amp_migrate.sources.replace import is_read_only

if TYPE_CHECKING:
    from amp_migrate.checkpoint.optimizers import StepCounts


def convert_file(
    source: Path,
    target: Path,
    *,
    key: str | None = None,
    to_key: str = DEFAULT_TO_KEY,
    unsafe_pickle: bool = False,
    growth_interval: int = GROWTH_INTERVAL,
    static: bool = False,
    as_list: bool = False,
) -> tuple[list[Conversion], list[StepCounts]]:
    """Convert the Apex checkpoint `source` into the native one `target`: its loss scalers (see `convert` for the mapping)
    and the states of FusedAdam in it (see `convert_optimizers`).

    Tensors keep their values, sharing and the device they were saved on, also on a machine without it; the file keeps
    its format (zip, or the older stream). `target` is replaced in one move, or not at all.

    Raises CheckpointError with the reason; `source` is only ever read.
    """
    import torch

    from amp_migrate.checkpoint.optimizers import convert_optimizers

    if not source.is_file():
        raise CheckpointError(f"{source}: {'not a file' if source.exists() else 'no such file'}.")
    if target.exists() and target.samefile(source):
        raise CheckpointError(f"{target} is the input itself; name another file for the result.")
    if target.is_dir() or not target.parent.is_dir():
        raise CheckpointError(f"{target}: {'is a folder' if target.is_dir() else 'its folder does not exist'}.")
    if target.exists() and not target.is_file():  # a device or a pipe: a file in its place would be the end of it
        raise CheckpointError(f"{target} is no file that could be replaced; name one.")
    if target.exists():
        _refuse_what_is_there(target)
    devices: dict[int, str] = {}

    def on_cpu(storage: Any, location: str) -> Any:
        devices[storage.data_ptr()] = location
        return storage

    checkpoint = _load(source, on_cpu, unsafe_pickle)
    steps = convert_optimizers(checkpoint)
    try:
        converted, done = convert(
            checkpoint, key=key, to_key=to_key, growth_interval=growth_interval, static=static, as_list=as_list
        )
    except NothingFound:
        if not steps or key is not None:
            raise
        converted, done = checkpoint, []
    with _saved_on(devices), _replacing(target) as temporary:
        torch.save(converted, temporary, _use_new_zipfile_serialization=zipfile.is_zipfile(source))
    return done, steps


def _refuse_what_is_there(target: Path) -> None:
    """A checkpoint is replaced, whatever else stands there is not: a name is soon mistaken."""
    if is_read_only(target):
        raise CheckpointError(f"{target} is read-only; name another file for the result.")
    try:
        if target.stat().st_size and not (zipfile.is_zipfile(target) or _looks_like_pickle(target)):
            raise CheckpointError(f"{target} is there already and is no checkpoint; name another file for the result.")
    except OSError as error:
        raise CheckpointError(f"{target}: cannot be read ({(error.strerror or str(error)).lower()}).") from error


def _load(source: Path, map_location: Any, unsafe_pickle: bool) -> Any:
    import torch

    try:
        return torch.load(source, map_location=map_location, weights_only=not unsafe_pickle)
    except pickle.UnpicklingError as error:
        if unsafe_pickle or not (zipfile.is_zipfile(source) or _looks_like_pickle(source)):
            raise CheckpointError(f"{source}: not a readable PyTorch checkpoint ({_first_line(error)}).") from error
        raise CheckpointError(
            f"{source}: this file asks for more than tensors and plain containers, and loading it could run any code: "
            f"{_refused(error)}. If you trust where it comes from, say --unsafe-pickle."
        ) from error
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, AttributeError, ImportError) as error:
        raise CheckpointError(f"{source}: not a readable PyTorch checkpoint ({_first_line(error)}).") from error
    except Exception as error:
        if not unsafe_pickle:
            raise CheckpointError(f"{source}: not a readable PyTorch checkpoint ({_first_line(error)}).") from error
        raise CheckpointError(f"{source}: its pickle raised {type(error).__name__}: {_first_line(error)}.") from error


def _looks_like_pickle(source: Path) -> bool:
    with source.open("rb") as stream:
        return stream.read(1) == pickle.PROTO


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")


def _refused(error: BaseException) -> str:
    """The sentence of torch's long explanation that names what was refused."""
    for line in str(error).splitlines():
        if "Unsupported" in line or "GLOBAL" in line or "Trying to" in line:
            return line.split("WeightsUnpickler error:")[-1].strip().rstrip(".")
    return _first_line(error)


@contextmanager
def _saved_on(devices: dict[int, str]) -> Iterator[None]:
    """Write each storage with the device it came from, although it is held on the CPU here."""
    from torch import serialization

    def tag(storage: Any) -> str | None:
        return devices.get(storage.data_ptr())

    serialization.register_package(-1, tag, lambda storage, location: None)
    try:
        yield
    finally:
        registry = serialization._package_registry
        registry[:] = [entry for entry in registry if entry[1] is not tag]


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """What takes the place of `target` when the block succeeds; raises CheckpointError where it cannot be written."""
    try:
        with beside.replacing(target) as temporary:
            yield temporary
    except (OSError, RuntimeError, pickle.PicklingError) as error:
        # What torch's own writer says of a full disk is about positions in an archive.
        full = "torch could not write all of it; is the disk full?"
        reason = full if isinstance(error, RuntimeError) else _first_line(error)
        raise CheckpointError(f"{target}: cannot be written ({reason}).") from error
