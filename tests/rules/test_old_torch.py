"""Branches for a torch without mixed precision of its own: no run comes there any more."""

from __future__ import annotations

import warnings

import pytest

from tests.rules.helpers import check_rewrite, check_untouched, rewrite, rewrite_files

FLAGS = """\
import torch
from packaging import version

_use_native_amp = False
_use_apex = False

# Check if the version is >= 1.6 to switch between native mixed precision and Apex
if version.parse(torch.__version__) < version.parse("1.6"):
    from tools import is_apex_available

    if is_apex_available():
        from apex import amp
    _use_apex = True
else:
    _use_native_amp = True
    from torch.cuda.amp import autocast


class Trainer:
    def __init__(self, fp16, model, optimizer):
        self.fp16, self.model, self.optimizer = fp16, model, optimizer
        if self.fp16 and _use_native_amp:
            self.scaler = torch.cuda.amp.GradScaler()

    def train(self, batches):
        model = self.model
        if self.fp16 and _use_apex:
            model, self.optimizer = amp.initialize(model, self.optimizer, opt_level="O1")
        for batch in batches:
            if self.fp16 and _use_native_amp:
                with autocast():
                    loss = model(batch).pow(2).mean()
                self.scaler.scale(loss).backward()
            elif self.fp16 and _use_apex:
                with amp.scale_loss(model(batch).pow(2).mean(), self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                model(batch).pow(2).mean().backward()
            if _use_native_amp and self.fp16:
                self.scaler.unscale_(self.optimizer)
            norm = amp.master_params(self.optimizer) if _use_apex else model.parameters()
            torch.nn.utils.clip_grad_norm_(norm, 1.0)
            if self.fp16 and not _use_apex:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
            model.zero_grad()
"""
WITHOUT_FLAGS = """\
import torch

from torch.amp import autocast


class Trainer:
    def __init__(self, fp16, model, optimizer):
        self.fp16, self.model, self.optimizer = fp16, model, optimizer
        if self.fp16:
            self.scaler = torch.amp.GradScaler("cuda")

    def train(self, batches):
        model = self.model
        for batch in batches:
            if self.fp16:
                with autocast("cuda"):
                    loss = model(batch).pow(2).mean()
                self.scaler.scale(loss).backward()
            else:
                model(batch).pow(2).mean().backward()
            if self.fp16:
                self.scaler.unscale_(self.optimizer)
            norm = model.parameters()
            torch.nn.utils.clip_grad_norm_(norm, 1.0)
            if self.fp16:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()
            model.zero_grad()
"""


def test_flags_that_the_version_decides_go_with_their_branches() -> None:
    result = check_rewrite(FLAGS, WITHOUT_FLAGS)
    assert {f.code for f in result.findings if f.status == "done"} >= {"AMP124"}


CHAIN = FLAGS.replace(
    """\
            if _use_native_amp and self.fp16:
                self.scaler.unscale_(self.optimizer)
            norm = amp.master_params(self.optimizer) if _use_apex else model.parameters()
            torch.nn.utils.clip_grad_norm_(norm, 1.0)
""",
    """\
            if FIRST:
                self.scaler.unscale_(self.optimizer)
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            elif SECOND:
                norm = torch.nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), 1.0)
            else:
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
""",
)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("self.fp16 and _use_native_amp", "self.fp16"),
        ("_use_native_amp and self.fp16", "self.clip and self.fp16"),
        ("self.fp16 and self.clip and _use_native_amp", "self.fp16 and self.clip"),
    ],
)
def test_an_elif_is_not_reached_where_the_version_alone_let_its_condition_pass(first: str, second: str) -> None:
    result = rewrite(CHAIN.replace("FIRST", first).replace("SECOND", second))
    assert result.after is not None
    assert "amp.master_params" not in result.after
    assert f"if {first.replace(' and _use_native_amp', '').replace('_use_native_amp and ', '')}:" in result.after


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("self.fp16 and self.clip and _use_native_amp", "self.fp16"),  # without `clip` a run comes there
        ("self.fp16 and _use_apex", "self.fp16"),  # `fp16` may hold: it is the version that does not
        ("next(self.turns) and _use_native_amp", "next(self.turns)"),  # asked anew
        ("(self.fp16 or self.clip) and _use_native_amp", "self.other"),
    ],
)
def test_an_elif_that_may_be_reached_keeps_what_it_reads(first: str, second: str) -> None:
    result = rewrite(CHAIN.replace("FIRST", first).replace("SECOND", second))
    assert result.after is None
    assert {f.status for f in result.findings} == {"manual"}


@pytest.mark.parametrize("fp16", [False, True])
def test_what_is_left_trains_as_before(fp16: bool) -> None:
    import torch

    trained = []
    for text in (FLAGS.replace("tools", "builtins"), rewrite(FLAGS).after or ""):
        torch.manual_seed(0)
        names: dict[str, object] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(text, names)
            model = torch.nn.Linear(4, 2)
            trainer = names["Trainer"](fp16, model, torch.optim.SGD(model.parameters(), lr=0.1))  # type: ignore[operator]
            trainer.train(torch.randn(3, 8, 4))
        trained.append(model.weight.detach())
    assert torch.equal(*trained)


def test_a_flag_that_another_file_asks_stays() -> None:
    files = {"trainer.py": FLAGS, "run.py": "from trainer import _use_apex\n\nprint(_use_apex)\n"}
    results = rewrite_files(files)
    after = results["trainer.py"].after
    assert after is not None
    assert "apex import amp" not in after
    assert "_use_apex = False" in after
    assert "_use_native_amp" not in after


NATIVE = """\
import torch
{imports}

{asked}:
    from torch.cuda import amp
else:
    try:
        from apex import amp
    except ImportError:
        print("please install apex")


def train(loss, optimizer, scaler):
    {asked}:
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    else:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()


scaler = amp.GradScaler()
"""


@pytest.mark.parametrize(
    ("imports", "asked"),
    [
        ("", 'if torch.__version__ >= "1.6"'),
        ("", 'if not torch.__version__ < "1.6.0"'),
        ("", "if float(torch.__version__[:3]) >= 1.6"),
        ("", 'if "1.6" <= torch.__version__'),
        ("from distutils.version import LooseVersion", 'if LooseVersion(torch.__version__) > LooseVersion("1.5")'),
        ("from packaging import version", 'if version.parse(torch.__version__) >= version.Version("2.3")'),
        ('TORCH = tuple(int(x) for x in torch.__version__.split(".")[:2])', "if TORCH >= (1, 6)"),
        ('NEW = torch.__version__ >= "1.6"', "if NEW"),
    ],
)
def test_ways_to_ask_for_the_version(imports: str, asked: str) -> None:
    result = rewrite(NATIVE.format(imports=imports, asked=asked))
    assert result.after is not None
    assert "from torch import amp\n" in result.after
    assert "apex" not in result.after
    assert "    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n" in result.after
    assert not [f for f in result.findings if f.status == "manual"]


@pytest.mark.parametrize(
    "asked",
    [
        'if torch.__version__ >= "2.6"',
        'if torchvision.__version__ >= "0.6"',
        'if torch.__version__ >= oldest',
        "if torch.version.cuda >= '10'",
        'if len(torch.__version__) >= 1.6',
    ],
)  # fmt: skip
def test_other_questions_are_none_of_that(asked: str) -> None:
    """Their branches are taken by some torch, or nobody knows."""
    result = rewrite(NATIVE.format(imports="import torchvision\nfrom project import oldest", asked=asked))
    assert not [f for f in result.findings if f.code == "AMP124"]


def test_a_switch_that_somebody_sets_by_hand_is_none_of_that() -> None:
    """Nothing asks for the version: whoever edits the file turns Apex on."""
    text = FLAGS.replace('version.parse(torch.__version__) < version.parse("1.6")', "option('apex')")
    assert not [f for f in rewrite(text).findings if f.code == "AMP124"]


def test_old_branches_without_apex_stay() -> None:
    check_untouched(
        """
        import torch

        if torch.__version__ < "1.6":
            from fallback import stft
        else:
            from torch import stft
        """
    )


def test_flags_of_the_version_that_apex_has_no_part_in_stay() -> None:
    later = """
_no_sync = True
if version.parse(torch.__version__) < version.parse("1.2"):
    _no_sync = False


def wait(model):
    if _no_sync:
        model.no_sync()
"""
    check_rewrite(
        FLAGS + later,
        WITHOUT_FLAGS.replace("import torch\n", "import torch\nfrom packaging import version\n", 1) + later,
    )


REMAINS = """\
import torch


def main(args, model, data):
    amp, scaler = None, None
    optimizer = torch.optim.Adam(model.parameters())
    if args.mixed:
        if torch.__version__ < "1.6":
            from apex import amp

            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        else:
            scaler = torch.amp.GradScaler("cuda")
    train(model, optimizer, data, amp, scaler)
    keep(model, amp=amp)


def train(model, optimizer, data, amp, scaler):
    for x in data:
        with torch.autocast("cuda"):
            loss = model(x).mean()
        if scaler is not None:
            scaler.scale(loss).backward()
        elif amp is not None:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        BEFORE
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
"""


def test_what_is_left_of_apex_beside_the_native_side_is_named() -> None:
    result = rewrite(REMAINS.replace("BEFORE", "pass"))
    assert result.after is not None
    (named,) = [f for f in result.findings if f.construct == "amp"]
    assert (named.code, named.line) == ("AMP124", 5)
    assert named.message.endswith("take out what is left of it (lines 14, 15, 24, 25)")
    (reader,) = [f for f in result.findings if f.code == "AMP122"]
    assert reader.line == 28


def test_a_native_side_that_unscales_and_names_that_serve_others_are_not() -> None:
    other = REMAINS.replace("BEFORE", "scaler.unscale_(optimizer)").replace(
        "amp, scaler = None, None", "amp = scaler = args"
    )
    result = rewrite(other)
    assert result.after is not None
    assert not [f for f in result.findings if f.code == "AMP122" or f.construct == "amp"]


UNDER_A_SETTING = """
    import torch

    use_amp = True
    TEST:
        native = torch.__version__ >= "1.6"
        if native:
            import torch.cuda.amp as amp
        else:
            from apex import amp
    else:
        native = False


    def main(batches):
        model = torch.nn.Linear(2, 1).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if use_amp and not native:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        scaler = amp.GradScaler() if native else None
        for x in batches:
            optimizer.zero_grad()
            if native:
                with amp.autocast():
                    loss = model(x).sum()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            elif use_amp:
                loss = model(x).sum()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
            else:
                loss = model(x).sum()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            return [model(x) for x in batches]
    """


def _turned(text: str) -> str:
    """The program whose test asks for the contrary, and whose branches are the other way round."""
    head, _, rest = text.partition("    TEST:\n")
    on, _, rest = rest.partition("\n    else:\n")
    off, _, rest = rest.partition("\n\n")
    return f"{head}    if not use_amp:\n{off}\n    else:\n{on}\n\n{rest}"


@pytest.mark.parametrize("turned", [False, True])
def test_a_flag_of_the_version_that_a_setting_switches_off_follows_the_setting(turned: bool) -> None:
    """That it is on today is no answer: the branch without mixed precision stays, and only what no torch takes goes."""
    result = rewrite(_turned(UNDER_A_SETTING) if turned else UNDER_A_SETTING.replace("TEST", "if use_amp"))
    after = result.after
    assert after is not None
    assert result.status == "migrated"
    assert "apex" not in after
    assert "initialize" not in after
    assert after.count("if native:\n") == 1
    assert "        else:\n            loss = model(x).sum()\n            loss.backward()\n" in after
    assert 'scaler = amp.GradScaler("cuda") if native else None\n' in after
    assert not [f for f in result.findings if f.code in ("AMP531", "AMP131")]
