"""One source file: from bytes to text and back, without losing a byte.

Decoding follows PEP 263 (https://peps.python.org/pep-0263/): a UTF-8 byte order mark, an encoding cookie in the first
two lines, else UTF-8.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amp_migrate.sources.failures import SYNTAX, TOO_LARGE, UNDECODABLE, UNREADABLE, SourceError

if TYPE_CHECKING:
    from amp_migrate.sources.notebooks import Notebook

BOM = b"\xef\xbb\xbf"
# What is larger is not read at all, not to look for Apex either: neither code nor a notebook with its pictures.
MOST_BYTES = 1 << 28


def reading_flags(system: object = os) -> int:
    """How files are opened: a pipe is not waited for; Windows, which has no such flag, changes line ends without another."""
    return int(getattr(system, "O_NONBLOCK", 0) | getattr(system, "O_BINARY", 0))


_READING = reading_flags()


@dataclass(frozen=True)
class SourceFile:
    """A decoded Python file. `text` keeps line endings, form feeds and tabs; the BOM is kept apart.

    For a notebook, `text` is the program its cells make and `notebook` leads back to the file.
    """

    path: Path
    display: str  # relative to the working directory, as reports print it
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    notebook: Notebook | None = None
    old: str | None = None  # what stands in the file, where `text` has other words for what no Python reads any more

    @property
    def written(self) -> str:
        """The program as it stands in the file."""
        return self.text if self.old is None else self.old

    def encode(self, text: str) -> bytes:
        """The bytes of the file when its program is `text`; `encode(self.written)` gives back those that were read."""
        return self.encode_file(text if self.notebook is None else self.notebook.with_program(text))

    def encode_file(self, text: str) -> bytes:
        """The bytes of the file when its own text, the JSON of a notebook, is `text`."""
        return (BOM if self.bom else b"") + text.encode(self.encoding)


def read_bytes(path: str | Path) -> bytes:
    """All bytes of a regular file; raises OSError, and SourceError for anything that is no file.

    Plain system calls: a scan reads thousands of files and io's layers would double its time.
    """
    descriptor = os.open(path, os.O_RDONLY | _READING)
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            raise SourceError(UNREADABLE, "cannot be read: not a regular file")
        if info.st_size > MOST_BYTES:
            size, most = (f"{n / 1e6:,.0f} MB" for n in (info.st_size, MOST_BYTES))
            raise SourceError(TOO_LARGE, f"{size} is too large to read; the limit is {most}")
        chunks = []
        while chunk := os.read(descriptor, info.st_size + 1 if info.st_size else 1 << 16):
            chunks.append(chunk)
            if len(chunks) == 1 and len(chunk) == info.st_size:
                break
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)
    finally:
        os.close(descriptor)


def decode(data: bytes, path: Path, display: str) -> SourceFile:
    """The text of a Python file or notebook; raises SourceError when its bytes are not what they claim to be."""
    if b"\0" in data:
        raise SourceError(
            UNDECODABLE, "contains a NUL byte, which Python source cannot", *position(data, data.index(0))
        )
    bom = data.startswith(BOM)
    body = data[len(BOM) :] if bom else data
    is_notebook = path.suffix == ".ipynb"
    encoding = "utf-8" if is_notebook else declared_encoding(data)
    try:
        text = body.decode(encoding)
        same = text.encode(encoding) == body
    except UnicodeError as error:
        offset = error.start if isinstance(error, UnicodeDecodeError) else 0
        line, column = position(body, offset)
        found = f"byte 0x{body[offset]:02x}" if offset < len(body) else "the file"
        raise SourceError(UNDECODABLE, f"{found} is not valid {encoding}, line {line}", line, column) from None
    except LookupError:  # a codec, but none of text
        raise SourceError(SYNTAX, f"encoding declaration: {encoding} is not an encoding of text") from None
    if not same:
        raise SourceError(UNDECODABLE, f"does not survive decoding and encoding as {encoding}")
    if not is_notebook:
        return SourceFile(path, display, text, encoding, bom)

    from amp_migrate.sources.notebooks import Notebook

    notebook = Notebook.parse(text)
    return SourceFile(path, display, notebook.program, encoding, bom, notebook)


def read(path: Path, display: str) -> SourceFile:
    """Read and decode one file; raises OSError or SourceError."""
    return decode(read_bytes(path), path, display)


def declared_encoding(data: bytes) -> str:
    """The encoding of a Python file by BOM or cookie, "utf-8" without; raises SourceError for one Python has not."""
    if b"coding" not in b"\n".join(data.split(b"\n", 2)[:2]).replace(b"\r", b"\n"):
        return "utf-8"

    import tokenize

    lines = iter(data.splitlines(keepends=True))
    try:
        encoding, _ = tokenize.detect_encoding(lambda: next(lines, b""))
    except SyntaxError as error:
        raise SourceError(SYNTAX, f"encoding declaration: {error.msg}") from None
    return "utf-8" if encoding == "utf-8-sig" else encoding


def position(data: bytes, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a byte; the column counts bytes."""
    before = data[:offset].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
