"""Apex's DistributedDataParallel tolerated what torch's does not: parameters that get no gradient, a forward on one rank.

Says where the program itself shows that there are such parameters and the call does not ask torch to look for them: a
sibling call or a comment that passes `find_unused_parameters`, a list of parameters that leaves a part out because it gets
no gradient, a module that is made in `__init__` and used nowhere in training, in the model or in what it is made of, a list
of which some parts alone are run, by their places, a part that the model's own `train()` or forward freezes, once it is wrapped,
a part that a loop carries a value through whose last value nothing reads (`h, s = block(h)`),
a head whose outputs no caller reads, nor the network that has it in a part of its own, a part that one of the calls which
train the model leaves out (`model(x, mode="d")`), a collection of which a forward runs what its caller picks
(`self.heads[task](x)`). Of a network that is chosen by name, those in sight with such a module are named. A model that is seen
to run without gradients alone waits for none.

Says where a test for the rank stands around a forward of the model, also by way of functions of the program.

Cannot prove that every parameter of a model gets a gradient; rule AMP601 says in general what differs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from amp_migrate.audit.doubts import Doubt
from amp_migrate.audit.kept import kept
from amp_migrate.audit.program import syntax
from amp_migrate.audit.program.module import Class, Module
from amp_migrate.audit.review import Review, names_called
from amp_migrate.audit.sites.built import built
from amp_migrate.audit.sites.heads import heads_within, unread, unread_within
from amp_migrate.audit.sites.kept_wrappers import APEX_DDP
from amp_migrate.audit.sites.last_turn import unread_in_last
from amp_migrate.audit.sites.left_out import left_out
from amp_migrate.audit.sites.one_rank import on_one_rank
from amp_migrate.audit.sites.picked import in_turn, picked
from amp_migrate.audit.sites.setups import argument
from amp_migrate.audit.sites.unused import frozen_later, nested, past_forward, unused
from amp_migrate.audit.sites.unused_items import unused_items
from amp_migrate.audit.sites.wrapped_runs import Runs, runs, several
from amp_migrate.audit.values.origins import in_order
from amp_migrate.findings import Code

CODES = (
    Code(
        code="AMP651",
        title="Parameters without gradients under torch's DistributedDataParallel",
        construct="apex.parallel.DistributedDataParallel",
        apex="Builds its buckets from the gradients that arrive: a parameter that gets none is no error, in any mode.",
        native="Raises in the second iteration unless find_unused_parameters=True.",
        why="The program shows parameters that get no gradient, so every run on several GPUs would stop.",
        links=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    ),
    Code(
        code="AMP652",
        title="A model under torch's DistributedDataParallel that runs on one rank only",
        construct="apex.parallel.DistributedDataParallel",
        apex="Broadcasts nothing in a forward: one rank may evaluate by itself.",
        native="Broadcasts the buffers before a forward, in eval mode too; of a row of forwards without gradients before the "
        "first. Not where its attribute broadcast_buffers is False; the argument of that name is deprecated since torch 2.13.",
        why="With buffers, such as the statistics of batch normalization, the rank that evaluates waits for ever.",
        links=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",),
    ),
)

TORCH_DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
MOST = 4  # networks that are named
OPTION = "find_unused_parameters"
DIFFERS = (
    "Apex's DistributedDataParallel let a parameter go without a gradient, torch's raises in the second iteration, of a "
    "single process, too"
)


def check(review: Review) -> Iterable[Doubt]:
    for module, call, _ in review.calls_after(*TORCH_DDP):
        if not was_apexs(review, module, call):
            continue
        alone = on_one_rank(review, module, call)
        if alone is not None and not (call.args and built(review, module, call.args[0]).surely_without_buffers):
            message = (
                f"{alone} runs the model on one rank only, and torch's DistributedDataParallel broadcasts buffers before its "
                "forward: with any (batch normalization, `register_buffer`) it waits there for the other ranks for ever, as "
                "Apex's did not; set broadcast_buffers = False of what it gives"
            )
            yield _answered(review.doubt(module, call, "AMP652", "DistributedDataParallel", message, "review"))
        if any(k.arg in (OPTION, None) for k in call.keywords):
            continue
        seen = runs(review, module, call)
        if seen.never_trained:
            continue
        shown = _shown(review, module, call) or _beside(review, module, call)
        if shown is None and (part := _of_some_runs(review, module, call, seen)) is not None:
            shown, found = part
            if not found:
                message = (
                    f"{shown}, and one backward follows several forwards: {DIFFERS}. {OPTION}=True helps if the last forward "
                    "of each backward uses all that the others do, static_graph=True if all steps are alike"
                )
                yield _answered(review.doubt(module, call, "AMP651", "DistributedDataParallel", message, "review"))
                continue
        said = None if shown is not None else _said(review, module, call)
        evidence = shown or said or _asked(review, module)
        if evidence is not None:
            message = f"{evidence}: {DIFFERS}; pass {OPTION}=True"
            doubt = review.doubt(module, call, "AMP651", "DistributedDataParallel", message, "review")
            checkpoints = any(map(_recomputes, review.after.modules.values()))
            written = not checkpoints and (shown or (said and not any(several(g) for g in seen.groups)))
            yield _answered(replace(doubt, because=evidence) if written else doubt)
        elif (named := _chosen_by_name(review, module, call)) is not None:
            message = (
                f"the network is chosen by name, and some in sight may make parts that nothing uses in training: {named}. Where "
                f"such a one is wrapped, torch's DistributedDataParallel raises in the second iteration; pass {OPTION}=True then"
            )
            yield review.doubt(module, call, "AMP651", "DistributedDataParallel", message, "look")


def _recomputes(module: Module) -> bool:
    """Whether a file speaks of recomputing activations, beside which torch may refuse that option."""
    imported = (n for n in syntax.every(module.tree, ast.ImportFrom) if n.module == "torch.utils")
    named = any(alias.name == "checkpoint" for n in imported for alias in n.names)
    return named or "torch.utils.checkpoint" in module.text or "gradient_checkpointing" in module.text


def was_apexs(review: Review, module: Module, call: ast.Call) -> bool:
    """Whether a call of torch's class, after, stands where one of Apex's stood, or is new, or serves for one beside it."""
    change = review.changes.get(module.path)
    if change is None:
        return False
    stmt = module.statement(call)
    old = change.same[stmt] if stmt in change.same else change.was(stmt)
    if old is None or _was_apex(review, change.before, old):
        return True
    kept = {change.was(s) for s in change.after.ancestors(stmt) if isinstance(s, ast.stmt)}
    gone = (a for a in change.before.ancestors(old) if isinstance(a, ast.If) and a not in kept)
    return any(_was_apex(review, change.before, s) for a in gone for s in (*a.body, *a.orelse))


def _answered(doubt: Doubt) -> Doubt:
    """A doubt about a call that a rule is to write otherwise: with the argument that answers it, if there is a reason to be
    said of that, else without the general sentence about what the doubt says of this model."""
    return replace(doubt, remedy=(doubt.path, doubt.line))


ASKING = re.compile(r"\b(check|checks|if|whether|assert|ensure|make sure|any)\b")  # a comment that does not know


def _was_apex(review: Review, before: Module, stmt: ast.stmt) -> bool:
    """Whether the class that a statement calls was Apex's: `DDP(model)` whose import changed."""
    return not names_called(review.before, before, stmt).isdisjoint(APEX_DDP)


def _asked(review: Review, module: Module) -> str | None:
    """Where a file passes the option itself, whatever it is there."""
    lines = review.before.modules.get(module.path, module).lines  # as the reader has them
    for number, line in () if _refused(lines) else enumerate(lines, 1):
        line = line.partition("#")[0]
        if re.search(rf"{OPTION}\s*=\s*(True|args|self|cfg|config)", line) and "=False" not in line:
            return f"line {number} passes {OPTION}"
    return None


def _refused(lines: Sequence[str]) -> bool:
    """Whether a file says why the option is not asked for."""
    comments = [line.partition("#")[2].lower() for line in lines]
    return any(OPTION in c and re.search(r"\b(not|never|don't|cannot|can't)\b", c) for c in comments)


def _said(review: Review, module: Module, call: ast.Call) -> str | None:
    """What a file says of parameters that get no gradient, unless that is of another model: the parts that it names are seen to
    be read in what the call wraps."""
    lines = review.before.modules.get(module.path, module).lines
    if _refused(lines):
        return None
    for number, line in enumerate(lines, 1):
        comment = line.partition("#")[2].lower()
        if comment and re.search(r"(none|no|without( a)?) grad|not used|unused param", comment):
            told = re.search(r"grad|pooler|param", comment) and not ASKING.search(comment)
            named = re.findall(r"\w+", _whole_comment(lines, number)) if told else []
            if told and _parts_read(review, module, call).isdisjoint(named):
                return f"line {number} says that a parameter gets no gradient"
    for number, line in enumerate(lines, 1):
        if re.search(r"""["']pooler["'] not in""", line) and "pooler" not in _parts_read(review, module, call):
            return f"line {number} leaves the pooler out of the optimizer"
    for number, line in enumerate(lines, 1):
        if re.match(r"""\s*no_grads?(_params?)?\s*=\s*\[\s*["']""", line):
            return f"line {number} lists parameters that get no gradient"
    return None


def _whole_comment(lines: Sequence[str], number: int) -> str:
    """The comment of a line with those of the lines around it that hold nothing else."""
    first, last = number - 1, number
    while first and lines[first].lstrip().startswith("#") and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    while last < len(lines) and lines[last].lstrip().startswith("#"):
        last += 1
    return " ".join(line.partition("#")[2].lower() for line in lines[first:last])


@kept
def _parts_read(review: Review, module: Module, call: ast.Call) -> frozenset[str]:
    """The heads, by name, of the parts of a model that a call wraps which that is seen to read."""
    networks = (n for c in _classes(review, module, call) for n in nested(review.after, c))
    return frozenset(layer for n in networks for _, _, layer, read in heads_within(review.after, n) if read)


def _shown(review: Review, module: Module, call: ast.Call) -> str | None:
    """What of the model that a call wraps is seen to get no gradient."""
    networks = list(dict.fromkeys(n for c in _classes(review, module, call) for n in nested(review.after, c)))
    for network in networks:
        for name, where in unused(review.after, network):
            return f"{network.name} makes self.{name} in __init__ and uses it {where}"
        for name, made, run in unused_items(review.values_after, network):
            return f"{network.name} makes {made} parts in self.{name} and runs {run} of them"
    for network in networks:
        for field, part in past_forward(review.after, network):
            return f"{network.name} runs parts of self.{field} past its own forward, and nothing runs its {part}"
        for field, layer in unread_in_last(review.values_after, network):
            part = f"what self.{layer} of the last of self.{field}" if layer else f"what the last of self.{field}"
            return f"{network.name} reads nothing of {part} gives"
        for field, kind, dropped in unread_within(review.after, network):
            return f"{network.name} reads nothing of what self.{dropped} of its self.{field}, a {kind}, gives"
    for network in networks:
        if (line := frozen_later(review.after, network)) is not None:
            return f"{network.module.path}:{line} freezes a part of {network.name} once it is wrapped"
    wrapped = argument(call, "module", 0)
    name = syntax.text(wrapped).rpartition(".")[2] if wrapped is not None else ""
    for cls in _classes(review, module, call):
        head = next(unread(review.after, module, cls, name), None)
        if head is not None:
            return f"what self.{head} of {cls.name} gives is returned, and nothing that runs the model reads it"
    return None


def _of_some_runs(review: Review, module: Module, call: ast.Call, seen: Runs) -> tuple[str, bool] | None:
    """What of the model that a call wraps some of its runs give no gradient; whether torch finds that out, if it is asked to."""
    classes = list(_classes(review, module, call))
    out = left_out(review, seen, classes)
    if out is not None:
        at = f"{out.module.path}:{review.line(out.module, out.call)}"
        return f"{at} runs {out.network.name} with no gradient for its {out.part}", out.found and not seen.open
    networks = list(dict.fromkeys(n for c in classes for n in nested(review.after, c))) if seen.groups else []
    for network in networks:
        for _, place in picked(review.after, network):
            if not in_turn(review.after, networks):
                told = f"{network.name} runs {place}, as its caller picks, and no other part of that"
                return told, not seen.open and not any(several(group) for group in seen.groups)
    return None


def _chosen_by_name(review: Review, module: Module, call: ast.Call) -> str | None:
    """What the program's networks have that gets no gradient, where which of them a call wraps is asked for by name:
    `getattr(networks, args.arch)()`."""
    wrapped = argument(call, "module", 0)
    made = review.values_after.makings(module, wrapped) if wrapped else ()
    if not any(_by_name(review, there, c.func) for there, c in made):
        return None
    networks = (c for m in review.after.modules.values() for c in m.classes if review.after.is_network(c))
    parts = ((c, ", ".join(name for name, _ in unused(review.after, c))) for c in networks)
    told = [f"{c.name} ({names})" for c, names in parts if names]
    more = f" and {len(told) - MOST} more" if len(told) > MOST else ""
    return f"{', '.join(told[:MOST])}{more}" if told else None


def _by_name(review: Review, module: Module, called: ast.expr) -> bool:
    """Whether what is called is looked up by a name that is no literal: `getattr(networks, args.arch)`."""
    origins = [called, *(o.node for o in review.values_after.of(module, called))]
    looked_up = (n for n in origins if isinstance(n, ast.Call) and syntax.text(n.func) == "getattr")
    return any(len(call.args) > 1 and not isinstance(call.args[1], ast.Constant) for call in looked_up)


def _beside(review: Review, module: Module, call: ast.Call) -> str | None:
    """Another program that wraps a model of the same class, and passes the option."""
    mine = set(_classes(review, module, call))
    for other, wrap, _ in review.calls_after(*TORCH_DDP) if mine else ():
        given = next((k.value for k in wrap.keywords if k.arg == OPTION), None)
        if wrap is call or not isinstance(given, ast.Constant) or given.value is not True:
            continue
        if was_apexs(review, other, wrap):
            continue  # which is a migration itself
        if (same := next((c for c in _classes(review, other, wrap) if c in mine), None)) is not None:
            return f"{other.path}:{review.line(other, wrap)} wraps a {same.name} with {OPTION}=True"
    return None


def _classes(review: Review, module: Module, call: ast.Call) -> Iterator[Class]:
    """The classes of the program of which what a call wraps may be an object."""
    wrapped = argument(call, "module", 0)
    for origin in in_order(review.values_after.of(module, wrapped)) if wrapped is not None else ():
        if not isinstance(origin.node, ast.Call):
            continue
        scope = origin.module.scope_of(origin.node)
        func = origin.node.func
        if isinstance(func, ast.Attribute) and func.attr == "from_pretrained":
            func = func.value
        yield from (c for c in review.after.definitions(scope, func, guess=False) if isinstance(c, Class))
