"""What does a program look like in which statements stand in a block or a function of another kind?"""

from __future__ import annotations

import ast
import copy
import random

from tests.fuzz.statements import Mutation, at_statement, leaves, stored
from tests.metamorphic.program import Reading, statements

WRAPPERS = (
    "if True:\n    BODY",
    "if {test}:\n    BODY",
    "if {test}:\n    BODY\nelse:\n    BODY",
    "if not {test}:\n    pass\nelse:\n    BODY",
    "if __debug__:\n    BODY\nelse:\n    raise RuntimeError('never')",
    "try:\n    BODY\nfinally:\n    pass",
    "try:\n    BODY\nexcept KeyboardInterrupt:\n    raise",
    "try:\n    BODY\nexcept Exception as error:\n    raise RuntimeError('failed') from error",
    "try:\n    pass\nexcept ValueError:\n    pass\nelse:\n    BODY",
    "try:\n    pass\nfinally:\n    BODY",
    "with contextlib.nullcontext():\n    BODY",
    "with contextlib.ExitStack() as stack:\n    BODY",
    "with contextlib.suppress(ZeroDivisionError), contextlib.nullcontext():\n    BODY",
    "with torch.enable_grad():\n    BODY",
    "with torch.autograd.set_detect_anomaly(False):\n    BODY",
    "for _once in range(1):\n    BODY",
    "for _once in [0]:\n    BODY\nelse:\n    pass",
    "while True:\n    BODY\n    break",
    "match 1:\n    case 1:\n        BODY\n    case _:\n        pass",
)
TESTS = (
    "1",
    "not None",
    "len('x')",
    "isinstance(1, int)",
    "time.time() > 0",
    "torch.is_grad_enabled() or True",
    "os.environ.get('NO_SUCH', 'yes')",
)


@at_statement(ast.stmt)
def wrap(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    """One to three statements in a block of another kind."""
    run = block[at : at + chosen.choice((1, 1, 2, 3))]
    text = chosen.choice(WRAPPERS).format(test=chosen.choice(TESTS))
    loops = text.startswith(("for", "while"))
    if loops and any(leaves(s) for s in run):
        return False
    new = statements(text)
    for node in [n for n in ast.walk(ast.Module(new, [])) if hasattr(n, "body") and isinstance(n.body, list)]:
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
                value = body[0].value
                if isinstance(value, ast.Name) and value.id == "BODY":
                    body[:1] = copy.deepcopy(run)
    block[at : at + len(run)] = new
    needed = {name for name in ("contextlib", "time", "os", "torch") if f"{name}." in text}
    for name in needed - stored(reading.tree):
        reading.use(f"import {name}")
    return True


@at_statement(ast.stmt)
def in_function(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    """One to three statements in a function that is called where they stood."""
    run = block[at : at + chosen.choice((1, 1, 2, 3))]
    scope = reading.scope(run[0])
    if any(leaves(s) for s in run) or isinstance(scope, (ast.ClassDef, ast.Lambda)):
        return False
    bound = sorted(stored(*run))
    name = reading.fresh(chosen.choice(("inner", "do_it", "train_step", "closure")))
    (function,) = statements(f"def {name}():\n    pass")
    assert isinstance(function, ast.FunctionDef)
    function.body = list(run)
    if bound and isinstance(scope, ast.Module):
        function.body[:0] = statements(f"global {', '.join(bound)}")
    elif bound:
        declared = {n for s in ast.walk(scope) if isinstance(s, ast.Global) for n in s.names}
        if declared & set(bound) or chosen.random() < 0.5:
            function.body += statements(f"return {', '.join(bound)}")
            block[at : at + len(run)] = [function, *statements(f"{', '.join(bound)} = {name}()")]
            return not declared & set(bound)
        function.body[:0] = statements(f"nonlocal {', '.join(bound)}")
    block[at : at + len(run)] = [function, *statements(f"{name}()")]
    return True


@at_statement(ast.stmt)
def nest(reading: Reading, chosen: random.Random, block: list[ast.stmt], at: int) -> bool:
    """A statement below many tests."""
    found = block[at]
    for _ in range(chosen.choice((5, 17))):
        (outer,) = statements("if True:\n    pass")
        assert isinstance(outer, ast.If)
        outer.body, found = [found], outer
    block[at] = found
    return True


MUTATIONS: dict[Mutation, int] = {wrap: 8, in_function: 5, nest: 1}
