"""A concrete tree as text."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import libcst as cst
from libcst._nodes.internal import CodegenState


class _Unplaced(CodegenState):
    """As libcst's own, less the places of nodes: nobody asks for them, and to note none takes a third of its time."""

    def record_syntactic_position(self, *_: Any, **__: Any) -> AbstractContextManager[None]:  # type: ignore[override]
        return _NOTHING


_NOTHING: AbstractContextManager[None] = nullcontext()


def code_of(module: cst.Module) -> str:
    """What `module.code` is."""
    state = _Unplaced(default_indent=module.default_indent, default_newline=module.default_newline)
    module._codegen(state)
    return "".join(state.tokens)
