"""Files that could not be read or written: the 0xx codes, and the error that carries one."""

from __future__ import annotations

from amp_migrate.findings import Code, Example, FileResult, Finding

STAYS = "; what it has of Apex stays as it is"  # said of a file that could not be read

PEP_263 = "https://peps.python.org/pep-0263/"

UNREADABLE = "AMP001"
UNDECODABLE = "AMP002"
SYNTAX = "AMP003"
PYTHON_2 = "AMP004"
TOO_LARGE = "AMP005"
NOT_WRITTEN = "AMP006"
INTERNAL = "AMP007"
LEADS_OUT = "AMP008"
INTERRUPTED = "AMP009"
UNKNOWN_CODE = "AMP010"
OTHER_NAMES = "AMP011"
OLD_WORD = "AMP012"

_NOT_CODE = "Nothing: this is about the file, not about Apex."

CODES = (
    Code(
        code=UNREADABLE,
        title="A path that is missing or cannot be read",
        construct="file",
        apex=_NOT_CODE,
        native="Name an existing file or folder, or give yourself permission to read it.",
        why="A file nobody looked at must not pass for a clean one, so the run ends with exit code 2.",
    ),
    Code(
        code=UNDECODABLE,
        title="Bytes that the file's declared encoding does not have",
        construct="file",
        apex=_NOT_CODE,
        native="Save the file in the encoding it declares, or declare the encoding it has. Without a declaration "
        "Python reads UTF-8.",
        why="Rewriting text that was decoded wrongly would damage it.",
        links=(PEP_263,),
    ),
    Code(
        code=SYNTAX,
        title="A file that does not parse",
        construct="file",
        apex=_NOT_CODE,
        native="Mend the syntax error, or run amp-migrate under the Python version that the file is written for.",
        why="Code is understood through its syntax tree; without one nothing about the file is known.",
    ),
    Code(
        code=PYTHON_2,
        title="A file written for Python 2",
        construct="file",
        apex=_NOT_CODE,
        native="Port the file to Python 3 first: current PyTorch does not run on Python 2.",
        why="Python 2 syntax does not parse under Python 3.",
        links=("https://docs.python.org/3/howto/pyporting.html",),
    ),
    Code(
        code=TOO_LARGE,
        title="A file too large to rewrite",
        construct="file",
        apex=_NOT_CODE,
        native="Split the file, or exclude it with --exclude when it is generated.",
        why="The syntax tree of a file of several megabytes takes gigabytes of memory; such files are generated.",
    ),
    Code(
        code=NOT_WRITTEN,
        title="A file that could not be written",
        construct="file",
        apex=_NOT_CODE,
        native="Make the file and its folder writable, and run again. Files of the same migration unit were put back.",
        why="A unit is migrated whole or not at all, so one file that cannot be written holds back the others.",
    ),
    Code(
        code=INTERNAL,
        title="An internal error of amp-migrate",
        construct="file",
        apex=_NOT_CODE,
        native="Report it with the file; the file was left as it was. AMP_MIGRATE_DEBUG=1 prints the traceback.",
        why="A result that would not parse, or a crash, is never written. The exit code is 3.",
    ),
    Code(
        code=LEADS_OUT,
        title="A symbolic link that leads out of the paths given",
        construct="file",
        apex=_NOT_CODE,
        native="Name the file or folder that the link leads to, beside the other paths, to have it migrated too.",
        why="Only files below the paths given are written: what a link leads to may belong to somebody else.",
    ),
    Code(
        code=INTERRUPTED,
        title="A migration that was interrupted half way",
        construct="file",
        apex=_NOT_CODE,
        native="`amp-migrate rewrite` finishes it. Where a file was changed since, take it and the others of its unit from "
        "version control, and run again.",
        why="Files that share a loss scaler are migrated together. A process that is killed outright between two of them "
        "leaves the new text of the others, complete, beside them.",
    ),
    Code(
        code=UNKNOWN_CODE,
        title="A comment that ignores a code which does not exist",
        construct="comment",
        apex=_NOT_CODE,
        native="`amp-migrate explain` lists the codes; several are separated by commas.",
        why="Such a comment silences nothing, while its author believes that it does.",
    ),
    Code(
        code=OTHER_NAMES,
        title="A file that has other names",
        construct="file",
        apex=_NOT_CODE,
        native="Link the names to the migrated file again (`ln -f`), or migrate each of them: named together they become equal "
        "files, no longer one.",
        why="A file is replaced in one move, so that no reader ever sees half of it, and the move takes one name: whatever "
        "else is a hard link to the file keeps the text from before.",
    ),
    Code(
        code=OLD_WORD,
        title="An argument whose name Python made a keyword",
        construct="async",
        apex="Ran with Python 3.6 and older, where `tensor.cuda(async=True)` could be written.",
        native="`tensor.cuda(non_blocking=True)`, in each file that is changed for its Apex. What stays as it is does not parse "
        "with the Python that current PyTorch needs, and is told as that (AMP003).",
        why="`async` is a keyword since Python 3.7: such a file cannot be read, let alone run, where the migrated code runs.",
        links=(
            "https://docs.python.org/3/whatsnew/3.7.html",
            "https://pytorch.org/docs/stable/generated/torch.Tensor.cuda.html",
        ),
        examples=(Example("batch = batch.cuda(async=True)", "batch = batch.cuda(non_blocking=True)"),),
    ),
)


class SourceError(Exception):
    """A file that cannot be migrated for what it is; `line` and `column` count from 1."""

    def __init__(self, code: str, message: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.line = line
        self.column = column

    def finding(self) -> Finding:
        return Finding(self.line, self.column, self.code, "file", "note", "review", self.message)


def failure(display: str, error: SourceError) -> FileResult:
    """The result of a file that was not looked at."""
    return FileResult(path=display, status="failed", findings=[error.finding()])


def os_failure(display: str, error: OSError) -> FileResult:
    """The result of a path that the operating system would not let us read."""
    reason = (error.strerror or str(error)).lower()
    return failure(display, SourceError(UNREADABLE, f"cannot be read: {reason}"))
