"""What the rules about parallel, optimizers and normalization share: branches that go, imports and guards that stay."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from amp_migrate.engine import Program, migrate
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from tests.rules.helpers import check_rewrite, rewrite


def test_a_guard_with_a_native_side_leaves_its_import() -> None:
    check_rewrite(
        """
        import torch
        # the one that is there
        try:
            from apex.parallel import DistributedDataParallel as DDP, convert_syncbn_model
            HAS_APEX = True
        except ImportError:
            from torch.nn.parallel import DistributedDataParallel as DDP
            HAS_APEX = False

        def wrap(model, rank):
            if HAS_APEX:
                model = DDP(convert_syncbn_model(model), delay_allreduce=True)
            else:
                model = DDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), device_ids=[rank])
            return model
        """,
        """
        import torch
        # the one that is there
        from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model, rank):
            model = DDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), device_ids=[rank])
            return model
        """,
    )


def test_a_guard_with_a_native_side_of_another_name_leaves_that() -> None:
    check_rewrite(
        """
        try:
            from apex.parallel import DistributedDataParallel as ApexDDP
        except ImportError:
            from torch.nn.parallel import DistributedDataParallel as TorchDDP

        def wrap(args, model):
            if args.amp:
                model = ApexDDP(model)
            else:
                model = TorchDDP(model, device_ids=[args.rank])
            return model
        """,
        """
        from torch.nn.parallel import DistributedDataParallel as TorchDDP

        def wrap(args, model):
            model = TorchDDP(model, device_ids=[args.rank])
            return model
        """,
    )


def test_a_guard_that_sets_the_name_to_none_goes() -> None:
    check_rewrite(
        """
        try:
            from apex.parallel import DistributedDataParallel as DDP
        except ImportError:
            DDP = None

        def wrap(model):
            return DDP(model)
        """,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model):
            return DDP(model)
        """,
    )


def test_a_choice_of_imports_keeps_the_native_one() -> None:
    check_rewrite(
        """
        import torch
        from config import config

        if config.use_apex:
            import apex
            from apex.parallel import DistributedDataParallel as DDP
        else:
            DDP = torch.nn.parallel.DistributedDataParallel

        def wrap(model):
            if config.use_apex:
                model = apex.parallel.convert_syncbn_model(model)
            else:
                model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            if config.use_apex:
                return DDP(model, delay_allreduce=True)
            else:
                return DDP(model, device_ids=[config.gpu])
        """,
        """
        import torch
        from config import config

        DDP = torch.nn.parallel.DistributedDataParallel

        def wrap(model):
            model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
            return DDP(model, device_ids=[config.gpu])
        """,
    )


def test_pairs_of_several_models_fold_together() -> None:
    check_rewrite(
        """
        import apex
        from torch import nn

        def wrap(args, encoder, decoder):
            if args.fp16:
                if args.encoder_only:
                    encoder = apex.parallel.DistributedDataParallel(encoder)
                else:
                    encoder = apex.parallel.DistributedDataParallel(encoder)
                    decoder = apex.parallel.DistributedDataParallel(decoder)
            else:
                if args.encoder_only:
                    encoder = nn.parallel.DistributedDataParallel(encoder, device_ids=[args.rank])
                else:
                    encoder = nn.parallel.DistributedDataParallel(encoder, device_ids=[args.rank])
                    decoder = nn.parallel.DistributedDataParallel(decoder, device_ids=[args.rank])
            return encoder, decoder
        """,
        """
        from torch import nn

        def wrap(args, encoder, decoder):
            if args.encoder_only:
                encoder = nn.parallel.DistributedDataParallel(encoder, device_ids=[args.rank])
            else:
                encoder = nn.parallel.DistributedDataParallel(encoder, device_ids=[args.rank])
                decoder = nn.parallel.DistributedDataParallel(decoder, device_ids=[args.rank])
            return encoder, decoder
        """,
    )


def test_a_conditional_expression_keeps_its_native_value() -> None:
    check_rewrite(
        """
        from apex.parallel import DistributedDataParallel as ADDP
        from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model, rank, with_apex):
            return DDP(model, device_ids=[rank]) if not with_apex else ADDP(model)

        def kind(with_apex):
            return DDP if not with_apex else ADDP
        """,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model, rank, with_apex):
            return DDP(model, device_ids=[rank])

        def kind(with_apex):
            return DDP
        """,
    )


def test_branches_that_become_the_same_are_written_once() -> None:
    check_rewrite(
        """
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(model, late):
            if late:
                model = DDP(model, delay_allreduce=True)
            else:
                model = DDP(model)
            return model

        def is_wrapped(model, cls):
            return isinstance(model, DDP) or isinstance(model, cls)
        """,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP

        def wrap(model, late):
            model = DDP(model)
            return model

        def is_wrapped(model, cls):
            return isinstance(model, DDP) or isinstance(model, cls)
        """,
    )


CHOICE = """
    import torch
    from torch import optim

    def make(params, use_apex):
        if use_apex:
            from apex.optimizers import FusedSGD
            SGD = FusedSGD
        else:
            SGD = optim.SGD
        return [SGD(p, GIVEN) for p in params]
    """


def test_a_choice_of_optimizers_is_one() -> None:
    result = rewrite(CHOICE.replace("GIVEN", "lr=0.1, momentum=0.9, nesterov=True"))
    assert result.after is not None
    assert "use_apex:" not in result.after
    assert "    SGD = optim.SGD\n    return" in result.after
    assert [f.review for f in result.findings if f.code == "AMP622"] == ["as-is"]


@pytest.mark.parametrize("given", ["lr=0.1, **options", "*given"])
def test_what_calls_the_chosen_one_is_looked_at(given: str) -> None:
    result = rewrite(CHOICE.replace("GIVEN", given))
    assert [f.review for f in result.findings if f.code == "AMP622"] == ["review"]


def test_an_option_of_apexs_own_leaves_the_chosen_one() -> None:
    result = rewrite(CHOICE.replace("GIVEN", "lr=0.1, wd_after_momentum=True"))
    assert result.after is None
    assert "no parameter wd_after_momentum" in result.findings[0].message


@pytest.mark.parametrize(
    "other",
    [
        "model = torch.nn.DataParallel(model)",  # another thing
        "model = torch.nn.parallel.DistributedDataParallel(other)",  # of another model
        "wrapped = torch.nn.parallel.DistributedDataParallel(model)",  # under another name
        "model = torch.nn.parallel.DistributedDataParallel(model); model.train()",  # and more
    ],
)
def test_a_branch_that_does_something_else_stays(other: str) -> None:
    result = rewrite(
        f"""
        import torch
        from apex.parallel import DistributedDataParallel as DDP

        def wrap(args, model, other):
            if args.distributed:
                model = DDP(model)
            else:
                {other}
            return model
        """
    )
    assert result.after is not None
    assert "if args.distributed:\n        model = DDP(model)\n    else:\n" in result.after


def test_a_message_that_names_apexs_wrapper_is_corrected() -> None:
    check_rewrite(
        """
        import logging
        import apex
        import torch

        def wrap(model):
            logging.info("Using apex.parallel.DistributedDataParallel ...")
            return apex.parallel.DistributedDataParallel(model.to(torch.device("cuda")))
        """,
        """
        import logging
        import torch

        def wrap(model):
            logging.info("Using DistributedDataParallel ...")
            return torch.nn.parallel.DistributedDataParallel(model.to(torch.device("cuda")))
        """,
    )


def test_an_unrelated_import_in_the_guard_keeps_it() -> None:
    result = rewrite(
        """
        try:
            import fast_loader
            from apex.parallel import DistributedDataParallel as DDP
        except ImportError:
            import slow_loader as fast_loader

        def wrap(model):
            return DDP(model).to(fast_loader.device)
        """
    )
    assert result.after is not None
    assert "try:\n    import fast_loader\nexcept ImportError:\n    import slow_loader as fast_loader\n" in result.after
    assert result.after.startswith("from torch.nn.parallel import DistributedDataParallel as DDP\n")


def test_amp_and_its_companions_go_together() -> None:
    check_rewrite(
        """
        import torch
        try:
            from apex.parallel import DistributedDataParallel as DDP
            from apex import amp
        except ImportError:
            raise ImportError("Please install apex.")

        def main(args, model, loader):
            torch.cuda.set_device(args.local_rank)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            model = DDP(model, delay_allreduce=True)
            for x, y in loader:
                loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
                optimizer.step()
        """,
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel as DDP

        def main(args, model, loader):
            torch.cuda.set_device(args.local_rank)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cuda")
            model = DDP(model, device_ids=[args.local_rank])
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = torch.nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """,
    )


def test_a_name_that_other_files_import_stays_importable() -> None:
    layers = "from apex.normalization import FusedLayerNorm as LayerNorm\n"
    model = "from layers import LayerNorm\n\nnorm = LayerNorm(8, memory_efficient=True)\n"
    sources = [SourceFile(Path(n), n, t) for n, t in (("layers.py", layers), ("model.py", model))]
    first, second = migrate(Program(sources), Options())
    assert first.after == "from torch.nn import LayerNorm\n"
    assert second.after is not None
    assert "norm = LayerNorm(8)\n" in second.after or "norm = torch.nn.LayerNorm(8)\n" in second.after


OWN = """
    from torch import nn

    def wrap(conf, model):
        if conf.level:
            from apex.parallel import DistributedDataParallel as DDP
        else:
            DDP = {own}
        return DDP(model, delay_allreduce=True)
    """


@pytest.mark.parametrize(
    "own",
    [
        "lambda model: nn.parallel.DistributedDataParallel(model, find_unused_parameters=conf.unused)",
        "functools.partial(nn.parallel.DistributedDataParallel, find_unused_parameters=True)",
    ],
)
def test_what_a_program_wraps_in_without_apex_stays_for_every_run(own: str) -> None:
    head = "import functools\n" if "functools" in own else ""
    source = head + textwrap.dedent(OWN.format(own=own))
    written = head + textwrap.dedent(
        f"""
        from torch import nn

        def wrap(conf, model):
            DDP = {own}
            return DDP(model)
        """
    )
    check_rewrite(source, written)


def test_what_stands_in_for_a_missing_apex_stays_with_what_it_imports() -> None:
    check_rewrite(
        """
        from torch.nn.parallel import DistributedDataParallel as Torchs

        try:
            from apex.parallel import DistributedDataParallel as DDP
        except ImportError:
            from functools import partial

            def DDP(model):
                return partial(Torchs, find_unused_parameters=True)(model)

        def wrap(model):
            return DDP(model)
        """,
        """
        from torch.nn.parallel import DistributedDataParallel as Torchs

        from functools import partial
        def DDP(model):
            return partial(Torchs, find_unused_parameters=True)(model)

        def wrap(model):
            return DDP(model)
        """,
    )


def test_a_name_that_is_imported_further_below_is_not_written() -> None:
    check_rewrite(
        """
        from torch import nn

        def wrap(conf, model):
            if conf.level:
                from apex.parallel import DistributedDataParallel as DDP
                return DDP(model)
            from torch.nn.parallel import DistributedDataParallel as Torchs
            return Torchs(model, find_unused_parameters=True)
        """,
        """
        from torch import nn

        def wrap(conf, model):
            if conf.level:
                return nn.parallel.DistributedDataParallel(model)
            from torch.nn.parallel import DistributedDataParallel as Torchs
            return Torchs(model, find_unused_parameters=True)
        """,
    )


SHARED = """
    import logging

    import torch

    try:
        from apex.parallel import DistributedDataParallel as DDP

        HAS_APEX = True
    except ImportError:
        from torch.nn.parallel import DistributedDataParallel as DDP

        HAS_APEX = False


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm2d(3)

        def forward(self, x):
            return self.norm(x)


    def wrap(args):
        model = Net().cuda()
        logging.info("Apex %s, amp %s", "installed" if HAS_APEX else "not installed", "on" if args.amp else "off")
        if HAS_APEX:
            model = DDP(model, delay_allreduce=True)
        else:
            model = DDP(model, device_ids=[args.rank]KEYWORDS)
        return model
"""


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ("", ["find_unused_parameters=True if", "broadcast_buffers=False keeps"]),
        (", find_unused_parameters=True", ["broadcast_buffers=False keeps"]),
        (", find_unused_parameters=True, broadcast_buffers=False", []),
    ],
)
def test_a_branch_that_stays_is_told_of_where_an_import_shares_its_name_with_apexs(
    keywords: str, told: list[str]
) -> None:
    result = rewrite(SHARED.replace("KEYWORDS", keywords))
    (message,) = [f.message for f in result.findings if f.code == "AMP601" and "native branch stays" in f.message]
    said = [part for part in ("find_unused_parameters=True if", "broadcast_buffers=False keeps") if part in message]
    assert said == told


def test_what_is_told_is_what_was_told_without_apex() -> None:
    after = rewrite(SHARED.replace("KEYWORDS", "")).after
    assert after is not None
    assert 'logging.info("Apex %s, amp %s", "not installed", "on" if args.amp else "off")' in after


def test_a_class_is_not_asked_for_twice_where_only_apex_told_it_from_another() -> None:
    check_rewrite(
        """
        import torch
        try:
            import apex
            HAS_APEX = True
        except ImportError:
            HAS_APEX = False

        def count(model):
            found = 0
            for layer in model.modules():
                if isinstance(layer, torch.nn.BatchNorm2d) or isinstance(layer, torch.nn.SyncBatchNorm) or (
                        HAS_APEX and isinstance(layer, apex.parallel.SyncBatchNorm)):
                    found += 1
            return found
        """,
        """
        import torch

        def count(model):
            found = 0
            for layer in model.modules():
                if isinstance(layer, torch.nn.BatchNorm2d) or isinstance(layer, torch.nn.SyncBatchNorm):
                    found += 1
            return found
        """,
    )


@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("(128 if HAS_APEX else 64) * devices", "128 * devices"),
        ("devices * (128 if HAS_APEX else 64)", "devices * 128"),
        ("(128 if HAS_APEX else 64) * (devices + 1)", "(128) * (devices + 1)"),
        ("(2 * devices if HAS_APEX else devices) ** 2", "(2 * devices) ** 2"),
    ],
)
def test_what_is_left_of_a_choice_stands_in_parentheses_where_it_needs_them(written: str, left: str) -> None:
    head = "import torch\ntry:\n    import apex\n    HAS_APEX = True\nexcept ImportError:\n    HAS_APEX = False\n\n"
    function = "def size(devices):\n    return {}\n"
    check_rewrite(head + function.format(written), "import torch\n\n" + function.format(left))
