"""Events between backward and step that are fired to whom the program does not show: `handler.fire_event(Events.BACKWARD)`,
`hooks.on_after_backward(model)`. Who listens may read gradients: those that clip do it there."""

from __future__ import annotations

import ast
import re

from amp_migrate.reading.program.definitions import called_name
from amp_migrate.reading.program.project import Project

_TIME = re.compile(r"backward|(before|pre)_?(optimi[sz]er_?)?step")
_WHEN = re.compile(r"(^|_)(on|after|post|before|pre|end)(_|$)")
_TELLS = re.compile(
    r"(^|_)(fire|trigger|emit|call|notify|dispatch|run|invoke|hooks?|callbacks?|events?|handle|publish|signal)(_|$)"
)
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def fires(project: Project, call: ast.Call) -> bool:
    """Whether a call tells others, out of sight, that a backward has run or that a step is next."""
    name = _words(called_name(call))
    if name in ("backward", "step") or name.startswith(("register", "remove")) or project.resolved.get(call):
        return False
    if _TIME.search(name):
        return bool(_WHEN.search(name))
    given = [*call.args, *(k.value for k in call.keywords)]
    return bool(_TELLS.search(name)) and any(_TIME.search(_words(_text(value))) for value in given)


def _text(value: ast.expr) -> str:
    if isinstance(value, ast.Constant):
        return value.value if isinstance(value.value, str) and value.value.replace(".", "_").isidentifier() else ""
    if isinstance(value, ast.Attribute) and value.attr == "value":  # of an enumeration
        value = value.value
    return value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")


def _words(name: str) -> str:
    """A name in small letters, its words apart: `afterBackward`, `AFTER_BACKWARD`."""
    return _WORD.sub("_", name).lower()
