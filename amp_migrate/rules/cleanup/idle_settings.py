"""A setting that only fed Apex stays where it is set; that nothing reads it any more is said.

`config.FP16_OPT_LEVEL`, a constant of a file of settings, an entry of a mapping, a default or a literal that a call gives to
a parameter which told whether to initialize; `cfg.USE_AMP`, which chose whether a loss is scaled. Options of a command line:
`idle_options.py`.

Apex: https://nvidia.github.io/apex/amp.html#apex.amp.initialize
Native: https://pytorch.org/docs/stable/amp.html
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from amp_migrate.reading.program.command_line import declared
from amp_migrate.reading.program.definitions import Function, called_name
from amp_migrate.reading.program.given_values import single_assignment
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.rules.cleanup import idle_fields
from amp_migrate.rules.cleanup.idle_options import reads_no_more
from amp_migrate.rules.cleanup.idle_parameters import unread
from amp_migrate.rules.migration import Output
from amp_migrate.writing.edits import Edits

Place = tuple[Module, ast.expr]


def apply(project: Project, targets: Collection[Module], output: Output) -> None:
    """Report them, where they are set; runs when all edits are made."""
    if output.by_hand():
        return  # what stays with Apex may read more by other ways
    edited = {module: edits for module, edits in output.edits.items() if edits and module in targets}
    for word, read in _words(project, edited).items():
        if any(edits.mentions(word) for edits in edited.values()) or not _unread(project, edited, word):
            continue
        for module, node, shown in _set(project, targets, word):
            edits = edited.get(module)
            if edits is None or not edits.gone(node):
                message = f"{shown} is kept, but {reads_no_more(project, word)}"
                output.note(module, node, "AMP119", shown, message)
                break
        else:
            module, node = read
            shown = module.source(node)
            known = not any(word in text for text in project.unparsed)
            if known and _computed_no_more(project, edited, word):
                continue
            if known and not isinstance(node, ast.Name) and not _told(output, module, shown):
                message = f"{shown} was read here alone: where it is set, it has no effect any more"
                output.note(module, node, "AMP119", shown, message)
    idle_fields.tell(project, [(m, n) for m, e in edited.items() for n in _asked(project, m) if e.gone(n)], output)
    for function in project.functions.values():
        edits = edited.get(function.module)
        if edits is not None and not edits.gone(function.node):
            _parameters(project, function, edits, output)


def _words(project: Project, edited: dict[Module, Edits]) -> dict[str, Place]:
    """The names of settings of which a read went that said how or whether Apex is set up, or a loss scaled, with one such read
    each."""
    options = {name for module in project.modules for name, _ in declared(module)}
    found: dict[str, Place] = {}
    for module, edits in edited.items():
        for node in _asked(project, module):
            word = _word(node)
            plain = word is not None and word not in options and not word.startswith("_")
            parent = module.parents.get(node)
            called = isinstance(parent, ast.Call) and parent.func is node  # a method: `checkpoint.keys()`
            if word is not None and plain and not called and edits.gone(node):
                found.setdefault(word, (module, node))
    return found


def _asked(project: Project, module: Module) -> Iterator[ast.expr]:
    """What the arguments of `initialize` read, and the tests around it and around `scale_loss`."""
    for call, _ in module.calls:
        name = project.qualify(module, call.func)
        if name in ("apex.amp.initialize", "apex.amp.scale_loss"):
            given = (*call.args[2:], *(k.value for k in call.keywords)) if name == "apex.amp.initialize" else ()
            tests = [above.test for above in module.ancestors(call) if isinstance(above, ast.If)]
            for value in (*given, *tests):
                yield from (node for node in walk(value) if isinstance(node, ast.expr))


def _word(node: ast.AST) -> str | None:
    """The name of the setting that an expression is: a variable, an attribute, an item."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    key = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def _unread(project: Project, edited: dict[Module, Edits], word: str) -> bool:
    """Whether no read of a name is left in the program: no variable, attribute or key in quotes."""
    for module in project.modules:
        if word not in module.text:
            continue
        edits = edited.get(module)
        nodes = (*module.loads.get(word, ()), *(n for n in module.named.get(word, ()) if not _sets(module, n)))
        if any(edits is None or not edits.gone(node) for node in nodes):
            return False
    return True


def _sets(module: Module, node: ast.AST) -> bool:
    """Whether a name in quotes is the key of a mapping that is written out, or what is assigned to: no read."""
    parent = module.parents.get(node)
    if isinstance(parent, ast.Dict):
        return any(key is node for key in parent.keys)
    return isinstance(parent, ast.Subscript) and isinstance(parent.ctx, ast.Store)


def _set(project: Project, targets: Collection[Module], word: str) -> Iterator[tuple[Module, ast.AST, str]]:
    """Where a setting is given a literal, and how it is written there."""
    for module in project.modules:
        if module not in targets or word not in module.text:
            continue
        for node in module.of(ast.Assign, ast.AnnAssign):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(_default(node.value), ast.Constant):
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if _word(target) == word:
                        yield module, node, module.source(target)
        for mapping in module.of(ast.Dict):
            for key, value in zip(mapping.keys, mapping.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == word and isinstance(value, ast.Constant):
                    yield module, key, module.source(key)
        for call, _ in module.calls:
            if isinstance(call.func, ast.Name) and (call.func.id == "dict" or call.func.id.endswith("Dict")):
                for keyword in call.keywords:
                    if keyword.arg == word and isinstance(keyword.value, ast.Constant):
                        yield module, keyword.value, word


def _default(value: ast.expr | None) -> ast.expr | None:
    """What a setting is given; of a field of a class of data its default."""
    if isinstance(value, ast.Call) and called_name(value) == "field":
        return next((k.value for k in value.keywords if k.arg == "default"), None)
    return value


def _computed_no_more(project: Project, edited: dict[Module, Edits], word: str) -> bool:
    """Whether what set a name went with its reads: nobody sets it, by whatever file or call."""
    stores = [(module, s) for module in project.modules if word in module.text for s in _stored(module, word)]
    elsewhere = any(word in k for module in project.modules for k in _keys(module, word))
    gone = (module in edited and edited[module].gone(statement) for module, statement in stores)
    return bool(stores) and all(gone) and not elsewhere


def _stored(module: Module, word: str) -> Iterator[ast.stmt]:
    for node in module.of(ast.Assign, ast.AnnAssign):
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_word(target) == word for target in targets):
                yield node


def _keys(module: Module, word: str) -> Iterator[str]:
    """Where a file has a name as a key, or as what a call gives."""
    yield from (c.value for c in module.of(ast.Constant) if isinstance(c, ast.Constant) and c.value == word)
    yield from (k.arg for call, _ in module.calls for k in call.keywords if k.arg == word)


def _told(output: Output, module: Module, shown: str) -> bool:
    """Whether that a setting has no effect is said already."""
    return any(shown in f.message and "no effect" in f.message for f in output.findings.get(module, ()))


def _parameters(project: Project, function: Function, edits: Edits, output: Output) -> None:
    """Tell of a parameter that nothing reads any more, where a call gives it a literal, or leaves it to one. Of one that
    chose whether the loss is scaled the audit tells."""
    module = function.module
    for node in unread(function, edits):
        if edits.gone(node) or "scale_loss" in module.source(function.node):
            continue
        name, default = node.arg, function.defaults.get(node.arg)
        given = [
            dict(project.arguments(function, call)).get(name, default) for _, call in project.calls.get(function, ())
        ]
        if any(_literal(module, value) for value in (given or [default])):
            message = f"{function.name} takes {name} still, and reads it no more: no effect"
            output.note(module, node, "AMP119", name, message, "look")


def _literal(module: Module, value: ast.expr | None) -> bool:
    """Whether a value says something by itself, or by a name of the file: True, "O2", 128, OPT_LEVEL."""
    if isinstance(value, ast.Name):
        value = single_assignment(module, value)
    return isinstance(value, ast.Constant) and value.value is not None
