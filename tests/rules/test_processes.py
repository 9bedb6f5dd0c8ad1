"""Programs that share code with a training script: only what runs in its process was in mixed precision."""

from __future__ import annotations

import pytest

from tests.rules.helpers import check_files, rewrite_files

FILES = {
    "factory.py": """
        import torch

        def build():
            return torch.nn.Linear(3, 2).cuda()
        """,
    "train.py": """
        import torch
        from apex import amp
        from factory import build

        def main(loader, criterion):
            model = build()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            for x, y in loader:
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()

        if __name__ == "__main__":
            main([], torch.nn.CrossEntropyLoss())
        """,
}
EXPORT = """
    import torch
    from factory import build

    def export(path, x):
        model = build()
        model.eval()
        torch.save(model(x), path)

    if __name__ == "__main__":
        export("out.pt", torch.zeros(1, 3))
    """


def test_a_script_that_never_comes_by_initialize_stays_as_it_is() -> None:
    texts = check_files({**FILES, "export.py": EXPORT})
    assert "autocast" not in texts["export.py"]
    assert "torch.autocast(" in texts["train.py"]


def test_a_flat_script_that_reads_the_command_line_stays_too() -> None:
    flat = """
        import argparse
        import torch
        from factory import build

        parser = argparse.ArgumentParser()
        args = parser.parse_args()
        model = build()
        print(model(torch.zeros(1, 3)))
        """
    assert "autocast" not in check_files({**FILES, "export.py": flat})["export.py"]


def test_a_script_that_imports_the_training_one_is_in_its_process() -> None:
    """Where the import trains; a function of it that nothing calls sets nothing up."""
    files = {**FILES, "export.py": EXPORT.replace("import torch\n", "import torch\n    import train\n", 1)}
    assert "autocast" not in check_files(files)["export.py"]
    files["train.py"] = files["train.py"].replace('if __name__ == "__main__":', "if True:")
    assert "torch.autocast(" in check_files(files)["export.py"]


def test_a_module_that_nothing_imports_may_be_loaded_by_name() -> None:
    plugin = "\n".join(EXPORT.splitlines()[:-3])
    assert "torch.autocast(" in check_files({**FILES, "plugin.py": plugin})["plugin.py"]


def test_what_a_call_gets_back_is_what_it_passed() -> None:
    """Two optimizers through one helper: only one of them was given to Apex."""
    texts = check_files(
        {
            "train.py": """
                import torch
                from apex import amp

                def decay(optimizer):
                    for group in optimizer.param_groups:
                        group["lr"] *= 0.9
                    return optimizer, group["lr"]

                def train(model, head, loader, criterion):
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                    optimizer_head = torch.optim.SGD(head.parameters(), lr=0.1)
                    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
                    for x, y in loader:
                        optimizer.zero_grad()
                        optimizer_head.zero_grad()
                        features = model(x)
                        loss = criterion(features, y)
                        with amp.scale_loss(loss, optimizer) as scaled_loss:
                            scaled_loss.backward()
                        optimizer, lr = decay(optimizer)
                        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                        optimizer.step()
                        head_loss = criterion(head(features.detach()), y)
                        head_loss.backward()
                        optimizer_head, _ = decay(optimizer_head)
                        optimizer_head.step()
                """
        }
    )
    lines = [line.strip() for line in texts["train.py"].splitlines()]
    assert "optimizer_head.step()" in lines
    assert "scaler.step(optimizer)" in lines
    order = ["scaler.scale(loss).backward()", "scaler.unscale_(optimizer)", "scaler.step(optimizer)", "scaler.update()"]
    assert [line for line in lines if line.startswith("scaler.")] == order
    assert lines.index("scaler.update()") < lines.index("head_loss.backward()")


def test_a_switch_for_shared_code_gets_a_name_that_no_parameter_has() -> None:
    """`evaluate` is called by a script without mixed precision too, and has a `use_amp` of its own already."""
    train = FILES["train.py"].replace(
        "from factory import build\n", "from factory import build\n        from tools import evaluate\n"
    )
    train = train.replace("optimizer.step()\n", "optimizer.step()\n            evaluate(model, loader)\n")
    files = {
        **FILES,
        "train.py": train.replace("main(loader, criterion)", "main(loader, criterion, fp16=True)").replace(
            'opt_level="O1")', 'opt_level="O1", enabled=fp16)'
        ),
        "tools.py": """
            def evaluate(model, loader, use_amp=None):
                return [model(x) for x, _ in loader]
            """,
        "export.py": EXPORT.replace("import torch\n", "import torch\n    from tools import evaluate\n", 1).replace(
            "torch.save(model(x), path)", "torch.save(evaluate(model, [(x, None)]), path)"
        ),
    }
    texts = check_files(files)
    assert "def evaluate(model, loader, use_amp=None, amp_enabled=False):" in texts["tools.py"]
    assert "enabled=amp_enabled" in texts["tools.py"]
    assert "evaluate(model, loader, amp_enabled=" in texts["train.py"]
    assert texts["export.py"].count("amp") == 0


SETTINGS = """
    from argparse import Namespace

    def load(args):
        return Namespace(**vars(args))
    """
SCRIPT = """
    import argparse
    import torch
    from torch import nn
    from settings import load
    IMPORTS

    class NAME(nn.Module):
        def __init__(self):
            super().__init__()
            self.top = nn.Linear(8, 2)

        def forward(self, inputs, targets):
            outputs = self.top(inputs)
            if targets is None:
                return None, outputs
            return LOSS, outputs

    EVALUATE

    def main():
        parser = argparse.ArgumentParser()
        parser.add_argument("--fp16", action="store_true")
        args = load(parser.parse_args())
        model = NAME().cuda()
        optimizer = build_optimizer(model)
        if args.fp16:
            from apex import amp

            model, optimizer = amp.initialize(model, optimizer, opt_level="O2")
        args.model = model
        inputs, targets = torch.rand(4, 8).cuda(), torch.zeros(4, 2).cuda()
        for _ in range(3):
            model.zero_grad()
            loss, _ = model(inputs, targets)
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        evaluate(args, inputs, targets)

    if __name__ == "__main__":
        main()
    """
EVALUATE = """def build_optimizer(model):
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def evaluate(args, inputs, targets):
        with torch.no_grad():
            _, outputs = args.model(inputs, targets)
        return outputs.argmax(dim=1)"""
OWN = """def evaluate(args, inputs, targets):
        return args.model(inputs, None)[1]"""


@pytest.mark.parametrize(
    "loads", ["", "import several", "import importlib\n\n    tasks = importlib.import_module(input())"]
)
def test_a_script_runs_no_network_of_a_file_that_it_does_not_load(loads: str) -> None:
    """Both keep their network in a record that one function makes. BCELoss is refused by autocast: it gets a place without
    one in the network that computes it, and holds neither script back, be the network in the same process or not."""

    def script(name: str, imports: str, loss: str, evaluate: str) -> str:
        text = SCRIPT.replace("NAME", name).replace("IMPORTS", imports).replace("LOSS", loss)
        return text.replace("EVALUATE", evaluate)

    texts = check_files(
        {
            "settings.py": SETTINGS,
            "single.py": script("Classifier", loads, "nn.functional.mse_loss(outputs, targets)", EVALUATE),
            "several.py": script(
                "Several", "from single import build_optimizer", "nn.BCELoss()(torch.sigmoid(outputs), targets)", OWN
            ),
        }
    )
    computed = "bce_loss = nn.BCELoss()(torch.sigmoid(outputs.float()), targets.float())"
    assert f'with torch.autocast("cuda", enabled=False):\n            {computed}\n' in texts["several.py"]
    assert "enabled=False" not in texts["single.py"]


CLASSES = {
    "losses.py": """
        import torch

        class Distance(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = 2.0

            def forward(self, x):
                return x * self.scale
        """,
    "tester.py": """
        import torch
        from losses import Distance

        class Tester:
            def __init__(self, model):
                self.model = model

            def test(self, loader):
                return [Distance()(self.model(x)) for x in loader]

            def evaluate(self, loader):
                return [self.model(x).argmax(1) for x in loader]
        """,
    "trainer.py": """
        import torch
        from apex import amp

        class Trainer:
            def __init__(self, model):
                self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                self.model, self.optimizer = amp.initialize(model, self.optimizer, opt_level="O1")

            def train(self, loader):
                for x in loader:
                    with amp.scale_loss(self.model(x).float().sum(), self.optimizer) as scaled_loss:
                        scaled_loss.backward()
                    self.optimizer.step()
        """,
    "train.py": """
        import torch
        from tester import Tester
        from trainer import Trainer

        model = torch.nn.Linear(4, 2)
        trainer = Trainer(model)
        trainer.train([])
        Tester(trainer.model).evaluate([])
        """,
    "predict.py": """
        import torch
        from tester import Tester

        Tester(torch.nn.Linear(4, 2)).test([])
        """,
}


def test_a_constructor_is_mentioned_by_its_class_alone() -> None:
    """`super().__init__()` of a loss is no mention of the constructor that sets mixed precision up."""
    text = check_files(CLASSES)["tester.py"]
    assert text.count("torch.autocast(") == 1
    assert "torch.autocast(" in text[text.index("def evaluate") :]


def test_a_script_that_keeps_the_class_may_make_it() -> None:
    kept = CLASSES["predict.py"].replace("Tester(torch", "KINDS = {'trainer': Trainer}\n        Tester(torch")
    kept = kept.replace("from tester import Tester", "from tester import Tester\n        from trainer import Trainer")
    assert check_files({**CLASSES, "predict.py": kept})["tester.py"].count("torch.autocast(") == 2


TRAINER = """
    import torch
    from apex import amp

    def loss_backwards(fp16, loss, optimizer):
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()

    class Trainer:
        def __init__(self, model, fp16=False):
            self.model = model
            self.fp16 = fp16
            self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
            {prepare}

        def train(self, loader, criterion):
            for x, y in loader:
                loss_backwards(self.fp16, criterion(self.model(x), y), self.opt)
                self.opt.step()
                self.opt.zero_grad()
    """
STARTED = """
    import torch
    from {package} import Trainer

    trainer = Trainer(torch.nn.Linear(3, 2))
    if __name__ == "__main__":
        trainer.train([], torch.nn.CrossEntropyLoss())
    """


@pytest.mark.parametrize(
    ("naive", "reason"),
    [
        ("the-other/other/naive.py", "no run of this file comes by an amp.initialize"),
        ("naive.py", "(naive.py:17) is not seen to prepare"),
        ("the-one/plugins/naive.py", "(the-one/plugins/naive.py:17) is not seen to prepare"),
    ],
)
def test_projects_beside_each_other_are_never_of_one_run(naive: str, reason: str) -> None:
    prepare = """if fp16:
                self.model, self.opt = amp.initialize(self.model, self.opt, opt_level="O1")"""
    files = {
        "the-one/one/trainer.py": TRAINER.format(prepare="pass"),
        "the-one/train.py": STARTED.format(package="one.trainer"),
        "the-third/third/trainer.py": TRAINER.format(prepare=prepare),
        "the-third/train.py": STARTED.format(package="third.trainer"),
        naive: TRAINER.format(prepare=prepare),
    }
    (told,) = _asked(files)
    assert reason in told


def _asked(files: dict[str, str]) -> list[str]:
    return [f.message for r in rewrite_files(files).values() for f in r.findings if f.code == "AMP116"]
