"""Whether a file may have a name, as its text tells, and what files outside of a package call it that way."""

from __future__ import annotations

import re
from collections.abc import Mapping


def has(text: str, name: str) -> bool:
    """Whether a file may have a name: it defines, assigns or imports it, or all of another file."""
    name = re.escape(name)  # whatever stands in an import
    imports = rf"^[ \t]*(?:from|import)\b[^#\n]*(?:\b{name}\b|\*)"
    given = rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}\b[^=\n]*=|{imports}"
    return re.search(given, text, re.MULTILINE) is not None


def taken_from(text: str, module: str) -> list[tuple[str, list[str]]]:
    """What a file takes by `from module.rest import names`: each rest, and the names."""
    listed = rf"^[ \t]*from[ \t]+{module}((?:\.\w+)*)[ \t]+import[ \t]+(?:\(([^)]*)\)|([^\n#;]*))"
    found: list[tuple[str, list[str]]] = []
    for match in re.finditer(listed, text, re.MULTILINE):
        parts = re.sub(r"#[^\n]*|\\\n", "", match[2] or match[3] or "").split(",")
        found.append((match[1][1:], [part.split()[0] for part in parts if part.strip()]))
    return found


def all_there(package: str, texts: Mapping[str, str]) -> bool:
    """Whether all that files import by way of a package that is not there is in the files of the project, which are given by
    their dotted names from its top; the folder around it is put on the path for that (`sys.path`)."""
    whole = re.compile(rf"^[ \t]*import[ \t]+{package}((?:\.\w+)*)", re.MULTILINE)
    asking = [text for text in texts.values() if package in text]
    if not any("sys.path" in text for text in asking):
        return False
    for text in asking:
        if any(match[1][1:] not in texts for match in whole.finditer(text)):
            return False
        for home, names in taken_from(text, package):
            for name in names:
                inner = f"{home}.{name}".lstrip(".")
                if inner not in texts and not (home in texts and (name == "*" or has(texts[home], name))):
                    return False
    return True
