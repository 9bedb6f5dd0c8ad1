"""A concrete tree as text."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import libcst as cst

_NOTHING: AbstractContextManager[None] = nullcontext()


def code_of(module: cst.Module) -> str:
    """What `module.code` is, less the places of nodes that libcst notes on the way: nobody asks for them, and they take a
    third of its time. Where another libcst has no such state, what it gives itself."""
    try:
        from libcst._nodes.internal import CodegenState

        class Unplaced(CodegenState):
            def record_syntactic_position(self, *_: Any, **__: Any) -> AbstractContextManager[None]:  # type: ignore[override]
                return _NOTHING

        state = Unplaced(default_indent=module.default_indent, default_newline=module.default_newline)
        module._codegen(state)
    except (ImportError, AttributeError, TypeError):
        return module.code
    return "".join(state.tokens)
