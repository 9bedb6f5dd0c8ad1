"""`apex.parallel.LARC` becomes a class of the program: torch has none, and Apex has dropped its own.

Apex: https://github.com/NVIDIA/apex (apex/parallel)
Native: https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step
Paper: https://arxiv.org/abs/1708.03888

The class adapts gradients inside its step, which `GradScaler.step` calls after unscaling them: nothing else changes. It
has no attribute but these, for the scaler asks an optimizer whether its step unscales by itself, and this one's does not
whatever the wrapped optimizer says.
"""

from __future__ import annotations

import ast

from amp_migrate.findings import Code, Example
from amp_migrate.reading.program.module import FUNCTION_NODES
from amp_migrate.reading.program.project import Project
from amp_migrate.reading.program.tree import walk
from amp_migrate.reading.sites.apex import Site
from amp_migrate.rules.parts.counterpart import Manual, Native
from amp_migrate.writing.edits import Edits
from amp_migrate.writing.style import Style

APEX = "https://github.com/NVIDIA/apex"
PAPER = "https://arxiv.org/abs/1708.03888"
STEP = "https://pytorch.org/docs/stable/amp.html#torch.amp.GradScaler.step"
LARC = "apex.parallel.LARC"
NAMES = frozenset({LARC})
NAME = "LARC"

CLASS = '''
class LARC:
    """Layer-wise adaptive rates (https://arxiv.org/abs/1708.03888) around an optimizer.

    Before each step, every gradient is scaled by trust_coefficient * |p| / (|grad| + weight_decay * |p| + eps). With
    clip, that rate takes the place of the learning rate where it is smaller; without, it multiplies it. Weight decay is
    added here instead of in the optimizer. A gradient stays as it is where it or its parameter is all zeros.
    """

    def __init__(self, optimizer, trust_coefficient=0.02, clip=True, eps=1e-8):
        self.optim = optimizer
        self.trust_coefficient = trust_coefficient
        self.clip = clip
        self.eps = eps

    def __repr__(self):
        return repr(self.optim)

    @property
    def state(self):
        return self.optim.state

    @property
    def param_groups(self):
        return self.optim.param_groups

    @param_groups.setter
    def param_groups(self, value):
        self.optim.param_groups = value

    def state_dict(self):
        return self.optim.state_dict()

    def load_state_dict(self, state_dict):
        self.optim.load_state_dict(state_dict)

    def add_param_group(self, param_group):
        self.optim.add_param_group(param_group)

    def zero_grad(self, set_to_none=True):
        self.optim.zero_grad(set_to_none=set_to_none)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        decays = [group.get("weight_decay", 0) for group in self.param_groups]
        for group, decay in zip(self.param_groups, decays):
            group["weight_decay"] = 0
            for p in group["params"]:
                if p.grad is not None:
                    self._adapt(p, p.grad, group["lr"], decay)
        self.optim.step()
        for group, decay in zip(self.param_groups, decays):
            group["weight_decay"] = decay
        return loss

    def _adapt(self, p, grad, lr, decay):
        p_norm, grad_norm = torch.norm(p), torch.norm(grad)
        rate = self.trust_coefficient * p_norm / (grad_norm + p_norm * decay + self.eps)
        if self.clip:
            rate = torch.clamp(rate / lr, max=1)
        adapts = (p_norm != 0) & (grad_norm != 0)  # a tensor: an `if` would wait for the device
        grad.add_(p * (decay * adapts)).mul_(torch.where(adapts, rate, torch.ones_like(rate)))
'''

CODES = (
    Code(
        "AMP645",
        "LARC becomes a class of the program",
        "parallel.LARC",
        apex="Wrapped an optimizer and rescaled each gradient by the ratio of parameter and gradient norm in its step. "
        "Apex has dropped it.",
        native="A class of the same behaviour is written into the file that used Apex's. GradScaler.step unscales the "
        "gradients before it calls the class's step.",
        why="torch has no layer-wise adaptive rates, and another optimizer trains differently.",
        links=(APEX, PAPER, STEP),
        examples=(
            Example(
                "import torch\nfrom apex.parallel.LARC import LARC\n\noptimizer = LARC(optimizer, clip=False)\n",
                f"import torch\n\n{CLASS}\n\noptimizer = LARC(optimizer, clip=False)\n",
            ),
        ),
    ),
)


def convert(project: Project, site: Site) -> Native | Manual:
    """The class in place of Apex's; by hand where its name is taken or comes from another file."""
    for scope in site.scope.chain():
        if NAME in scope.bindings and not (scope.imports.get(NAME) or "").startswith("apex."):
            return Manual(
                "AMP645",
                "torch has no LARC, and Apex has dropped it; a class for it cannot be written here, where something "
                "else has its name: take the wrapper over into the project under another one",
            )
    message = "Apex has dropped LARC and torch has none: the class is written into this file, with the same behaviour"
    return Native("AMP645", (NAME,), message, "review", define=write)


def write(site: Site, edits: Edits) -> None:
    """Put the class into the file, once, and its name in the place of Apex's."""
    edits.replace(site.node, NAME)
    style = Style(site.module)
    torch, stmt = style.torch_name(site.module.root)
    text = _definition(style, torch)
    if any(text in codes for codes in edits.before.values()):
        return
    if stmt is not None:
        edits.import_torch(stmt)
    edits.insert_before(_place(site), text)


def _definition(style: Style, torch: str) -> str:
    """The class as a file writes things."""
    text = CLASS.strip("\n")
    if style.quote == "'":
        text = "\n".join(line if '"""' in line else line.replace('"', "'") for line in text.split("\n"))
    if torch != "torch":
        text = text.replace("torch.", f"{torch}.")
    return text.replace("    ", style.indent)


def _place(site: Site) -> ast.stmt:
    """The statement before which the class stands: the first definition of the file, or the first use above it."""
    for stmt in site.module.tree.body:
        if isinstance(stmt, (*FUNCTION_NODES, ast.ClassDef)) or any(n is site.node for n in walk(stmt)):
            return stmt
    raise AssertionError("a site stands in a statement of its file")
