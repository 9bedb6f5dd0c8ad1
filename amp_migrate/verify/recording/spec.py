"""What one child process is asked to do; written by the parent, read by the child, as JSON."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

Side = Literal["original", "migrated"]


@dataclass(frozen=True)
class Drill:
    """What a run is made to meet. Windows, backward passes and optimizers are counted as in the record."""

    overflow_at: int | None = None  # a window: one gradient of each of `optimizers` becomes infinite in it,
    backward: int = 0  # after this one of its backward passes, before Apex or a scaler looks
    optimizers: tuple[int, ...] = ()
    nan_at: int | None = None  # a window: what its first forward returns becomes nan
    growth_interval: int | None = None  # of every scaler, from the first window on,
    start_scale: float | None = None  # which then have this scale
    epoch_batches: int | None = None  # every DataLoader ends after so many batches
    off: bool = False  # `amp.initialize` is called with O0
    evaluation: bool = False  # no step is expected: what forwards return is recorded, and the run ends after some
    force_at: int | None = None  # the only window at whose start the state of `force_from` is put in place
    keep: tuple[int, ...] = ()  # windows whose gradients are kept for comparison

    @classmethod
    def of(cls, values: dict[str, Any]) -> Drill:
        """From what JSON made of one."""
        return cls(**{**values, "optimizers": tuple(values["optimizers"]), "keep": tuple(values["keep"])})


ALIVE = "alive"  # a file beside the record, touched where the model runs
ABOVE = 2  # folders above the user's that the copy has above it as well: programs read ../data


@dataclass(frozen=True)
class RunSpec:
    """One run of one program.

    `captures` are steps (of the busiest optimizer): at the start of each window (see `Recorder`) that opens there the
    full state is saved, with the gradients of the attempts that follow. `force_from` names a folder with such captures:
    the state of each is put in place before its window runs. `noise` is the relative amplitude of rounding noise put on
    weights (once, or whenever state is forced) and on every gradient; 0 means none.

    With `tree`, the program lies in that folder and runs in a copy of it made for this run (`own_tree`), which goes when
    the run ends unless `keep_tree`; `origin` is the user's folder that all of them are copies of. `continues` is the tree
    that another run left, to go on in a copy of it.
    """

    script: str
    argv: tuple[str, ...]
    cwd: str
    side: Side
    out: str
    steps: int
    apex: Literal["auto", "installed", "shim"] = "auto"
    device: Literal["auto", "cuda", "cpu"] = "auto"
    seed: int = 0
    start_scale: float | None = None  # every dynamic scaler starts from it
    captures: tuple[int, ...] = ()
    capture_budget: int = 1 << 31  # bytes on disk
    force_from: str | None = None
    noise: float = 0.0
    noise_seed: int = 1
    census: bool = False
    full_precision: bool = False
    keep_save_near: int | None = None  # a step: of the checkpoints the program saves, the one nearest to it is kept
    restore_rng_of: str | None = None  # a kept save: torch.load of it puts its random state back
    rank: int = 0
    world: int = 1
    port: int = 0  # of the rendezvous, the same for every rank
    tree: str | None = None
    origin: str | None = None
    called_from: str | None = None  # the folder of the original program, where that is another
    keep_tree: bool = False
    continues: str | None = None
    watch: str | None = None  # a file that says which statements to mark, see `recording.marks`
    restart_at: int | None = (
        None  # a window: weights are scrambled at the start and everything is loaded from a file here
    )
    drill: Drill | None = None

    def of_rank(self, rank: int, world: int, port: int) -> RunSpec:
        """The run of one process of a distributed job: the same program, with a record of its own."""
        own = replace(self, out=f"{self.out}/rank{rank}", rank=rank, world=world, port=port)
        return own if self.force_from is None else replace(own, force_from=f"{self.force_from}/rank{rank}")

    @property
    def home(self) -> Path:
        """The folder of the job; that of the run itself where it is the only process."""
        return Path(self.out) if self.world == 1 else Path(self.out).parent

    @property
    def own_tree(self) -> Path | None:
        """Where the copy for this run stands."""
        if self.tree is None:
            return None
        names = Path(self.origin).parts[1:][-1 - ABOVE :] if self.origin is not None else ()
        return self.home.joinpath("tree", *names)

    def in_own_tree(self) -> RunSpec:
        """The same run in its own copy; arguments that name places in the user's folder name those in the copy."""
        tree = self.own_tree
        if self.tree is None or tree is None:
            return self
        script, cwd = (str(tree / Path(path).relative_to(self.tree)) for path in (self.script, self.cwd))
        return replace(self, script=script, cwd=cwd, argv=tuple(self.moved(argument) for argument in self.argv))

    def moved(self, text: str) -> str:
        """An argument, `--out=/home/me/project/out`, or a variable, with places of the user's folder as those of the copy;
        not what was left out of it (a virtual environment)."""
        if self.origin is None or (tree := self.own_tree) is None:
            return text
        for user in sorted({self.origin, self.called_from or self.origin}, key=len, reverse=True):

            def place(found: re.Match[str], user: str = user) -> str:
                left_out = os.path.exists(user + found[2]) and not os.path.exists(f"{tree}{found[2]}")
                return found[0] if left_out else f"{found[1]}{tree}{found[2]}"

            text = re.sub(rf"(^|[=:,]){re.escape(user)}((?:/[^:,]*)?)(?=$|[:,])", place, text)
        return text

    def shown(self, text: str) -> str:
        """`text` with the paths of the copy, and of what lies beside it, replaced by the user's."""
        own = self.own_tree
        if self.tree is None or self.origin is None or own is None:
            return text
        text = text.replace(self.tree, self.origin)
        for copy, user in list(zip((own, *own.parents), (Path(self.origin), *Path(self.origin).parents), strict=False))[
            : 1 + ABOVE
        ]:
            if copy != self.home / "tree":
                text = text.replace(str(copy), str(user))
        return text

    def environment(self) -> dict[str, str]:
        """What torchrun sets (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables)."""
        if self.world == 1:
            return {}
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.rank),
            "GROUP_RANK": "0",
            "ROLE_RANK": str(self.rank),
            "WORLD_SIZE": str(self.world),
            "LOCAL_WORLD_SIZE": str(self.world),
            "ROLE_WORLD_SIZE": str(self.world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
        }

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> RunSpec:
        values = json.loads(path.read_text())
        drill = values["drill"] and Drill.of(values["drill"])
        return cls(**{**values, "argv": tuple(values["argv"]), "captures": tuple(values["captures"]), "drill": drill})
