"""Whatever else asks the mapping that a state is put into for its key: `if "amp" in state: torch.save(state["amp"], path)`.

What reads the entry, in whichever file, asks for the key that it has now. Reported as AMP401: see `save.py`. What is read
out of a file again is the business of `load.py`.
"""

from __future__ import annotations

from amp_migrate.reading.program.module import Module
from amp_migrate.rules.migration import Migration
from amp_migrate.rules.state.keys import new_key, renamed
from amp_migrate.rules.state.mappings import Key, asked, held_by, key_name


def follow(m: Migration, saved: list[tuple[Module, Key]]) -> None:
    """Have what reads an entry from a mapping in memory ask for the key that it is put there under."""
    own = {key for _, key in saved}
    for name in sorted({key_name(key) for _, key in saved}):
        new, keys = new_key(m, name), [(module, key) for module, key in saved if key_name(key) == name]
        for module, key, _ in asked(m.project, name, held_by(m.project, keys)) if new != name else ():
            edits = m.edit(module)
            if key in own or edits.gone(key) or any(a in edits.expressions for a in (key, *module.ancestors(key))):
                continue  # a load asks here, see `load.py`
            edits.replace(key, renamed(m, module, key))
            at = ", ".join(dict.fromkeys(f"{where.display}:{saving.lineno}" for where, saving in keys))
            message = f"what {at} saves is under the key {new!r} now, and asked for by that here"
            m.output.done(module, key, "AMP401", "amp.state_dict", message, "look")
