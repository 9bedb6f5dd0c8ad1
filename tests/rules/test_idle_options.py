"""Command-line options that only fed Apex: kept for launch scripts, and said to have no effect."""

from __future__ import annotations

import pytest

from tests.rules.helpers import rewrite, rewrite_files
from tests.rules.programs import apex, found, initialize
from tests.rules.test_initialize import SWITCH

IMPORT = "from apex import amp\n"


def declared(option: str) -> str:
    return IMPORT + SWITCH.replace('"--fp16", action="store_true"', option)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("keep_batchnorm_fp32", "--keep-batchnorm-fp32"),
        ("master_weights", "--master-weights"),
        ("verbosity", "--amp-verbosity"),
    ],
)
def test_an_option_that_only_fed_apex_is_kept_and_reported(name: str, option: str) -> None:
    attribute = option[2:].replace("-", "_")
    source = apex(
        prepare=initialize(f'opt_level="O2", {name}=args.{attribute}'), imports=declared(f'"{option}", default=None')
    )
    result = rewrite(source)
    assert result.after is not None
    assert f'parser.add_argument("{option}", default=None)' in result.after
    (finding,) = found(result, "AMP119")
    assert option in finding.message
    assert source.splitlines()[finding.line - 1].startswith("parser.add_argument")


def test_the_argument_that_lost_its_effect_is_named_also_where_something_else_reads_it() -> None:
    prepare = initialize('opt_level="O2", keep_batchnorm_fp32=cfg.keep') + "\nprint(cfg.keep)"
    result = rewrite(apex(prepare=prepare, imports=IMPORT + "from project import cfg"))
    assert any("keep_batchnorm_fp32=cfg.keep has no effect" in f.message for f in found(result, "AMP112"))


@pytest.mark.parametrize("argument", ["opt_level=args.opt_level", 'opt_level="O1", loss_scale=args.opt_level'])
def test_nothing_is_said_of_an_option_that_the_migrated_program_reads(argument: str) -> None:
    result = rewrite(apex(prepare=initialize(argument), imports=IMPORT + SWITCH))
    assert not [f for f in found(result, "AMP119") if "opt" in f.message]


def test_nothing_is_said_of_an_option_that_something_else_reads() -> None:
    source = apex(
        prepare=initialize('opt_level="O2", keep_batchnorm_fp32=args.keep') + "\nbuild(args.keep)",
        imports=declared('"--keep", default=None'),
    )
    assert not found(rewrite(source), "AMP119")


@pytest.mark.parametrize(
    ("read", "told"),
    [
        ("print(args.keep)", True),
        ('logger.info(f"norms: {args.keep}")', True),
        (
            "kept = args.keep\nif args.keep is None:\n    kept = 'as it is'\nprint('norms', kept)",
            False,
        ),  # others may import it
        ("def tell(args):\n    kept = args.keep or 'as it is'\n    print(kept)\ntell(args)", True),
        ("class Told:\n    def tell(self):\n        self.keep = args.keep\n        self.log.info(self.keep)", True),
        ("if args.keep:\n    print('norms are kept')", True),
        ("if args.keep:\n    print('norms are kept')\n    raise SystemExit", False),
        ("class Told:\n    def tell(self):\n        self.keep = args.keep\n        return self.keep", False),
        ("print(build(args.keep))", True),
        ("known, _ = parser.parse_known_args()\nlogging.basicConfig(level=[30, 20][known.keep])", False),
        ("logger.setLevel(args.keep)", False),
        ("logger.addHandler(logging.FileHandler(args.keep))", False),
        ('tqdm.write(f"norms: {args.keep}")', True),
        ("print(args.keep, amp.state_dict())", True),
        ("if args.keep:\n    pass\nprint(args.keep)", True),
        ("def tell(args):\n    kept = build(args.keep)\n    print(kept)\ntell(args)", False),
        ("def tell(args, kept):\n    kept['keep'] = args.keep\n    print(kept)\ntell(args, {})", False),
        ("def tell(args):\n    kept = args.keep\n    print(kept)\ndef other(kept):\n    return kept\ntell(args)", True),
    ],
)
def test_an_option_that_is_only_printed_has_no_effect(read: str, told: bool) -> None:
    source = apex(
        prepare=initialize('opt_level="O2", keep_batchnorm_fp32=args.keep') + f"\n{read}",
        imports=declared('"--keep", default=None'),
    )
    messages = [f.message for f in found(rewrite(source), "AMP119")]
    assert bool(messages) == told
    assert all("only what is printed or logged hangs on it now (train.py:" in m for m in messages)


def test_nothing_is_said_of_an_option_that_what_is_written_reads_beside_a_print() -> None:
    prepare = "print(args.loss_scale)\n" + initialize('opt_level="O1", loss_scale=args.loss_scale')
    result = rewrite(apex(prepare=prepare, imports=declared('"--loss-scale", default=None')))
    assert result.after is not None
    assert "loss_scale" in result.after.partition("print(args.loss_scale)")[2]
    assert not found(result, "AMP119")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('print("using apex synced BN")', True),
        ('rank_print("training with Apex")', True),
        ('logger.info(f"apex on {device}")', True),
        ('assert device, "install nvidia-apex first"', True),
        ('print("using synced BN")', False),
        ('raise ValueError("Apex is not available here")', True),
        ('raise ValueError("fp16 is not available here")', False),
        ('amp.unknown("apex")\nprint("apex")', False),  # of which some stays
    ],
)
def test_what_is_printed_or_logged_and_still_says_apex_is_named_once_a_file(line: str, told: bool) -> None:
    text = initialize('opt_level="O1"')
    source = apex(prepare=f"{text}\nif device:\n    {line.replace(chr(10), chr(10) + '    ')}")
    messages = [f.message for f in found(rewrite(source), "AMP854")]
    assert len(messages) is int(told)
    assert all(m.startswith("what is printed, logged, asserted or raised still says Apex (line ") for m in messages)


def test_nothing_is_said_of_an_option_read_by_its_name() -> None:
    source = apex(
        prepare=initialize('opt_level="O2", keep_batchnorm_fp32=args.keep') + '\nprint(getattr(args, "keep"))',
        imports=declared('"--keep", default=None'),
    )
    assert not found(rewrite(source), "AMP119")


@pytest.mark.parametrize("beside", ["", "\namp.unknown()"])
def test_nothing_is_said_of_what_was_only_printed_before_or_where_some_of_apex_stays(beside: str) -> None:
    source = apex(
        prepare=initialize('opt_level="O2", keep_batchnorm_fp32=args.keep') + "\nprint(args.keep, args.title)" + beside,
        imports=declared('"--keep", default=None') + 'parser.add_argument("--title")\n',
    ).replace("args = parser.parse_args()\n", "", 1)
    source = source.replace('"--title")\n', '"--title")\nargs = parser.parse_args()\n', 1)
    told = found(rewrite(source), "AMP119")
    assert ["--keep" in f.message for f in told] == ([] if beside else [True])
    assert all((f.review, f.construct) == ("look", "add_argument") for f in told)


def test_nothing_is_said_of_an_option_that_was_never_read() -> None:
    assert not found(rewrite(apex(imports=declared('"--unused"'))), "AMP119")


HELP = """
import argparse

import torch
from apex import amp

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true", help="16 bits (through NVIDIA APEX)")
parser.add_argument("-l", "--level", default="O1", help="see the " "documentation of apex")
parser.add_argument("--lr", default=0.1, help="no word of it")
parser.add_argument("--apexes", default=1, help="how many apexes a cone has")
args = parser.parse_args()
print(args.apexes)
model = torch.nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
if args.fp16:
    model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
for x, y in loader:
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    if args.fp16:
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
    else:
        loss.backward()
    optimizer.step()
"""


def test_options_whose_help_still_says_apex_are_named_once_a_file() -> None:
    (told,) = found(rewrite(HELP), "AMP854")
    assert (told.line, told.status, told.review) == (7, "note", "look")
    assert told.message.startswith("the help of --fp16, --level still says Apex (lines 7, 8)")


LAMB = HELP.replace("optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)", """PICK""").replace(
    'parser.add_argument("--lr"', 'parser.add_argument("--kind", help="lamb requires Apex")\nparser.add_argument("--lr"'
)
AMONG = """if args.kind == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
elif args.kind == "lamb":
    optimizer = apex.optimizers.FusedLAMB(model.parameters(), lr=args.lr)
else:
    raise ValueError(args.kind)"""
FLAG = """optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
if args.kind:
    optimizer = apex.optimizers.FusedLAMB(model.parameters(), lr=args.lr)"""


@pytest.mark.parametrize(
    ("pick", "said"),
    [
        (AMONG, False),
        (FLAG, False),
        (f"{FLAG}\nprint(args.kind)", True),
        (AMONG.replace("apex.optimizers.FusedLAMB", "torch.optim.Adam"), True),
    ],
)
def test_the_help_of_what_chooses_a_part_that_stays_is_right(pick: str, said: bool) -> None:
    source = LAMB.replace("PICK", pick).replace(
        "from apex import amp\n", "import apex.optimizers\nfrom apex import amp\n"
    )
    result = rewrite(source)
    assert result.after is not None
    assert any("--kind" in f.message for f in found(result, "AMP854")) is said
    assert any("--fp16" in f.message for f in found(result, "AMP854"))


OTHER = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true", help="16 bits (through NVIDIA APEX)")

if __name__ == "__main__":
    args = parser.parse_args()
    READ
"""


def test_the_help_of_a_script_that_reads_its_own_options_is_not_meant() -> None:
    files = {"train.py": HELP, "other.py": OTHER.replace("READ", "print(args.fp16)")}
    results = rewrite_files(files)
    assert found(results["train.py"], "AMP854")
    assert not found(results["other.py"], "AMP854")


def test_each_trainer_of_one_program_reads_its_own_options() -> None:
    own = OTHER.replace("READ", "print(args.fp16)").replace('if __name__ == "__main__":', "def run():")
    results = rewrite_files(
        {"train.py": HELP, "other.py": own, "main.py": "import train\nimport other\n\nother.run()\n"}
    )
    assert found(results["train.py"], "AMP854")
    assert not found(results["other.py"], "AMP854")


def test_what_another_script_leaves_with_apex_is_no_reason() -> None:
    stays = HELP.replace("scaled_loss.backward()", "run_backward_of(scaled_loss)")
    results = rewrite_files({"train.py": HELP, "stays.py": stays})
    assert found(results["train.py"], "AMP854")
    assert not found(results["stays.py"], "AMP854")


def test_the_help_of_a_module_of_options_is_meant() -> None:
    options, _, rest = HELP.partition("print(args.apexes)")
    results = rewrite_files(
        {"train.py": f"import torch\nfrom apex import amp\nfrom options import args\n{rest}", "options.py": options}
    )
    assert found(results["options.py"], "AMP854")


def test_the_help_of_what_stays_with_apex_is_right() -> None:
    stays = HELP.replace("scaled_loss.backward()", "run_backward_of(scaled_loss)")
    assert rewrite(stays).after is None
    assert not found(rewrite(stays), "AMP854")


def test_an_option_with_two_switches_that_chose_apexs_wrapper_is_reported() -> None:
    source = """
        import argparse

        import torch

        parser = argparse.ArgumentParser()
        parser.add_argument("--use-apex", dest="use_apex", action="store_true")
        parser.add_argument("--no-apex", dest="use_apex", action="store_false")
        parser.set_defaults(use_apex=False)
        args = parser.parse_args()


        def wrap(model):
            if args.use_apex:
                from apex.parallel import DistributedDataParallel as DDP

                model = DDP(model, delay_allreduce=True)
            else:
                from torch.nn.parallel import DistributedDataParallel as DDP

                model = DDP(model, device_ids=[0])
            return model
        """
    result = rewrite(source)
    assert result.after is not None
    assert "args.use_apex" not in result.after
    assert ["--use-apex" in f.message or "--no-apex" in f.message for f in found(result, "AMP119")] == [True, True]
    assert not found(rewrite(source + "\n        print(getattr(args, 'use_apex'))\n"), "AMP119")


BACKEND = """
import argparse

import torch
from apex import amp
from torch.cuda.amp import GradScaler, autocast


class Trainer:
    def __init__(self, opts, model, loader):
        self.opts, self.model, self.loader = opts, model, loader
        self.use_amp = self.use_apex = False
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if opts.fp16:
            self.backend = opts.backend
            print("Using", self.backend)
            if self.backend == "amp":
                self.use_amp = True
                self.scaler = GradScaler()
            else:
                self.use_apex = True
        if self.use_apex:
            self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level="O1")

    def train(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            if self.use_amp:
                with autocast():
                    loss = torch.nn.functional.mse_loss(self.model(x), y)
            else:
                loss = torch.nn.functional.mse_loss(self.model(x), y)
            if self.use_amp:
                self.scaler.scale(loss).backward()
            elif self.use_apex:
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            if self.use_amp:
                self.scaler.step(self.optimizer)
                self.scaler.update()
            else:
                self.optimizer.step()


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--backend", default="apex", choices=["apex", "amp"])
    return parser.parse_args()
"""


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("", "", True),
        ('default="apex", choices=["apex", "amp"]', 'default="amp"', False),
        (
            "        else:\n                self.use_apex",
            "        elif self.backend == 'apex':\n                self.use_apex",
            False,  # either value switches torch's own on
        ),
        ('print("Using", self.backend)', 'print("old" if self.backend == "apex" else "new")', False),
    ],
)
def test_an_option_that_still_offers_apex(old: str, new: str, told: bool) -> None:
    """The branch that its value chose went: torch's own takes its place."""
    result = rewrite(BACKEND.replace(old, new) if old else BACKEND)
    assert result.after is not None
    offers = [f for f in result.findings if f.code == "AMP119" and "still takes 'apex'" in f.message]
    assert [f.review for f in offers] == (["look"] if told else [])
    assert all(f.message.endswith("nothing asks for that any more: torch's own runs in its place") for f in offers)


@pytest.mark.parametrize(
    ("old", "new", "beside"),
    [
        ('"--backend", default="apex", choices=["apex", "amp"]', '"--kind", dest="backend", help="apex"', ""),
        ("import argparse\n", "import argparse\nimport other\n", "from apex import amp\n\namp.unknown()\n"),
    ],
)
def test_an_option_offers_apex_by_its_values_and_where_none_of_apex_stays(old: str, new: str, beside: str) -> None:
    results = rewrite_files({"train.py": BACKEND.replace(old, new), "other.py": beside})
    assert results["train.py"].after is not None
    assert not [f for f in found(results["train.py"], "AMP119") if "still takes 'apex'" in f.message]


def test_an_option_may_be_asked_for_apex_in_one_file_of_several() -> None:
    other = "def name(opts):\n    return 'old' if opts.backend == 'apex' else 'new'\n"
    train = BACKEND.replace("import argparse\n", "import argparse\nimport other\n")
    results = rewrite_files({"train.py": train, "other.py": other})
    assert not [f for f in found(results["train.py"], "AMP119") if "still takes 'apex'" in f.message]


def test_the_help_in_a_file_where_amp_is_never_imported_is_not_meant_and_keeps_no_other_back() -> None:
    bare = HELP.replace("from apex import amp\n", "").replace("help=", 'help="apex: " + ', 1)
    options, _, rest = HELP.partition("print(args.apexes)")
    train = f"import torch\nfrom apex import amp\nimport bare\nfrom options import args\n{rest}"
    results = rewrite_files({"train.py": train, "options.py": options, "bare.py": bare})
    assert not found(results["bare.py"], "AMP854")
    assert found(results["options.py"], "AMP854")


def test_the_print_that_is_named_stands_in_the_file_of_the_option() -> None:
    prepare = initialize('opt_level="O2", keep_batchnorm_fp32=args.keep') + "\nprint(args.keep)"
    source = apex(prepare=prepare, imports=declared('"--keep", default=None'))
    results = rewrite_files({"first.py": source, "second.py": source})
    for name, result in results.items():
        (finding,) = [f for f in result.findings if f.code == "AMP119"]
        assert f"only what is printed or logged hangs on it now ({name}:" in finding.message
