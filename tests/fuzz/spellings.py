"""How else may the same program be spelled?

Each spelling takes the text of a program and a source of randomness and returns text with the same syntax tree. What a
migration makes of both has to be the same program as well; `spelled` sees to it that the first half holds.
"""

from __future__ import annotations

import ast
import io
import itertools
import keyword
import random
import re
import tokenize
import warnings
from collections.abc import Callable

Spelling = Callable[[str, random.Random], str]

COMMENTS = (
    "# beside",
    "# amp.scale_loss(loss, optimizer)",
    "# type: ignore",
    "# fmt: off",
    "#",
    "# naïve — 損失",
    "# one\u2028two",
    "#\x0c page\x85",
    "#: 'quoted\" ",
)
SKIP = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
# Names that are sought in the text of a file before it is read at all.
SOUGHT = ("apex", "amp", "cuda", "cpu")


def spelled(text: str, chosen: random.Random, names: list[str]) -> tuple[str, list[str]]:
    """The text in these spellings, and which of them it came to bear."""
    wanted = tree(text)
    assert wanted is not None
    done = []
    for name in names:
        new = SPELLINGS[name](text, chosen)
        if new != text and tree(new) == wanted:
            text = new
            done.append(name)
    return text, done


def tree(text: str) -> str | None:
    """The syntax tree of a text, in words; None where there is none. As Python reads a file: line ends do not matter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.dump(ast.parse(text.removeprefix("\ufeff")))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def tokens(text: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def _changed(text: str, changes: list[tuple[int, int, str]]) -> str:
    """With stretches from start to end replaced."""
    for start, end, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _offsets(text: str) -> Callable[[tuple[int, int]], int]:
    starts = [0]
    for line in io.StringIO(text):
        starts.append(starts[-1] + len(line))
    return lambda at: starts[at[0] - 1] + at[1]


def _gaps(text: str) -> list[tuple[int, int, bool]]:
    """The space between two tokens of a line: from, to, and whether it stands in brackets."""
    offset = _offsets(text)
    found, depth = [], 0
    before: tokenize.TokenInfo | None = None
    for token in tokens(text):
        if token.type == tokenize.OP:
            depth += (token.string in "([{") - (token.string in ")]}")
        inside = depth > 0 and not (token.type == tokenize.OP and token.string in "([{" and depth == 1)
        if (
            before is not None
            and before.end[0] == token.start[0]
            and before.type not in SKIP
            and token.type not in SKIP
        ):
            if not {before.type, token.type} & {
                getattr(tokenize, "FSTRING_MIDDLE", -1),
                getattr(tokenize, "FSTRING_START", -1),
            }:
                pair = {before.string, token.string}
                if not (pair & set(SOUGHT) and pair & {".", "import"}):
                    found.append((offset(before.end), offset(token.start), inside))
        before = token
    return found


def _some(found: list[tuple[int, int, bool]], chosen: random.Random) -> list[tuple[int, int, bool]]:
    share = chosen.choice((0.02, 0.2, 1.0))
    return [gap for gap in found if chosen.random() < share]


def crlf(text: str, chosen: random.Random) -> str:
    return text.replace("\n", "\r\n")


def carriage_returns(text: str, chosen: random.Random) -> str:
    return text if "\r" in text else text.replace("\n", "\r")


def mixed_ends(text: str, chosen: random.Random) -> str:
    return "".join(line + chosen.choice(("\n", "\r\n")) for line in text.split("\n"))


def _indented(text: str, unit: Callable[[int], str]) -> str:
    """Each level of indentation made anew; lines inside of strings and brackets keep theirs."""
    lines, level, changes = text.split("\n"), 0, []
    offset = _offsets(text)
    pending = True
    for token in tokens(text):
        if token.type == tokenize.INDENT:
            level += 1
        elif token.type == tokenize.DEDENT:
            level -= 1
        elif token.type == tokenize.NEWLINE:
            pending = True
        elif pending and token.type not in (tokenize.NL, tokenize.COMMENT):
            pending = False
            old = lines[token.start[0] - 1][: token.start[1]]
            if not old.strip():
                changes.append((offset((token.start[0], 0)), offset(token.start), unit(level)))
    return _changed(text, changes)


def tabs(text: str, chosen: random.Random) -> str:
    return _indented(text, lambda level: "\t" * level)


def narrow(text: str, chosen: random.Random) -> str:
    width = chosen.choice((1, 2, 3, 8))
    return _indented(text, lambda level: " " * width * level)


def form_feeds(text: str, chosen: random.Random) -> str:
    """Above statements at the margin, as old code of GNU has them; at the beginning of a line too."""
    lines = text.split("\n")
    starts = {s.lineno - 1 for s in ast.parse(text).body}
    form = chosen.choice(("\x0c\n", "\x0c"))
    return "\n".join(form + x if i in starts and chosen.random() < 0.4 else x for i, x in enumerate(lines))


def comments(text: str, chosen: random.Random) -> str:
    """Behind statements, on lines of their own, and in brackets."""
    offset = _offsets(text)
    changes = []
    share = chosen.choice((0.1, 0.5, 1.0))
    for token in tokens(text):
        if token.type in (tokenize.NEWLINE, tokenize.NL) and token.string and chosen.random() < share:
            at = offset(token.start)
            own = chosen.random() < 0.3
            said = chosen.choice(COMMENTS)
            lead = "\n" + " " * chosen.choice((0, 4, 7)) if own else "  "
            if token.line.strip() and "#" not in token.line:
                changes.append((at, at, lead + said))
    return _changed(text, changes)


def blanks(text: str, chosen: random.Random) -> str:
    """Empty lines with spaces, and spaces at the ends of lines."""
    offset = _offsets(text)
    changes = []
    for token in tokens(text):
        if token.type == tokenize.NEWLINE and token.string and chosen.random() < 0.4:
            at = offset(token.start)
            changes.append((at, at, chosen.choice(("  ", "\t", "\n   ", "\n\n", "\n\t\n"))))
    return _changed(text, changes)


def backslashes(text: str, chosen: random.Random) -> str:
    return _changed(
        text,
        [
            (start, end, " \\\n" + " " * chosen.choice((0, 2, 9)))
            for start, end, inside in _some(_gaps(text), chosen)
            if not inside or chosen.random() < 0.3
        ],
    )


def broken(text: str, chosen: random.Random) -> str:
    """Lines that end inside of brackets, some with a comment."""
    return _changed(
        text,
        [
            (start, end, chosen.choice((" ", "", "  # here")) + "\n" + " " * chosen.choice((0, 3, 8)))
            for start, end, inside in _some(_gaps(text), chosen)
            if inside
        ],
    )


def spaces(text: str, chosen: random.Random) -> str:
    """More space than anyone needs, between any two tokens; or none where none is needed."""
    wide = chosen.random() < 0.7
    changes = []
    for start, end, _ in _some(_gaps(text), chosen):
        tight = not wide and not (_wordy(text[start - 1]) and _wordy(text[end : end + 1]))
        changes.append((start, end, "" if tight else chosen.choice(("  ", " ", "\t"))))
    return _changed(text, changes)


def _wordy(character: str) -> bool:
    return character.isalnum() or character in "_\"'."


def semicolons(text: str, chosen: random.Random) -> str:
    """Simple statements that follow each other on one line, or a semicolon at the end."""
    lines = text.split("\n")
    simple: list[tuple[int, int]] = []
    for node in ast.walk(ast.parse(text)):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                for one, two in itertools.pairwise(block):
                    plain = not any(hasattr(s, "body") or isinstance(s, ast.Match) for s in (one, two))
                    if plain and one.end_lineno == one.lineno and two.lineno == one.lineno + 1:
                        simple.append((one.lineno - 1, two.lineno - 1))
    for first, second in sorted(simple, reverse=True):
        if chosen.random() < 0.4 and "#" not in lines[first] and second < len(lines):
            end = chosen.choice(("; ", ";", " ;  "))
            lines[first : second + 1] = [lines[first].rstrip() + end + lines[second].strip()]
        elif chosen.random() < 0.1 and "#" not in lines[first]:
            lines[first] += ";"
    return "\n".join(lines)


def one_line(text: str, chosen: random.Random) -> str:
    """A block of one simple statement behind its colon."""
    lines = text.split("\n")
    for node in sorted(ast.walk(ast.parse(text)), key=lambda n: getattr(n, "lineno", 0), reverse=True):
        body = getattr(node, "body", None)
        if not isinstance(body, list) or len(body) != 1 or not isinstance(node, ast.stmt) or hasattr(body[0], "body"):
            continue
        line = body[0].lineno
        head = lines[line - 2].rstrip() if line >= 2 else ""
        if body[0].end_lineno == line and head.endswith(":") and "#" not in head and chosen.random() < 0.6:
            lines[line - 2 : line] = [f"{head} {lines[line - 1].strip()}"]
    return "\n".join(lines)


def parentheses(text: str, chosen: random.Random) -> str:
    """Around expressions that need none."""
    starts = [0]
    for line in io.StringIO(text):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()
    places = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Call, ast.Name, ast.Attribute, ast.Constant, ast.BinOp, ast.Compare)):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            first = starts[node.lineno - 1] + node.col_offset
            places.append((first, starts[node.end_lineno - 1] + node.end_col_offset))
    for start, end in sorted({p for p in places if chosen.random() < 0.1}, reverse=True):
        trial = data[:start] + b"(" + data[start:end] + b")" + data[end:]
        try:  # one at a time: those inside move those around
            compile(trial.decode(), "x", "exec", ast.PyCF_ONLY_AST)
        except (SyntaxError, ValueError):
            continue
        data = trial
        break
    return data.decode()


def quotes(text: str, chosen: random.Random) -> str:
    """Strings with other quotes, prefixes, escapes, in two pieces."""
    offset = _offsets(text)
    changes = []
    for token in tokens(text):
        if token.type != tokenize.STRING or not re.fullmatch(r"(['\"])[\w.-]+\1", token.string):
            continue
        value = token.string[1:-1]
        if any(word in value for word in SOUGHT):
            continue
        if chosen.random() < 0.4:
            new = chosen.choice(
                (
                    f"'{value}'",
                    f'"{value}"',
                    f'"""{value}"""',
                    f"r'{value}'",
                    f"\"{value[:1]}\" '{value[1:]}'",
                )
                + (f"'\\x{ord(value[0]):02x}{value[1:]}'",) * value.isascii()
            )
            changes.append((offset(token.start), offset(token.end), new))
    return _changed(text, changes)


def letters(text: str, chosen: random.Random) -> str:
    """Names in letters that Python takes for the ones they look like."""
    offset = _offsets(text)
    changes = []
    for token in tokens(text):
        plain = token.type == tokenize.NAME and token.string.isascii() and not keyword.iskeyword(token.string)
        if plain and token.string not in SOUGHT and not keyword.issoftkeyword(token.string) and chosen.random() < 0.1:
            at = chosen.randrange(len(token.string))
            letter = token.string[at]
            if letter.isalpha():
                base = 0x1D400 + ord(letter) - ord("A") if letter.isupper() else 0x1D41A + ord(letter) - ord("a")
                new = token.string[:at] + chr(base) + token.string[at + 1 :]
                changes.append((offset(token.start), offset(token.end), new))
    return _changed(text, changes)


def ends(text: str, chosen: random.Random) -> str:
    """Another end of the file."""
    return text.rstrip("\n") + chosen.choice(
        ("", "\n\n\n", "\n    ", "\n# the end", "\n\x0c\n", "  # the end", "\n\\\n")
    )


def heads(text: str, chosen: random.Random) -> str:
    """Another beginning."""
    return (
        chosen.choice(("#!/usr/bin/env python\n", "# -*- coding: utf-8 -*-\n", "\n\n\n", "\x0c", "# é\n", "#\n#\n\n"))
        + text
    )


def mark(text: str, chosen: random.Random) -> str:
    return "\ufeff" + text


SPELLINGS: dict[str, Spelling] = {
    # What reads tokens comes first; what changes line ends or the beginning last.
    "one line": one_line,
    "semicolons": semicolons,
    "quotes": quotes,
    "letters": letters,
    "parentheses": parentheses,
    "comments": comments,
    "broken": broken,
    "backslashes": backslashes,
    "spaces": spaces,
    "blanks": blanks,
    "tabs": tabs,
    "narrow": narrow,
    "form feeds": form_feeds,
    "ends": ends,
    "heads": heads,
    "crlf": crlf,
    "carriage returns": carriage_returns,
    "mixed ends": mixed_ends,
    "mark": mark,
}
ENCODINGS = ("utf-8", "latin-1", "cp1251", "utf-8-sig")


def encoded(text: str, encoding: str) -> bytes | None:
    """The bytes of a file that declares its encoding; None where it has not all of the letters."""
    if encoding == "utf-8":
        return text.encode()
    try:
        if encoding == "utf-8-sig":
            return text.removeprefix("\ufeff").encode("utf-8-sig")
        end = "\r\n" if "\r\n" in text else "\r" if "\r" in text else "\n"
        return f"# -*- coding: {encoding} -*-{end}{text}".encode(encoding) if text[:1] != "\ufeff" else None
    except UnicodeEncodeError:
        return None
