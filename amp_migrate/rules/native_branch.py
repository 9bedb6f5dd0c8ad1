"""Where a native branch already stands beside the Apex one, the Apex branch goes and the native one stays as it is.

Native: https://pytorch.org/docs/stable/notes/amp_examples.html
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.conditions import availability
from amp_migrate.reading.module import Module
from amp_migrate.reading.native import NativeTwin
from amp_migrate.rules.migration import Migration

CODES = (
    Code(
        "AMP120",
        "The Apex branch goes where a native one stands beside it",
        "amp.initialize",
        apex="One of two ways to train, chosen by a switch.",
        native="The other way: it is already written.",
        why="Nothing needs to be added. Whoever asked for Apex now gets the native path.",
        links=("https://pytorch.org/docs/stable/notes/amp_examples.html",),
        examples=(
            Example(
                'if use_amp == "apex":\n    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n'
                'elif use_amp == "native":\n    scaler.scale(loss).backward()',
                'if use_amp == "native":\n    scaler.scale(loss).backward()',
            ),
        ),
    ),
)


def apply(m: Migration, twin: NativeTwin) -> bool:
    """Take the Apex branches out; False, with nothing kept, where some use of Apex is not in one of them."""
    for module in m.project.modules:
        _module(m, module, twin)
    unit = m.unit
    nodes: list[tuple[Module, ast.AST, str, str]] = [
        *((i.module, i.call, "amp.initialize", "AMP110") for i in unit.inits),
        *((x.module, x.call, "amp.scale_loss", "AMP201") for x in unit.losses),
        *((s.module, s.node, s.construct, "AMP120") for s in unit.sites),
    ]
    if any(not m.edit(module).gone(node) for module, node, _, _ in nodes):
        return False
    for module, node, construct, _ in nodes:
        m.output.done(module, node, "AMP120", construct, "the native branch beside it stays", "look")
    return True


def _module(m: Migration, module: Module, twin: NativeTwin) -> None:
    edits = m.edit(module)
    available = availability(m.project, module)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.If):
            value = twin.value(module, node.test)
            if value is None:
                rest = available.rest(node.test)
                if rest is not None and any(twin.value(module, part) is False for part in rest):
                    value = False
            if value is False or (value is None and twin.only_chooses(module, node.body)):
                if node.orelse:
                    edits.splice(node, "orelse")
                else:
                    edits.delete(node)
            elif value is True:
                edits.splice(node, "body")
        elif isinstance(node, ast.IfExp):
            value = twin.value(module, node.test)
            if value is not None:
                edits.replace(node, (node.body if value else node.orelse,))
