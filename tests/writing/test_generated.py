"""The text of a concrete tree is that of libcst, also of a libcst that is made otherwise inside."""

from __future__ import annotations

import libcst as cst
import libcst._nodes.internal
import pytest

from amp_migrate.writing.generated import code_of

SOURCE = "def f(a, *, b=1):\r\n\tif a:  # why\r\n\t\treturn [x for x in b]\r\n\treturn 'e\u0301'\r\n"


@pytest.mark.parametrize("other", [False, True])
def test_it_is_what_libcst_gives(monkeypatch: pytest.MonkeyPatch, other: bool) -> None:
    if other:
        monkeypatch.delattr(libcst._nodes.internal, "CodegenState")
    module = cst.parse_module(SOURCE)
    text = code_of(module)
    monkeypatch.undo()
    assert text == module.code == SOURCE
