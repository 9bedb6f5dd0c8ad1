"""Settings with which frameworks choose Apex, in Python."""

from __future__ import annotations

from types import ModuleType

import pytest

from amp_migrate.rules.frameworks import catalyst, deepspeed, ignite, lightning, mmengine, transformers
from tests.rules.helpers import check_manual, check_rewrite, check_untouched, rewrite, rewrite_files

MODULES = (catalyst, deepspeed, ignite, lightning, mmengine, transformers)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: str(m.__name__.rpartition(".")[2]))
def test_examples_hold(module: ModuleType) -> None:
    examples = [example for code in module.CODES for example in code.examples]
    assert examples
    for example in examples:
        check_rewrite(example.before, example.after)


class TestLightning:
    @pytest.mark.parametrize("module", ["pytorch_lightning", "lightning", "lightning.pytorch"])
    def test_the_package_names(self, module: str) -> None:
        check_rewrite(
            f"import {module} as pl\n\npl.Trainer(precision=16, amp_backend='apex')\n",
            f"import {module} as pl\n\npl.Trainer(precision='16-mixed')\n",
        )

    def test_layout_and_unpacked_arguments_stay(self) -> None:
        check_rewrite(
            """
            from pytorch_lightning import Trainer

            trainer = Trainer(
                devices=1,
                precision=16 if args.fp16 else 32,  # half
                amp_backend=args.backend,
                amp_level="O2",
                **more,
            )
            """,
            """
            from pytorch_lightning import Trainer

            trainer = Trainer(
                devices=1,
                precision="16-mixed" if args.fp16 else 32,  # half
                **more,
            )
            """,
        )

    def test_a_computed_precision_stays(self) -> None:
        check_rewrite(
            "from lightning import Trainer\n\nTrainer(precision=args.precision, amp_level=args.level)\n",
            "from lightning import Trainer\n\nTrainer(precision=args.precision)\n",
        )

    def test_full_precision_stays(self) -> None:
        check_rewrite(
            "from lightning import Trainer\n\nTrainer(precision=32, amp_backend='native')\n",
            "from lightning import Trainer\n\nTrainer(precision=32)\n",
        )

    def test_o0_is_full_precision(self) -> None:
        check_rewrite(
            "from lightning import Trainer\n\nTrainer(precision=16, amp_backend='apex', amp_level='O0')\n",
            "from lightning import Trainer\n\nTrainer()\n",
        )

    def test_use_amp_of_old_versions(self) -> None:
        check_rewrite(
            "from pytorch_lightning import Trainer\n\nTrainer(use_amp=args.fp16, amp_level='O1')\n",
            "from pytorch_lightning import Trainer\n\nTrainer(precision=16 if args.fp16 else 32)\n",
        )

    @pytest.mark.parametrize(
        "of_old",
        ["gpus=2", "checkpoint_callback=saver, max_epochs=3", "weights_summary=None", "distributed_backend='ddp'"],
    )
    def test_a_call_that_lightning_2_refuses_otherwise_is_given_what_every_version_knows(self, of_old: str) -> None:
        head = "import pytorch_lightning as pl\n\n"
        result = check_rewrite(
            f"{head}pl.Trainer({of_old}, precision=16, amp_backend='apex', amp_level='O2')\n",
            f"{head}pl.Trainer({of_old}, precision=16)\n",
        )
        (told,) = result.findings
        assert told.message.startswith("amp_backend and amp_level went with Lightning 2.0; precision=16 stays")
        assert f"Lightning 2 has no {of_old.partition('=')[0]}, which this program uses" in told.message
        assert "0.7.4" in told.message

    def test_use_amp_went_with_another_version(self) -> None:
        text = "from pytorch_lightning import Trainer\n\nTrainer(gpus=1, use_amp=True, amp_level='O1')\n"
        result = check_rewrite(text, "from pytorch_lightning import Trainer\n\nTrainer(gpus=1, precision=16)\n")
        told = result.findings[0].message
        assert told.startswith(
            "amp_level went with Lightning 2.0 and use_amp went with Lightning 0.9; precision=16 stays"
        )

    @pytest.mark.parametrize(
        "used",
        [
            "from pytorch_lightning.logging import TensorBoardLogger",
            "class Net(pl.LightningModule):\n    @pl.data_loader\n    def train_dataloader(self):\n        return []",
        ],
    )
    def test_what_else_a_program_uses_of_an_old_lightning_tells_it(self, used: str) -> None:
        files = {
            "train.py": "import pytorch_lightning as pl\nimport net\n\npl.Trainer(precision=16, amp_level='O2')\n",
            "net.py": f"import pytorch_lightning as pl\n{used}\n",
        }
        assert (rewrite_files(files)["train.py"].after or "").endswith("pl.Trainer(precision=16)\n")
        files["net.py"] = "import pytorch_lightning as pl\nfrom pytorch_lightning.loggers import TensorBoardLogger\n"
        assert (rewrite_files(files)["train.py"].after or "").endswith("pl.Trainer(precision='16-mixed')\n")

    def test_bfloat16(self) -> None:
        check_rewrite(
            "from lightning import Trainer\n\nTrainer(precision=16, amp_backend='apex')\n",
            "from lightning import Trainer\n\nTrainer(precision='bf16-mixed')\n",
            dtype="bfloat16",
        )

    @pytest.mark.parametrize(
        "line",
        [
            "settings = {'amp_backend': 'apex', 'precision': 16}",
            "settings = dict(amp_level='O2')",
            "args.amp_backend = 'apex'",
            "settings['amp_level'] = 'O2'",
        ],
    )
    def test_settings_out_of_the_trainers_sight_are_reported(self, line: str) -> None:
        result = check_manual(f"import pytorch_lightning as pl\n\n{line}\n", "AMP801")
        assert result.after is None
        assert [f.line for f in result.findings] == [3]

    @pytest.mark.parametrize("use", ["print(given)", 'given["devices"] = 2', "Trainer(**given, logger=False)"])
    def test_a_dictionary_that_a_trainer_unpacks(self, use: str) -> None:
        text = """
            from pytorch_lightning import Trainer

            given = dict(devices=1, precision=16 if args.half else 32{level})
            {use}
            Trainer(**given)
            """
        after = text.replace("16 if", '"16-mixed" if')
        result = check_rewrite(text.format(level=", amp_level=args.level", use=use), after.format(level="", use=use))
        assert [(f.code, f.status) for f in result.findings] == [("AMP801", "done")]

    def test_a_key_that_is_set_for_a_trainer_alone_is_set_no_more(self) -> None:
        head = "from pytorch_lightning import Trainer\n\ngiven = {}\nif args.half:\n    given['precision'] = 16\n"
        level = "    given['amp_level'] = args.level\n"
        made = 'print(given)\nprint(f"{given}", given["precision"])\nTrainer(**given, devices=1)\n'
        result = check_rewrite(f"{head}{level}if args.level:\n{level}{made}", head + made)
        assert [(f.code, f.status) for f in result.findings] == [("AMP801", "done")] * 2

    @pytest.mark.parametrize(
        "given",
        [
            "given = {'gpus': 1, 'amp_level': args.level}",
            "given = dict(gpus=1)\nif args.half:\n    given['amp_level'] = args.level\nshow(given)",
            "given = dict(gpus=1)\nif args.half:\n    given['amp_level'] = level = args.level",
            "given = dict(gpus=1)\ngiven['amp_level'] = args.level\nprint(given['amp_level'])",
            "given = dict(gpus=1)\ngiven['amp_level'] = args.level\nshow(**given)",
            "given = dict(gpus=1, amp_level=args.level)\nshow(given)",
            "given = dict(gpus=1, amp_level=args.level)\nshow(given['amp_level'])",
            "given = dict(gpus=1)\nif args.half:\n    given = dict(gpus=1, amp_level=args.level)",
        ],
    )
    def test_one_that_is_not_simply_the_trainers_is_reported(self, given: str) -> None:
        text = f"from pytorch_lightning import Trainer\n\n{given}\ntrainer = Trainer(**given)\n"
        assert check_manual(text, "AMP801").after is None
        check_untouched(text.replace("Trainer", "Coach"))

    def test_a_read_of_what_the_trainer_no_longer_has_is_noted(self) -> None:
        result = rewrite("import pytorch_lightning as pl\n\nprint(self.trainer.amp_backend, args.amp_backend)\n")
        assert [(f.line, f.column, f.code, f.status) for f in result.findings] == [(3, 7, "AMP801", "note")]

    @pytest.mark.parametrize(
        ("imported", "reads", "told"),
        [
            ("from apex import amp", "", [1]),
            ("from apex import amp", "print(amp.state_dict())", []),
            ("try:\n    from apex import amp\nexcept ImportError:\n    amp = None", "", []),
        ],
    )
    def test_an_import_of_apex_that_nothing_reads_in_a_file_that_is_left(
        self, imported: str, reads: str, told: list[int]
    ) -> None:
        text = f"{imported}\nfrom pytorch_lightning import Trainer\n\n{reads}\n"
        text += "given = dict(gpus=1, amp_level=args.level)\nshow(given)\ntrainer = Trainer(**given)\n"
        result = rewrite(text)
        assert any(f.status == "manual" for f in result.findings)
        assert [f.line for f in result.findings if f.code == "AMP101" and f.review == "review"] == told

    @pytest.mark.parametrize(
        "value",
        [
            "[ApexMixedPrecisionPlugin('O2'), other]",
            "plugin",
            "NativeMixedPrecisionPlugin(16, 'cuda', scaler=scaler)",
        ],
    )
    def test_plugins_beside_others_or_with_a_scaler_are_reported(self, value: str) -> None:
        check_manual(
            f"""
            from pytorch_lightning import Trainer
            from pytorch_lightning.plugins import ApexMixedPrecisionPlugin, NativeMixedPrecisionPlugin

            plugin = ApexMixedPrecisionPlugin('O1')
            trainer = Trainer(plugins={value})
            """,
            "AMP802",
        )

    def test_a_trainer_of_another_library_is_left_alone(self) -> None:
        check_untouched("from mylib import Trainer\n\nTrainer(precision=16, amp_backend='apex', amp_level='O2')\n")

    def test_a_native_trainer_is_left_alone(self) -> None:
        check_untouched("from lightning import Trainer\n\nTrainer(precision=16)  # no amp_level\n")


class TestTransformers:
    def test_computed_values_go_too(self) -> None:
        check_rewrite(
            """
            from transformers import Seq2SeqTrainingArguments

            arguments = Seq2SeqTrainingArguments("out",
                                                 fp16=args.fp16,
                                                 fp16_opt_level=args.level,
                                                 fp16_backend=args.backend,
                                                 seed=1)
            """,
            """
            from transformers import Seq2SeqTrainingArguments

            arguments = Seq2SeqTrainingArguments("out",
                                                 fp16=args.fp16,
                                                 seed=1)
            """,
        )

    def test_a_class_of_the_projects_own(self) -> None:
        check_rewrite(
            """
            from transformers import TrainingArguments

            class Arguments(TrainingArguments):
                extra: int = 0

            arguments = Arguments("out", fp16=True, fp16_opt_level="O1")
            """,
            """
            from transformers import TrainingArguments

            class Arguments(TrainingArguments):
                extra: int = 0

            arguments = Arguments("out", fp16=True)
            """,
        )

    def test_bfloat16(self) -> None:
        check_rewrite(
            "from transformers import TrainingArguments\n\nTrainingArguments('o', fp16=True, fp16_backend='apex')\n",
            "from transformers import TrainingArguments\n\nTrainingArguments('o', bf16=True)\n",
            dtype="bfloat16",
        )

    @pytest.mark.parametrize(
        "line",
        [
            "TrainingArguments('o', fp16=True, fp16_backend='apex', fp16_opt_level='O0')",
            "TrainingArguments('o', half_precision_backend='cpu_amp')",
            "settings = {'half_precision_backend': 'apex'}",
            "args.fp16_backend = 'apex'",
        ],
    )
    def test_reported(self, line: str) -> None:
        result = check_manual(f"from transformers import TrainingArguments\n\n{line}\n", "AMP803")
        assert result.after is None

    def test_options_of_the_programs_own_are_left_alone(self) -> None:
        check_untouched(
            """
            import argparse
            from transformers import BertModel

            parser = argparse.ArgumentParser()
            parser.add_argument("--fp16_opt_level", default="O1")
            """
        )


class TestDeepSpeed:
    def test_o2_in_its_layout(self) -> None:
        check_rewrite(
            """
            config = {
                "train_batch_size": 8,
                "amp": {
                    "enabled": args.fp16,
                    "opt_level": "O2",
                    "loss_scale": 128.0
                },
            }
            """,
            """
            config = {
                "train_batch_size": 8,
                "fp16": {
                    "enabled": args.fp16,
                    "loss_scale": 128.0
                },
            }
            """,
        )

    def test_the_scaler_behaves_as_apexs(self) -> None:
        result = rewrite("config = {'train_batch_size': 8, 'amp': {'enabled': True, 'opt_level': 'O2'}}\n")
        assert result.after == (
            "config = {'train_batch_size': 8, 'fp16': {'enabled': True, 'loss_scale_window': 2000, 'hysteresis': 1}}\n"
        )

    @pytest.mark.parametrize(
        ("amp", "more"),
        [
            ("'enabled': True, 'opt_level': 'O3'", ""),
            ("'enabled': True, 'opt_level': level", ""),
            ("'enabled': True, 'opt_level': 'O1', 'loss_scale': 128", ""),
            ("'enabled': True, 'keep_batchnorm_fp32': True", ""),
            ("'enabled': True, **more", ""),
            ("'enabled': 'auto'", ""),
            ("'enabled': True, 'opt_level': 'O2'", ", 'fp16': {'enabled': False}"),
            ("'enabled': True", ", 'bf16': {'enabled': True}"),
        ],
    )
    def test_what_has_no_one_counterpart_is_reported(self, amp: str, more: str) -> None:
        result = check_manual(f"config = {{'train_batch_size': 8, 'amp': {{{amp}}}{more}}}\n", "AMP804")
        assert result.after is None

    @pytest.mark.parametrize(
        "line",
        [
            "state = {'model': 1, 'amp': {'enabled': True}}",
            "config = {'train_batch_size': 8, 'amp': {'enabled': False}}",
            "config = {'train_batch_size': 8, 'amp': True}",
        ],
    )
    def test_left_alone(self, line: str) -> None:
        check_untouched(f"{line}\n")


class TestIgnite:
    SOURCE = """
        import torch
        from apex import amp
        from ignite.engine import create_supervised_evaluator, create_supervised_trainer

        def run(model, loader, fp16):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            {initialize}
            trainer = create_supervised_trainer(model, optimizer, torch.nn.MSELoss(), {mode})
            evaluator = create_supervised_evaluator(model, device="cuda")
            return trainer, evaluator
        """
    INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'

    def test_evaluation_stays_in_mixed_precision(self) -> None:
        source = self.SOURCE.format(initialize=self.INITIALIZE, mode='amp_mode="apex"')
        after = rewrite(source).after
        assert after is not None
        assert 'torch.nn.MSELoss(), amp_mode="amp", scaler=True)' in after
        assert 'create_supervised_evaluator(model, device="cuda", amp_mode="amp")' in after
        assert "apex" not in after
        assert rewrite(after).after is None
        plain = rewrite(source, eval="fp32").after
        assert plain is not None
        assert 'create_supervised_evaluator(model, device="cuda")' in plain

    @pytest.mark.parametrize(
        ("initialize", "mode"),
        [
            (INITIALIZE.replace('"O1"', '"O0"'), 'amp_mode="apex"'),
            (INITIALIZE.replace('"O1"', '"O1", loss_scale=128.0'), 'amp_mode="apex"'),
            (f"if fp16: {INITIALIZE}", 'amp_mode="apex"'),
            (INITIALIZE, 'amp_mode="apex" if fp16 else None'),
        ],
    )
    def test_reported(self, initialize: str, mode: str) -> None:
        result = check_manual(self.SOURCE.format(initialize=initialize, mode=mode), "AMP805")
        assert result.after is None

    def test_initialize_out_of_sight(self) -> None:
        check_manual(
            """
            from ignite.engine import create_supervised_trainer

            trainer = create_supervised_trainer(model, optimizer, criterion, amp_mode="apex")
            """,
            "AMP805",
        )

    def test_the_training_step(self) -> None:
        check_manual(
            """
            from ignite.engine import supervised_training_step_apex

            step = supervised_training_step_apex(model, optimizer, criterion)
            """,
            "AMP805",
        )


class TestCatalyst:
    def test_engines_imported_by_name(self) -> None:
        check_rewrite(
            """
            from catalyst.engines import DataParallelAPEXEngine, DeviceEngine

            engine = DataParallelAPEXEngine(apex_kwargs={"opt_level": "O2"}) if fp16 else DeviceEngine("cuda")
            """,
            """
            from catalyst.engines import DataParallelAMPEngine, DeviceEngine

            engine = DataParallelAMPEngine() if fp16 else DeviceEngine("cuda")
            """,
        )

    @pytest.mark.parametrize(
        "line",
        [
            "engine = dl.APEXEngine(apex_kwargs=settings)",
            "engine = dl.APEXEngine(apex_kwargs={'opt_level': 'O0'})",
            "engine = dl.APEXEngine(apex_kwargs={'opt_level': 'O1', 'loss_scale': 128})",
            "engine = dl.DistributedDataParallelAPEXEngine(ddp_kwargs={'delay_allreduce': True})",
            "engines = {'apex': dl.APEXEngine}",
            "runner.train(fp16={'opt_level': 'O0'})",
            "runner.train(distributed_params={'opt_level': 'O1'})",
        ],
    )
    def test_reported(self, line: str) -> None:
        result = check_manual(f"from catalyst import dl\n\n{line}\n", "AMP806")
        assert result.after is None


class TestMMEngine:
    def test_arguments(self) -> None:
        check_rewrite(
            """
            optim_wrapper = dict(
                type='ApexOptimWrapper',
                opt_level='O2',
                loss_scale=512,
                clip_grad=dict(max_norm=1),
                optimizer=dict(type='SGD', lr=0.1))
            """,
            """
            optim_wrapper = dict(
                type='AmpOptimWrapper',
                loss_scale=512.0,
                clip_grad=dict(max_norm=1),
                optimizer=dict(type='SGD', lr=0.1))
            """,
        )

    def test_built_in_code(self) -> None:
        check_rewrite(
            """
            from mmengine.optim import ApexOptimWrapper

            wrapper = ApexOptimWrapper(optimizer=optimizer, opt_level="O1", accumulative_counts=4)
            """,
            """
            from mmengine.optim import AmpOptimWrapper

            wrapper = AmpOptimWrapper(optimizer=optimizer, accumulative_counts=4)
            """,
        )

    @pytest.mark.parametrize(
        "arguments",
        [
            "opt_level='O0'",
            "opt_level=level",
            "enabled=fp16",
            "loss_scale=scale",
            "max_loss_scale=65536.0",
        ],
    )
    def test_reported(self, arguments: str) -> None:
        result = check_manual(f"optim_wrapper = dict(type='ApexOptimWrapper', {arguments})\n", "AMP807")
        assert result.after is None

    def test_a_dictionary_of_another_form(self) -> None:
        check_manual("optim_wrapper = {'type': 'ApexOptimWrapper'}\n", "AMP807")

    def test_a_hook_out_of_sight(self) -> None:
        check_manual("optimizer_config = dict(type='DistOptimizerHook', grad_clip=None, use_fp16=True)\n", "AMP808")
        check_untouched("optimizer_config = dict(type='DistOptimizerHook', grad_clip=None)\n")


class TestOthers:
    def test_determined(self) -> None:
        check_manual(
            "def build(context, model, optimizer):\n    return context.configure_apex_amp(model, optimizer)\n", "AMP809"
        )

    def test_a_library_that_is_told_a_level(self) -> None:
        program = "from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer('a')\n"
        found = rewrite(program + "model.fit(train_objectives=[], fp16=True, fp16_opt_level='O2')\n")
        assert [(f.code, f.review) for f in found.findings] == [("AMP809", "review")]
        assert found.after is None
        check_untouched("def fit(model, fp16_opt_level):\n    return model\n\n\nfit(None, fp16_opt_level='O2')\n")
        check_untouched("options = dict(fp16_opt_level='O2')\n")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ('fp16=True, half_precision_backend="apex"', "only chose Apex; fp16=True alone"),
        ('fp16=False, half_precision_backend="amp"', "between torch's mixed precision and Apex's; fp16=False stays"),
        ('fp16=True, fp16_backend="auto"', "between torch's mixed precision and Apex's; fp16=True alone"),
        ('fp16=True, fp16_opt_level="O1"', "only chose Apex; fp16=True alone"),
    ],
)
def test_what_a_setting_of_transformers_chose_is_told(settings: str, told: str) -> None:
    result = rewrite(f'from transformers import TrainingArguments\narguments = TrainingArguments("out", {settings})\n')
    (finding,) = [f for f in result.findings if f.code == "AMP803"]
    assert told in finding.message


def test_the_library_that_defines_the_wrapper_is_no_user_of_it() -> None:
    library = """
        __all__ = ["ApexOptimWrapper"]


        class ApexOptimWrapper:
            pass
        """
    user = 'optim_wrapper = dict(type="ApexOptimWrapper", opt_level="O1")\n'
    results = rewrite_files({"wrapper.py": library, "test_it.py": user})
    assert all(r.after is None and not r.findings for r in results.values())
    assert rewrite_files({"test_it.py": user})["test_it.py"].after is not None
