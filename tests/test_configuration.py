"""Settings of frameworks in JSON and YAML files: every byte that does not choose Apex stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amp_migrate.configuration import is_configuration, migrate, names_in
from amp_migrate.findings import FileResult
from amp_migrate.options import Options
from amp_migrate.sources.files import SourceFile
from tests.cli_testing import run, run_json, write_tree

DEEPSPEED = """{
    // eight a device
    "train_batch_size": 8,
    "amp":   {
        "enabled": true,
        "opt_level": "%s"
    },
    "gradient_clipping": 1.0
}
"""
LIGHTNING = """# how to train
trainer:
  devices:   2
  amp_backend: apex   # fast
  precision: 16  # half
  amp_level: O2
  max_epochs: 3
"""


def result(text: str, name: str = "config.json", named: tuple[str, ...] = (), **options: object) -> FileResult:
    source = SourceFile(Path(name), name, text)
    return migrate(source, Options(**options), lambda setting: setting in named)  # type: ignore[arg-type]


def manual(found: FileResult) -> list[tuple[int, str]]:
    return [(f.line, f.code) for f in found.findings if f.status == "manual"]


@pytest.mark.parametrize("name", ["a.json", "b.yaml", "c.yml", "d.jsonnet"])
def test_the_files(name: str) -> None:
    assert is_configuration(name)
    assert not is_configuration(f"{name}.py")


class TestDeepSpeed:
    def test_o1(self) -> None:
        found = result(DEEPSPEED % "O1")
        wanted = DEEPSPEED.replace('"amp"', '"torch_autocast"').replace('"opt_level": "%s"', '"dtype": "float16"')
        assert found.after == wanted
        assert found.status == "migrated"
        assert [(f.line, f.column, f.code, f.status) for f in found.findings] == [(4, 5, "AMP804", "done")]
        assert result(wanted).after is None

    def test_o2(self) -> None:
        found = result(DEEPSPEED % "O2")
        assert found.after == DEEPSPEED.replace('"amp"', '"fp16"').replace(
            '"opt_level": "%s"', '"loss_scale_window": 2000,\n        "hysteresis": 1'
        )

    def test_on_one_line(self) -> None:
        found = result('{"train_batch_size": 8, "amp": {"enabled": true, "opt_level": "O2", "loss_scale": 128}}')
        assert found.after == '{"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale": 128}}'

    def test_bfloat16(self) -> None:
        found = result('{"train_batch_size": 8, "amp": {"enabled": true}}', dtype="bfloat16")
        assert found.after == '{"train_batch_size": 8, "torch_autocast": {"enabled": true, "dtype": "bfloat16"}}'

    @pytest.mark.parametrize(
        "config",
        [
            {"train_batch_size": 8, "amp": {"enabled": True, "opt_level": "O3"}},
            {"train_batch_size": 8, "amp": {"enabled": "auto", "opt_level": "auto"}},
            {"train_batch_size": 8, "amp": {"enabled": True}, "fp16": {"enabled": True}},
            {"train_batch_size": 8, "amp": {"enabled": True, "keep_batchnorm_fp32": True}},
        ],
    )
    def test_reported(self, config: object) -> None:
        found = result(json.dumps(config, indent=1))
        assert found.after is None
        assert found.status == "blocked"
        assert manual(found) == [(3, "AMP804")]

    @pytest.mark.parametrize(
        "config",
        [
            {"train_batch_size": 8, "amp": {"enabled": False, "opt_level": 1}},
            {"amp": {"enabled": True}, "name": "amplifier"},
            {"train_batch_size": 8, "amp": 3},
        ],
    )
    def test_left_alone(self, config: object) -> None:
        found = result(json.dumps(config))
        assert not found.findings
        assert not found.listed

    @pytest.mark.parametrize(
        "amp",
        ['{"enabled": true}', '{\n  "opt_level": "O1",\n  "enabled": {{ fp16 }}\n}', '{"enabled": true, "n": [[}'],
    )
    def test_a_file_that_cannot_be_read_is_told_of(self, amp: str) -> None:
        found = result('{\n  "train_batch_size": {{ size }},\n  "amp": ' + amp + "\n}\n", named=("opt_level",))
        assert found.after is None
        assert manual(found) == [(3, "AMP804")]

    @pytest.mark.parametrize("amp", ['{"enabled": false}', '{"on": true}', "3"])
    def test_and_left_alone_where_it_does_not_choose_apex(self, amp: str) -> None:
        assert not result('{\n  "train_batch_size": {{ size }},\n  "amp": ' + amp + "\n}\n").findings
        assert not result('{\n  "size": {{ size }},\n  "amp": {"enabled": true}\n}\n').findings


class TestLightning:
    def test_yaml(self) -> None:
        found = result(LIGHTNING, "config.yaml")
        assert (
            found.after == "# how to train\ntrainer:\n  devices:   2\n  precision: 16-mixed  # half\n  max_epochs: 3\n"
        )
        assert [(f.line, f.status) for f in found.findings] == [(4, "done"), (5, "done"), (6, "done")]

    def test_entries_that_lightning_2_refuses_keep_the_precision_of_their_version(self) -> None:
        found = result(LIGHTNING.replace("devices:", "gpus:"), "config.yaml")
        assert found.after == "# how to train\ntrainer:\n  gpus:   2\n  precision: 16  # half\n  max_epochs: 3\n"

    def test_carriage_returns_stay(self) -> None:
        found = result(LIGHTNING.replace("\n", "\r\n"), "config.yaml")
        assert found.after is not None
        assert found.after.count("\r\n") == found.after.count("\n") == 5

    def test_json(self) -> None:
        found = result('{"trainer": {"precision": 16, "amp_backend": "apex", "amp_level": "O2"}, "seed": 1}')
        assert found.after == '{"trainer": {"precision": "16-mixed"}, "seed": 1}'

    @pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 0, 3, 2), (3, 0, 2, 1), (0, 2, 1, 3), (1, 2, 3, 0)])
    def test_entries_go_with_their_commas(self, order: tuple[int, ...]) -> None:
        entries = ['"precision": 32', '"amp_level": "O1"', '"amp_backend": "apex"', '"gpus": 2']
        found = result("{\n  " + ",\n  ".join(entries[i] for i in order) + "\n}\n")
        assert found.after is not None
        assert json.loads(found.after) == {"precision": 32, "gpus": 2}
        assert "\n" in found.after

    def test_a_setting_that_the_code_reads_is_reported(self) -> None:
        found = result(LIGHTNING, "config.yaml", named=("amp_level",))
        assert found.after is None
        assert manual(found) == [(4, "AMP801"), (6, "AMP801")]

    @pytest.mark.parametrize(
        "text",
        [
            "trainer:\n  - amp_backend: apex\n    precision: 16\n",
            "trainer:\n  amp_backend: apex\n",
            "trainer:\n  amp_backend: apex\n  amp_level: O0\n  precision: 16\n",
        ],
    )
    def test_reported(self, text: str) -> None:
        found = result(text, "config.yaml")
        assert found.after is None
        assert {code for _, code in manual(found)} == {"AMP801"}

    def test_text_in_a_block_is_text(self) -> None:
        assert not result("notes: |\n  amp_backend: apex\n  precision: 16\nseed: 1\n", "config.yaml").findings


class TestTransformers:
    def test_json(self) -> None:
        text = '{\n  "output_dir": "o",\n  "half_precision_backend": "apex",\n  "fp16": true,\n  "fp16_opt_level": "O1"\n}\n'
        assert result(text).after == '{\n  "output_dir": "o",\n  "fp16": true\n}\n'

    def test_a_level_alone_is_the_programs_own_unless_the_arguments_are_transformers(self) -> None:
        text = '{"fp16_opt_level": "O1", "lr": 1}'
        assert result(text).after is None
        found = result(text, named=("fp16_opt_level",))
        assert [(f.code, f.status) for f in found.findings] == [("AMP853", "note")]
        assert result('{"output_dir": "o", "per_device_train_batch_size": 8, "fp16_opt_level": "O1"}').after == (
            '{"output_dir": "o", "per_device_train_batch_size": 8}'
        )

    @pytest.mark.parametrize(("backend", "status"), [("amp", "note"), ("apex", "manual"), ("auto", "manual")])
    def test_a_backend_of_torchs_own_leaves_nothing_to_do_beside_code_that_asks_for_the_level(
        self, backend: str, status: str
    ) -> None:
        text = f'fp16: true\nfp16_opt_level: "O1"\nfp16_backend: "{backend}"\n'
        found = result(text, "config.yaml", named=("fp16_opt_level",))
        assert [(f.line, f.code, f.status) for f in found.findings] == [(2, "AMP803", status), (3, "AMP803", status)]
        assert found.after is None


class TestOthers:
    def test_levels_that_a_framework_reads(self) -> None:
        assert manual(result('local n = 1;\n{\n  trainer: { opt_level: "O1" },\n}\n', "config.jsonnet")) == [
            (3, "AMP809")
        ]
        assert manual(result("fp16:\n  opt_level: O1\n", "config.yml")) == [(2, "AMP809")]

    def test_apex_as_the_kind_of_precision(self) -> None:
        assert manual(result("AMP_PARAMS:\n  USE_AMP: True\n  AMP_TYPE: apex\n", "config.yaml")) == [(3, "AMP809")]
        assert [f.status for f in result("SYNC_BN_TYPE: apex\n", "c.yaml", named=("SYNC_BN_TYPE",)).findings] == [
            "note"
        ]
        assert not result("name: apex\nlegend: apex\n", "config.yaml").findings

    def test_mmengine(self) -> None:
        assert manual(result("optim_wrapper:\n  type: ApexOptimWrapper\n", "config.yaml")) == [(2, "AMP807")]

    @pytest.mark.parametrize("text", ["{", "[1, 2", '{"a" 1}', '{"amp_backend": }', "", "{]", "\x00", '"a', "[" * 5000])
    def test_what_is_not_json_is_not_touched(self, text: str) -> None:
        assert result(text).after is None


class TestCommands:
    @pytest.fixture(autouse=True)
    def _in_tmp(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_rewrite_and_check_agree(self) -> None:
        write_tree(
            Path(), {"ds.json": DEEPSPEED % "O1", "conf/t.yaml": LIGHTNING, "other.json": '{"a": 1}', "m.py": "x = 1\n"}
        )
        code, report = run_json("check", ".")
        assert code == 1
        assert [(f["path"], f["status"]) for f in report["files"]] == [
            ("conf/t.yaml", "migrated"),
            ("ds.json", "migrated"),
        ]
        assert run("rewrite", "--check", ".").exit_code == 1
        assert Path("ds.json").read_text() == DEEPSPEED % "O1"
        assert run("rewrite", ".").exit_code == 0
        assert '"torch_autocast"' in Path("ds.json").read_text()
        assert Path("other.json").read_text() == '{"a": 1}'
        assert run("rewrite", ".").exit_code == 0
        assert run("check", ".").exit_code == 0

    def test_ignored_files_and_codes(self) -> None:
        write_tree(
            Path(), {".git/HEAD": "", ".gitignore": "gen/\n", "gen/ds.json": DEEPSPEED % "O1", "t.yaml": LIGHTNING}
        )
        assert run("rewrite", "--check", "--ignore", "AMP801", ".").exit_code == 0
        assert run("rewrite", "--check", "--exclude", "t.yaml", ".").exit_code == 0
        Path("t.yaml").write_text(LIGHTNING.replace("# fast", "# amp-migrate: ignore[AMP801]"))
        assert run("rewrite", ".").exit_code == 0
        assert "amp_backend: apex" in Path("t.yaml").read_text()

    def test_the_code_says_which_settings_are_its_own(self) -> None:
        write_tree(Path(), {"t.yaml": LIGHTNING, "m.py": "import lightning\n\nprint(config.trainer.amp_level)\n"})
        code, report = run_json("rewrite", ".")
        assert code == 1
        assert {f["path"]: f["status"] for f in report["files"]}["t.yaml"] == "blocked"
        assert Path("t.yaml").read_text() == LIGHTNING

    def test_a_byte_order_mark_stays(self) -> None:
        Path("t.yaml").write_bytes(b"\xef\xbb\xbf" + LIGHTNING.encode())
        assert run("rewrite", "t.yaml").exit_code == 0
        assert Path("t.yaml").read_bytes().startswith(b"\xef\xbb\xbf# how")
        assert b"apex" not in Path("t.yaml").read_bytes()


def test_a_comment_reads_no_setting() -> None:
    def named(text: str) -> bool:
        return names_in([SourceFile(Path("a.py"), "a.py", text)])("OPT_LEVEL")

    assert named("use(cfg.OPT_LEVEL)  # the level\n")
    assert named('print("# of", cfg.OPT_LEVEL)\n')
    assert not named("x = 1\n#     opt_level=cfg.OPT_LEVEL,\nuse(x)  # cfg.OPT_LEVEL\n")


@pytest.mark.parametrize("name", ["config.yaml", "config.json"])
def test_settings_too_large_to_read_are_named_where_they_are_apexs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def text(value: str) -> str:
        return json.dumps({"trainer": {"amp_backend": value}, "table": "x" * 1_200_000})

    large = {name: text("apex"), f"other_{name}": text("native"), "data.json": json.dumps(["amp: apex" * 200_000])}
    write_tree(tmp_path, large)
    monkeypatch.chdir(tmp_path)
    done = run("check", ".")
    assert done.exit_code == 2
    assert f"{name}:1:1 AMP005 names a setting of Apex's and is larger than 1,000,000 bytes" in done.output
    assert "other_" not in done.output
    assert "data.json" not in done.output


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('(out / "params.json").write_text(json.dumps(vars(args)))', False),
        ('json.dump(vars(args), open(f"{out}/params.json", "w"))', False),
        ('with open(os.path.join(out, "params.json"), "w") as file: json.dump(vars(args), file)', False),
        ('args = json.loads((out / "params.json").read_text())', True),
        ("args = json.load(open(sys.argv[1]))", True),
    ],
)
def test_what_a_run_writes_is_nobodys_setting(
    line: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tree(
        Path(), {"train.py": f"{line}\nprint(args.opt_level)\n", "runs/one/params.json": '{"opt_level": "O1"}\n'}
    )
    _, report = run_json("rewrite", ".")
    assert [f["code"] for x in report["files"] for f in x["findings"]] == ["AMP853"] * told
