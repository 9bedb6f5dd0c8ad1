"""Whether the networks of a program may have buffers that change: what torch's DistributedDataParallel broadcasts."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

from amp_migrate.reading.program.definitions import literal
from amp_migrate.reading.program.module import Module
from amp_migrate.reading.program.processes import in_process
from amp_migrate.reading.program.project import Project

# Packages that bring no network with them, beside Python's own.
WITHOUT_NETWORKS = frozenset(
    "torch apex numpy scipy pandas sklearn skimage cv2 PIL imageio matplotlib seaborn tqdm yaml h5py lmdb natsort requests six nltk "
    "sentencepiece tokenizers regex sacremoses tensorboardX tensorboard wandb sympy numexpr numba psutil termcolor easydict "
    "yacs packaging filelock absl click fire attr attrs joblib prettytable colorama horovod".split()
)
PLAIN = re.compile(r"models\.(alexnet|vgg\d+|squeezenet1_\d)")
UNSEEN = r"torch\.hub|torch\.jit|getattr\((?:torch\.)?nn\b|(?:torch\.)?nn\.__dict__"  # layers that are not told by name
BUFFERS = re.compile(
    rf"BatchNorm|batch_norm|syncbn|InstanceNorm|spectral_norm|register_buffer|\bBuffer\(|{UNSEEN}|(?:quantization|ao)\b",
    re.IGNORECASE,
)
NORMALIZING = re.compile(rf"(?<!sync)(?<!sync_)batch_?norm|{UNSEEN}", re.IGNORECASE)


def may_normalize(project: Project, module: Module) -> bool:
    """Whether a network of the processes that a file runs in may have a layer of batch normalization; so may one that is not in
    sight."""
    return project.once(_normalizing, module)


def _normalizing(project: Project, module: Module) -> bool:
    near = in_process(project, {module})
    bases = (ast.unparse(base) for there in near for node in there.of(ast.ClassDef) for base in node.bases)
    if not any(base.rpartition(".")[2] == "Module" for base in bases):
        return True
    return any(NORMALIZING.search(there.text) or project.once(_brings_networks, there) for there in near)


def may_have_buffers(project: Project, module: Module) -> bool:
    """Whether a network of the processes that a file runs in may have buffers that something writes to: the statistics of a
    batch normalization. Those of a program's own that stay as they were made are the same everywhere."""
    return project.once(_buffers, module)


def _buffers(project: Project, module: Module) -> bool:
    near = in_process(project, {module})
    for there in near:
        if project.once(_brings_networks, there):
            return True
        kept = list(_registered(there))
        if None in kept or len(BUFFERS.findall(there.text)) > len(kept):
            return True
        if any(_written(m, name) for name in kept if name is not None for m in near):
            return True
    return False


def _brings_networks(project: Project, module: Module) -> bool:
    """Whether a file may have networks from elsewhere. See `Project.once`."""
    own = project.once(_own_names)
    return any(_brings(name, own) for name in (*_imports(module), *_uses(module)))


def _own_names(project: Project) -> set[str]:
    """The names of a program's files, and of the folders around them."""
    return {name for m in project.modules for name in (m.path.parts[-1].removesuffix(".py"), *m.path.parts[:-1])}


def _imports(module: Module) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _brings(name: str, own: set[str]) -> bool:
    root, _, rest = name.partition(".")
    if root == "torchvision":
        return (
            bool(rest)
            and rest.partition(".")[0] not in ("transforms", "datasets", "utils", "io")
            and _keeps_statistics(rest)
        )
    return root not in sys.stdlib_module_names | WITHOUT_NETWORKS | own or root == "importlib"


def _keeps_statistics(rest: str) -> bool:
    """Whether what torchvision has by a name is anything but its networks without batch normalization, or where they are."""
    return rest != "models" and PLAIN.fullmatch(rest) is None


def _uses(module: Module) -> Iterator[str]:
    """What a file uses of torchvision, by full names."""
    for node in module.nodes if "torchvision" in module.text else ():
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            name = module.qualify(node) or ""
            if name.startswith("torchvision.") and not isinstance(module.parents.get(node), ast.Attribute):
                yield name if name != "torchvision.models" else "torchvision.models.*"


def _registered(module: Module) -> Iterator[str | None]:
    """The names of the buffers that a file registers; None where one is not seen."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "register_buffer":
            call = module.parents.get(node)
            name = literal(call.args[0]) if isinstance(call, ast.Call) and call.func is node and call.args else None
            yield name if isinstance(name, str) else None


def _written(module: Module, name: str) -> bool:
    """Whether a file may write to a buffer: `self.mean = x`, `self.mean += x`, `self.mean[0] = x`, `self.mean.copy_(x)`."""
    if name not in module.text:
        return False
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == name:
            around = module.parents.get(node)
            while isinstance(around, ast.Subscript):
                node, around = around, module.parents.get(around)
            stored = isinstance(getattr(node, "ctx", None), ast.Store)
            if stored or (isinstance(around, ast.Attribute) and (around.attr.endswith("_") or around.attr == "data")):
                return True
    return False
