"""A finding says what stands there: of each claim a program where it holds, and one where it would be false."""

from __future__ import annotations

import pytest

from amp_migrate.findings import Finding, Report
from amp_migrate.reports import text
from tests.rules.helpers import rewrite, rewrite_files


def told(source: str, code: str, **options: str) -> list[Finding]:
    return [f for f in rewrite(source, **options).findings if f.code == code]


TWO_MODES = """
    import torch
    from apex import amp


    def main(args, model, optimizer, criterion, loader):
        if args.mode == "train":
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        else:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                print(criterion(model(x), y))
    """


def test_only_what_a_scaler_stands_for_is_said_to_be_replaced_by_one() -> None:
    result = rewrite(TWO_MODES)
    said = [f.message for f in result.findings if f.code == "AMP110" and f.status == "done"]
    made = (result.after or "").count("GradScaler(")
    assert sum(message.startswith("replaced by a GradScaler") for message in said) == made or result.after is None


def test_a_caller_that_makes_the_scaler_is_named() -> None:
    source = """
    import torch
    from apex import amp


    def prepare(model, optimizer):
        return amp.initialize(model, optimizer, opt_level="O1")


    def main(model, optimizer, criterion, loader):
        model, optimizer = prepare(model, optimizer)
        for x, y in loader:
            loss = criterion(model(x), y)
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
    """
    (finding,) = told(source, "AMP110")
    assert finding.message == "taken out: the GradScaler is created by what calls this (line 10)"


LEVELS = """
    import argparse
    import torch
    from apex import amp

    parser = argparse.ArgumentParser()
    parser.add_argument("--opt-level", {option})
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    model, optimizer = amp.initialize(model, optimizer, opt_level={level})
    for x, y in loader:
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """


@pytest.mark.parametrize(
    ("option", "level", "wanted"),
    [
        ('choices=["O0", "O1"], default="O1"', "args.opt_level", None),
        ("", '"O1" if args.amp else "O0"', None),
        ('choices=["O1", "O2"], default="O1"', "args.opt_level", "O2, where asked for at run time, now means"),
        ("", "args.opt_level", "O2 and O3, where asked for at run time, now mean"),
        ("", '"O" + str(3 if args.amp else 0)', "O3, where asked for at run time, now means"),
    ],
)
def test_only_levels_that_may_occur_are_spoken_of(option: str, level: str, wanted: str | None) -> None:
    found = [f.message for f in told(LEVELS.format(option=option, level=level), "AMP112")]
    assert [m.startswith(wanted) for m in found] == ([True] if wanted else [])
    assert all(("O3, unscaled under Apex" in m) == ("O3" in m.partition(",")[0]) for m in found)


NUMBER, NOTHING = "; where it is a number, it scaled and left none out", "; where it is None, it scaled nothing"
STILL = "O0 still switches the casts off alone: it scales its loss, as it did"
OPEN = ": where args.scale is 'dynamic', Apex scaled there in float32, and left out steps whose gradients overflowed or were NaN"
OFF = "O0 still switches the casts off, and now the scaling, too"


@pytest.mark.parametrize(
    ("scale", "option", "wanted"),
    [
        ('"dynamic"', "", STILL),
        ("args.scale", "default=None", OFF + OPEN + NUMBER + NOTHING),
        ("args.scale", 'default="dynamic"', OFF + OPEN + NUMBER),
        ("128.0", "", OFF + ": with loss_scale=128.0 Apex scaled there in float32, and left no step out"),
        ("None", "", "O0 still switches mixed precision off"),
        ("1.0", "", "O0 still switches mixed precision off"),
    ],
)
def test_what_o0_did_with_a_loss_scale_is_said_of_the_values_that_it_may_have(
    scale: str, option: str, wanted: str
) -> None:
    source = LEVELS.format(option='default="O1"', level="args.opt_level, loss_scale=" + scale)
    source = source.replace('"--amp"', f'"--scale", {option})\n    parser.add_argument("--amp"')
    (finding,) = [f for f in told(source, "AMP112") if "O0" in f.message]
    assert (finding.review, finding.message.partition("; ")[2].partition("; O3")[0]) == ("look", wanted)
    unscaled = ", unscaled under Apex" in finding.message
    assert unscaled is (scale in ("None", "args.scale"))
    assert (" where args.scale is None" in finding.message.partition("; O3")[2]) is (scale == "args.scale")


@pytest.mark.parametrize(
    ("option", "scale", "review"),
    [
        ('default="O0"', '"dynamic"', "look"),
        ('default="O0", choices=["O0", "O1"]', '"dynamic"', None),
        ('default="O0"', "args.scale", "review"),
        ('default="O1"', '"dynamic"', "look"),
        ('default="O1", choices=["O0", "O1"]', '"dynamic"', None),
        ('default="O1", choices=["O0", "O1"]', "args.scale", "look"),
        ('default="O0"', "128.0", "look"),
        ('default="O0", choices=["O0", "O1"]', "128.0", None),
        ('default="O0"', "None", "look"),
    ],
)
def test_a_run_without_options_that_lost_its_skipped_steps_is_told_first(
    option: str, scale: str, review: str | None
) -> None:
    source = LEVELS.format(option=option, level="args.opt_level, loss_scale=" + scale)
    source = source.replace('"--amp"', '"--scale", default="dynamic")\n    parser.add_argument("--amp"')
    found = [f for f in told(source, "AMP112") if "O0" in f.message]
    assert [f.review for f in found] == ([review] if review else [])
    if review == "review":
        assert found[0].message.startswith(OFF)
        assert "; that is the default: enable the scaler there, " in found[0].message


SAVED = LEVELS.format(option='default="O1"', level='"O2"')


@pytest.mark.parametrize(
    ("program", "saved"),
    [
        (SAVED, False),
        (SAVED + 'torch.save(model.state_dict(), "a.pt")\n    ', True),
        (SAVED + 'numpy.save("a.npy", x)\n    ', False),
        (SAVED.replace("import torch\n", "import torch\n    from kept import store\n"), True),
        (SAVED.replace("import torch\n", "import torch\n    from mels import read\n"), False),
    ],
)
def test_checkpoints_are_spoken_of_where_something_is_saved(program: str, saved: bool) -> None:
    files = {
        "train.py": program.replace("import argparse\n", "import argparse\n    import numpy\n"),
        "kept.py": "def store(model):\n    model.save_pretrained()\n",
        "mels.py": 'import torch\nif __name__ == "__main__":\n    torch.save(1, "mel.pt")\n',
        "other.py": 'import torch\ntorch.save(1, "other.pt")\n',
    }
    (message,) = [f.message for f in rewrite_files(files)["train.py"].findings if f.code == "AMP112"]
    assert ("checkpoints" in message) is saved


@pytest.mark.parametrize(("call", "halves"), [("model", True), ("model.forward", True), ("model.infer", False)])
def test_only_what_forward_gives_was_float32(call: str, halves: bool) -> None:
    source = f"""
    import torch
    from apex import amp

    def main(x, path):
        model = torch.load(path)["model"].cuda().eval()
        model, _ = amp.initialize(model, [], opt_level="O3")
        with torch.no_grad():
            return {call}(x)
    """
    (finding,) = told(source, "AMP112")
    assert ("give half where they gave float32" in finding.message) is halves


def test_a_call_that_prepares_no_optimizer_scales_no_loss() -> None:
    source = """
    import torch
    from apex import amp

    def main(args, model, optimizer, loader):
        if args.train:
            if args.fp16:
                model, optimizer = amp.initialize(model, optimizer, opt_level=args.level, loss_scale="dynamic")
        elif args.fp16:
            model = amp.initialize(model, opt_level=args.level, loss_scale="dynamic")
        if args.train:
            for x, y in loader:
                loss = model(x, y)
                if args.fp16:
                    with amp.scale_loss(loss, optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                optimizer.step()
        return model(loader)
    """
    first, second = told(source, "AMP110")
    assert first.message == "taken out: the GradScaler in place of the call at line 9 serves here too"
    assert (second.message, second.review) == ("replaced by a GradScaler", "as-is")
    one, two = told(source, "AMP112")
    assert one.message.endswith(f"; {STILL}")
    assert two.message.endswith("; O0 still switches mixed precision off")


@pytest.mark.parametrize(
    ("option", "level", "more"),
    [
        ('default="O1"', "args.opt_level", ""),
        ("", '"O1" if args.amp else "O0"', ""),
        ('default="O1"', "config.AMP.LEVEL", ""),
        ('default="O1"', 'config["amp"].level', ""),
        ('default="O1"', "args.opt_level if args.amp else config.level", ""),
        ("", "args.opt_level", "; without --opt-level, which has no default, Apex raised, and that counts as on now"),
        (
            "default=None",
            "args.opt_level",
            "; without --opt-level, which has no default, Apex raised, and that counts as on now",
        ),
        ("", '"O" + str(3 if args.amp else 0)', ""),
        ('default="O1"', '"O" + str(args.amp)', ""),
        ('default="O1"', '"O%i" % args.amp', ""),
        ('default="O1"', 'f"O{args.amp}"', ""),
        ('default="O1"', '"O{}".format(args.amp)', ""),
        ('default="O1"', '"O{}".format(level_of(args))', None),
        ('default="O1"', '"O" + str(LEVELS[args.amp])', None),
        ('default="O1"', "LEVELS[args.amp]", None),
        ('default="O1"', "level_of(config)", None),
    ],
)
def test_a_switch_that_asks_the_level_itself_needs_no_look(option: str, level: str, more: str | None) -> None:
    (finding,) = told(LEVELS.format(option=option, level=level), "AMP110")
    wanted = more if more is not None else ": see that its enabled= is what was asked for at run time"
    assert finding.message == f"replaced by a GradScaler{wanted}"
    assert finding.review == ("look" if wanted else "as-is")


CLIP = """
    import torch
    from apex import amp

    if args.fp16:
        model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    for x, y in loader:
        loss = criterion(model(x), y)
        if args.fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            norm = torch.nn.utils.clip_grad_norm_({mine}, 1.0)
        else:
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        seen.append(norm)
        optimizer.step()
    """


@pytest.mark.parametrize(("mine", "wanted"), [("amp.master_params(optimizer)", 0), ("model.parameters()", 1)])
def test_a_clip_without_mixed_precision_never_clipped_copies(mine: str, wanted: int) -> None:
    assert len(told(CLIP.format(mine=mine), "AMP305")) == wanted


def test_what_prepares_a_batch_is_no_forward() -> None:
    source = """
    import torch
    from apex import amp

    model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
    for batch in loader:
        x, y = model.parse_batch(batch)
        loss = criterion(model(x), y)
        print(y.sum())
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """
    result = rewrite(source)
    assert result.after is not None
    assert "    x, y = model.parse_batch(batch)\n    with torch.autocast(" in result.after
    assert not [f for f in result.findings if f.code == "AMP503"]


SCORES = """
    import torch
    from apex import amp

    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        loss = criterion(model(x)[0], y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in loader:
            {outputs} = model(x)
            loss = criterion(logits, y)
            keep({kept}.cpu().numpy())
    """


@pytest.mark.parametrize(
    ("outputs", "kept", "written"),
    [
        ("logits", "logits", True),
        ("logits, best", "logits", True),
        ("logits, best", "best", False),  # may hold indices, which index lists
        ("logits", "loss", False),  # float32 under autocast
    ],
)
def test_only_what_may_be_half_is_made_float32_for_numpy(outputs: str, kept: str, written: bool) -> None:
    result = rewrite(SCORES.format(outputs=outputs, kept=kept))
    assert result.after is not None
    assert (f"{kept}.float().cpu()" in result.after) is written
    if kept == "best":
        (finding,) = [f for f in result.findings if f.code == "AMP504"]
        assert finding.review == "look"


def test_a_scheduler_that_is_made_is_no_network() -> None:
    source = """
    import torch
    from apex import amp

    teacher = Net()
    model = Net()
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    schedule.eval()
    for x, y in loader:
        schedule = schedule(optimizer, 0.5)
        loss = criterion(model(x), y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    """
    assert not told(source, "AMP507")


def test_a_mark_that_names_apex_is_no_import() -> None:
    source = """
    import importlib

    backend = importlib.import_module(name)


    def wrap(optimizer):
        optimizer.mode = "apex.amp"
        return optimizer.mode == "apex.amp"
    """
    assert not told(source, "AMP103")


def test_a_registration_beside_uses_that_stay_stays_too() -> None:
    source = """
    import torch


    def get_amp(fp16):
        if fp16:
            from apex import amp

            amp.register_half_function(torch, "einsum")
        else:
            amp = None
        return amp
    """
    result = rewrite(source)
    assert "register_half_function" in (result.after or result.before)
    assert not [f for f in result.findings if "under autocast by itself" in f.message]


def test_the_class_that_stood_in_for_apex_is_named() -> None:
    files = {
        "model.py": """
            try:
                from apex.normalization import FusedRMSNorm as RMSNorm
            except ImportError:
                from norms import RMSNorm

            norm = RMSNorm(8, eps=1e-6)
        """,
        "norms.py": "class RMSNorm:\n    pass\n",
    }
    (finding,) = [f for f in rewrite_files(files)["model.py"].findings if f.code == "AMP632"]
    assert finding.message == "norms.RMSNorm, which stood in where Apex was missing"


def test_a_name_handed_on_by_another_file_is_not_told_where_nothing_changes() -> None:
    files = {
        "layers.py": "from apex.normalization import FusedLayerNorm as LayerNorm\n\nnorm = LayerNorm(8)\n",
        "model.py": "from layers import LayerNorm\n\none, two = LayerNorm(8), LayerNorm(16)\n",
    }
    results = rewrite_files(files)
    assert results["layers.py"].after is not None
    assert results["model.py"].after is None
    assert results["model.py"].findings == []


def test_the_imports_of_one_guard_are_told_once() -> None:
    source = """
    try:
        from apex import amp
        from apex.parallel import DistributedDataParallel
        from apex.fp16_utils import network_to_half
    except ImportError:
        raise ImportError("Please install apex")
    """
    assert [f.message for f in told(source, "AMP101")] == ["nothing uses these imports any more"]


def test_an_import_of_kernels_that_stay_says_what_to_install() -> None:
    (finding,) = told("import amp_C  # a part of apex\n\nscale = amp_C.multi_tensor_scale\n", "AMP642")
    assert finding.status == "note"
    assert "Apex stays installed, built with --cuda_ext" in finding.message


def test_uses_in_other_files_are_not_said_to_be_out_of_sight() -> None:
    files = {
        "prepare.py": """
            from apex import amp


            def prepare(model, optimizer):
                return amp.initialize(model, optimizer, opt_level="O1")
        """,
        "finder.py": """
            from apex import amp


            def find(model, optimizer, loss):
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """,
    }
    files["other.py"] = files["prepare.py"]
    results = rewrite_files(files)
    said = [f.message for r in results.values() for f in r.findings if f.code == "AMP116"]
    assert said
    assert not any("not in sight" in m or "rewrite this file together with the one that trains" in m for m in said)


def test_calls_that_leave_a_switch_out_are_named() -> None:
    files = {
        "inference.py": """
            import torch


            def inference(model, loader):
                with torch.no_grad():
                    return [model(x) for x in loader]
        """,
        "train.py": """
            import torch
            from apex import amp
            from inference import inference


            def train(args, model, optimizer, criterion, loader):
                if args.fp16:
                    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                for x, y in loader:
                    loss = criterion(model(x), y)
                    if args.fp16:
                        with amp.scale_loss(loss, optimizer) as scaled_loss:
                            scaled_loss.backward()
                    else:
                        loss.backward()
                    optimizer.step()
                inference(model, loader)
        """,
        "predict.py": """
            from inference import inference


            def predict(model, loader):
                return inference(model, loader)
        """,
    }
    (finding,) = [f for f in rewrite_files(files)["inference.py"].findings if f.code == "AMP220"]
    assert "left out, as in predict.py:5, what it runs is float32" in finding.message


LAZY = """
    import torch
    from apex import amp


    def main(model, loader):
        model = amp.initialize(model, opt_level="O1")
        with torch.no_grad():
            for batches in loader:
                outputs = map(lambda x: model(x), batches)
                show({used})
    """


def test_a_model_that_runs_lazily_runs_in_its_region() -> None:
    result = rewrite(LAZY.format(used="*outputs"))
    assert result.after is not None
    assert "outputs = list(map(lambda x: model(x), batches))\n" in result.after
    assert not [f for f in result.findings if f.code == "AMP502"]


def test_an_iterator_that_is_asked_for_its_next_value_stays_one() -> None:
    result = rewrite(LAZY.format(used="next(outputs)"))
    assert result.after is not None
    assert "list(" not in result.after
    assert [f.review for f in result.findings if f.code == "AMP502"] == ["review"]


def test_options_of_apex_that_go_are_named() -> None:
    source = """
    from apex.optimizers import FusedSGD

    optimizer = FusedSGD(model.parameters(), lr=0.1, materialize_master_grads=False)
    kind = FusedSGD
    """
    one, two = (f.message for f in sorted(told(source, "AMP622")))
    assert one == "torch.optim.SGD without materialize_master_grads"
    assert "out of sight" not in two


def test_half_inputs_and_half_networks_are_told_apart() -> None:
    source = """
    from apex.fp16_utils import FP16_Optimizer


    def load(config):
        network = build(config)
        network.half()
        network.train()
        return network


    def main(model, optimizer, criterion, loader):
        optimizer = FP16_Optimizer(optimizer, dynamic_loss_scale=True)
        for x, y in loader:
            loss = criterion(model(x{half}), y)
            optimizer.backward(loss)
            optimizer.step()
    """
    refused = rewrite(source.format(half=""))
    assert refused.after is None
    assert any(f.code == "AMP720" and "GradScaler refuses their gradients" in f.message for f in refused.findings)
    without = source.replace("        network.half()\n", "").replace("from apex", "import torch\n    from apex")
    for half in (".half()", ".to(torch.float16)", ".to(x.device, dtype=torch.half)", ".type(torch.cuda.HalfTensor)"):
        inputs = rewrite(without.format(half=half))
        assert any(f.code == "AMP720" and f.message.startswith("inputs may stay float32") for f in inputs.findings)
    assert not any(f.code == "AMP720" for f in rewrite(without.format(half=".to(torch.float32)")).findings)
    twice = without.format(half=".half()").replace(
        "for x, y in loader:", "for x, y in loader:\n            y = y.half()"
    )
    (told,) = [f for f in rewrite(twice).findings if f.code == "AMP720"]
    assert (told.line, told.message.endswith("half can clash (and in line 15)")) == (14, True)


def test_what_only_evaluates_in_half_is_no_danger_to_the_scaler() -> None:
    source = """
    from apex import amp


    def main(args, model, optimizer, criterion, loader):
        if args.do_train:
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        if {test}:
            model.half()
    """
    assert not told(source.format(test="not args.do_train"), "AMP118")
    assert told(source.format(test="args.export"), "AMP118")


CONFIGURED = """
    import torch
    from apex import amp

    class Config:
        def __init__(self):
            self.fp16 = False
            self.level = LEVEL

    class Trainer:
        def __init__(self, config, model, loader):
            self.config, self.model, self.loader = config, model, loader
            self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def train(self):
            if self.config.fp16:
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer, opt_level=self.config.level)
            for x in self.loader:
                loss = self.model(x).pow(2).mean()
                if self.config.fp16:
                    with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                else:
                    loss.backward()
                self.optimizer.step()

    if __name__ == "__main__":
        Trainer(Config(), torch.nn.Linear(4, 2), [torch.ones(2, 4)]).train()
    """


@pytest.mark.parametrize("level", ['"O1"', '"O2"'])
def test_a_level_that_another_place_fixes_is_never_o0(level: str) -> None:
    assert not told(CONFIGURED.replace("LEVEL", level), "AMP531")


LEAVING = """
    import torch
    from apex import amp


    def total(x):
        return {first}


    def count(rows):
        return {second}


    model = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        out = model(x)
        with amp.scale_loss(criterion(out, y), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        kept = {{"first": out, "second": out, "again": out[0]}}
        print(total(kept["first"]), count(kept["second"]))
    """


@pytest.mark.parametrize(
    ("first", "second", "lines"),
    [
        ("x.sum()", "torch.sum(rows, 0)", 1),
        ("x.sum()", "rows.cumsum(0).cpu().numpy()", 1),
        ("x.sum()", "rows.half().sum()", 2),
    ],
)
def test_the_same_said_of_other_code_takes_one_line_of_a_report(first: str, second: str, lines: int) -> None:
    result = rewrite(LEAVING.format(first=first, second=second))
    found = [f for f in result.findings if f.code == "AMP535"]
    assert [f.line for f in found] == [6, 10]
    shown = [line for line in text.render(Report([result], 1), "rewritten").splitlines() if "AMP535" in line]
    assert len(shown) == lines
    assert f" AMP535 {first}: what model gives" in shown[0]
    assert ("(and 1 more: line 10)" in shown[0]) == (lines == 1)


SWITCHED = """
    import argparse
    import torch
    from apex import amp

    parser = argparse.ArgumentParser()
    parser.add_argument("--level", help="the opt level of Apex")


    def evaluate(model, loader):
        return [model(x) for x in loader]


    def predict(model, loader):
        return [model(x).argmax(1) for x in loader]


    def main(args):
        model = torch.nn.Linear(2, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
        for x, y in loader:
            with amp.scale_loss(criterion(model(x), y), optimizer) as scaled_loss:
                scaled_loss.backward()
            optimizer.step()
        for name in names:
            model = torch.nn.Linear(2, 2).cuda()
            evaluate(model, loader)
            predict(model, loader)


    def run():  # no script, whose functions nothing else calls
        main(parser.parse_args())


    run()
    """


def test_what_is_handed_to_several_functions_and_made_anew_for_them_takes_one_line() -> None:
    files = {
        "train.py": SWITCHED,
        "other.py": SWITCHED.replace("import argparse\n", "import argparse\n    import sys\n"),
    }
    results = rewrite_files(files)
    for code in ("AMP531", "AMP854", "AMP220"):
        found = [f for r in results.values() for f in r.findings if f.code == code and f.review != "as-is"]
        assert len({f.message for f in found}) > 1
        assert len({f.alike for f in found}) == 1
        shown = text.render(Report(list(results.values()), 2), "rewritten").splitlines()
        assert len([line for line in shown if f" {code} " in line]) == 1, code


TRAINS = """
    import torch
    from apex import amp
    from nets import Net
    from project import criterion, loader, plot

    net = Net().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    net, optimizer = amp.initialize(net, optimizer, opt_level="O1")
    for x, y in loader:
        optimizer.zero_grad()
        with amp.scale_loss(criterion(net(x), y), optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        with torch.no_grad():
            out = net(x)
            plot(out[0, 0, ...].detach().cpu().numpy())

    def test():
        plot(loader)

    test()
"""
NETWORK = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Conv2d(3, 3, 3)

        def forward(self, x):
            return self.body(x)

    def test(SIGNATURE):
        MADE
        print(net(torch.randn(1, 3, 8, 8)).size())
"""


@pytest.mark.parametrize(("signature", "made", "told"), [("", "net = Net()", 0), ("net", "pass", 1)])
def test_a_function_below_a_network_that_tries_one_of_its_own_is_no_way_of_the_program(
    signature: str, made: str, told: int
) -> None:
    network = NETWORK.replace("SIGNATURE", signature).replace("MADE", made)
    results = rewrite_files({"train.py": TRAINS, "nets.py": network})
    assert len([f for f in results["nets.py"].findings if f.code == "AMP531"]) == told


def test_what_goes_to_numpy_in_float32_is_not_doubted_as_well() -> None:
    unseen = TRAINS.replace("from nets import Net\n", "from far.away import Net\n")
    result = rewrite_files({"train.py": unseen})["train.py"]
    assert "plot(out[0, 0, ...].detach().float().cpu().numpy())" in (result.after or "")
    assert [f.review for f in result.findings if f.code == "AMP504"] == ["as-is"]


COUNTED = """
    import torch
    from apex import amp
    from count import count

    args = parse()

    def main():
        model, optimizer, loader = build(args)
        {first}
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
        for x in loader:
            loss = model(x).sum()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()
        {last}

    if __name__ == "__main__":
        main()
    """
COUNT = """
    import torch

    def count(model):
        counted = add_methods(model)
        counted.eval().start()
        out = counted(torch.zeros(1, 3))
        return out.sum()

    def add_methods(model):
        model.start = start.__get__(model)
        return model

    def start(self):
        self.apply(print)
    """


@pytest.mark.parametrize(
    ("first", "last", "told"),
    [("print(count(model))", "pass", False), ("pass", "print(count(model))", True)],
    ids=["before the set-up", "after it"],
)
def test_what_runs_before_the_set_up_is_not_said_to_be_untold(first: str, last: str, told: bool) -> None:
    scripts = {name: COUNTED.format(first=first, last=last) for name in ("one.py", "two.py")}
    results = rewrite_files({**scripts, "count.py": COUNT})
    messages = [f.message for f in results["count.py"].findings if f.code == "AMP502"]
    regions = "autocast" in (results["count.py"].after or "")
    assert bool(messages or regions) is told


NET = """
    import torch


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.fc(x)
    """
WITH_APEX = """
    import torch
    from apex import amp
    from net import Net
    {importing}


    def main(loader):
        model = Net().cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            out = model(x)
            loss = torch.nn.functional.cross_entropy(out, y)
            {measuring}
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            optimizer.step()


    if __name__ == "__main__":
        main([])
    """
OF_ITS_OWN = """
    import torch
    from torch.cuda.amp import autocast
    from net import Net
    from metrics import confidence


    def main(loader):
        model = Net().cuda()
        for x, y in loader:
            with autocast():
                out = model(x)
            print(confidence(out))


    if __name__ == "__main__":
        main([])
    """
METRICS = """
    def confidence(out):
        return out.softmax(-1).max(-1).values.exp().sum()
    """


@pytest.mark.parametrize(
    ("importing", "measuring"),
    [("", "pass"), ("from metrics import confidence", "print(confidence(out))")],
    ids=["Apex never came there", "Apex came there too"],
)
def test_what_only_a_program_with_autocast_of_its_own_computes(importing: str, measuring: str) -> None:
    files = {"net.py": NET, "own.py": OF_ITS_OWN, "metrics.py": METRICS}
    results = rewrite_files({**files, "train.py": WITH_APEX.format(importing=importing, measuring=measuring)})
    assert results["own.py"].status == "migrated"
    cast = [f.line for f in results["metrics.py"].findings if f.code == "AMP522"] if "metrics.py" in results else []
    assert bool(cast) is bool(importing)
