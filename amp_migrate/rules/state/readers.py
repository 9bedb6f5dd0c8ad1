"""Whatever else asks the mapping that a state is put into for its key: `if "amp" in state: torch.save(state["amp"], path)`.

What reads the entry, in whichever file, asks for the key that it has now. Reported as AMP401: see `save.py`. What is read
out of a file again is the business of `load.py`.
"""

from __future__ import annotations

import ast

from amp_migrate.reading.program.definitions import Function
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.keys import new_key, renamed
from amp_migrate.rules.state.mappings import Key, asked, asked_of_parameters, held_by, key_name, lost_to

LOAD = "apex.amp.load_state_dict"


def follow(m: Migration, saved: list[tuple[Module, Key]]) -> None:
    """Have what reads an entry from a mapping in memory ask for the key that it is put there under."""
    own = {key for _, key in saved}
    for name in sorted({key_name(key) for _, key in saved}):
        new, keys = new_key(m, name), [(module, key) for module, key in saved if key_name(key) == name]
        held = held_by(m.project, keys) if new != name else set()
        for module, key, _ in asked(m.project, name, held):
            edits = m.edit(module)
            if any(isinstance(a, ast.Call) and module.qualify(a.func) == LOAD for a in module.ancestors(key)):
                continue
            if key in own or edits.gone(key) or any(a in edits.expressions for a in (key, *module.ancestors(key))):
                continue  # a load asks here, see `load.py`
            edits.replace(key, renamed(m, module, key))
            at = ", ".join(dict.fromkeys(f"{where.display}:{saving.lineno}" for where, saving in keys))
            message = f"what {at} saves is under the key {new!r} now, and asked for by that here"
            m.output.done(module, key, "AMP401", "amp.state_dict", message, "look")
        lost = list(lost_to(m.project, held, keys)) if new != name else []
        for module, key, function in asked_of_parameters(m.project, name) if lost else ():
            calls = [f"{where.display}:{call.lineno}" for where, call in lost if _may_run(where, call, function)]
            if calls and key not in m.edit(module).expressions and not m.edit(module).gone(key):
                message = (
                    f"asks for {name!r}, and what {calls[0]} hands out of sight has the scaler's state under {new!r}: if it "
                    "comes here, ask for that"
                )
                m.output.note(module, key, "AMP401", "amp.state_dict", message, "review")


def _may_run(module: Module, call: ast.Call, function: Function) -> bool:
    """Whether a call that is not followed may be one of a function: it, or the file that it stands in, says the name."""
    named = (*module.loads.get(function.name, ()), *module.named.get(function.name, ()))
    said = (n for n in walk(call) if isinstance(n, ast.Constant))
    return bool(named) or any(n.value == function.name for n in said)
