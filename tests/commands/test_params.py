import json

import pytest

from byteseam import cli

CONFIG = """
[model]
width = 32
heads = 2
encoder_layers = 1
token_layers = 2
decoder_layers = 1
byte_mlp_width = 32
token_mlp_width = 64
window = 16

[strategy]
name = "score_function"
bytes_per_token = 4.0
samples = 3
sample_rows = 0.5

[training]
length_bytes = 128
batch_rows = 8
"""


@pytest.fixture
def params(capsys, tmp_path):
    """``params("--json")`` -> (exit code, stdout, stderr), as the command line would."""
    path = tmp_path / "tiny.toml"
    path.write_text(CONFIG)

    def call(*arguments):
        code = cli.main(["params", str(path), *arguments])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def answer(params):
    def call(*arguments):
        code, out, err = params(*arguments, "--json")
        assert (code, err) == (0, "")
        assert out.count("\n") == 1
        return json.loads(out)

    return call


def test_the_answer_in_json_is_exact(answer, tmp_path):
    found = answer()
    width, ids = 32, 257
    block = 4 * width * width + 2 * width + width // 2  # attention, its two norms of the width, one of a head
    head = width + width * ids + ids
    assert found["parameters"]["by_part"] == {
        "embedding": ids * width,
        "encoder": block + 3 * width * 32,
        "early_head": head,
        "policy": width + width + 1,
        "token_model": 2 * (block + 3 * width * 64) + width,
        "pooling": 0,
        "decoder": block + 3 * width * 32,
        "head": head,
    }
    # A byte meets the 64 of its block and the 16 of the window before, a token the 32 of its row.
    byte_block = 2 * (4 * width * width + 3 * width * 32) + 4 * (64 + 16) * width
    token_block = 2 * (4 * width * width + 3 * width * 64) + 4 * 32 * width
    forward = {
        "embedding": 0,
        "encoder": byte_block,
        "early_head": 2 * width * ids,
        "policy": 2 * width,
        "token_model": 2 * token_block // 4,
        "pooling": 0,
        "decoder": byte_block,
        "head": 2 * width * ids,
    }
    assert found["forward_flops_per_byte"]["by_part"] == forward
    # 2 further rollouts of half the rows: once more forward
    factors = {"policy": 6, "token_model": 4, "decoder": 4, "head": 4}
    training = {part: factors.get(part, 3) * flops for part, flops in forward.items()}
    assert found["training_flops_per_byte"]["by_part"] == training
    for name in ("parameters", "forward_flops_per_byte", "training_flops_per_byte"):
        by_part = found[name]["by_part"]
        assert all(type(number) is int for number in by_part.values())
        assert found[name]["total"] == sum(by_part.values())
        assert found["token_model_share"][name] == pytest.approx(by_part["token_model"] / found[name]["total"])
    assert found["config"] == str(tmp_path / "tiny.toml")
    assert (found["bytes_per_token"], found["length_bytes"], found["micro_batches"]) == (4.0, 128, 1)


def test_overrides_count(answer):
    plain, deeper = answer(), answer("--model.token_layers", "4")
    own = plain["parameters"]["by_part"]["token_model"] - 32
    assert deeper["parameters"]["by_part"]["token_model"] == 2 * own + 32
    sparse = answer("strategy.bytes_per_token=8", "--strategy.samples=2")
    assert (sparse["bytes_per_token"], sparse["rollouts"]) == (8.0, 2)
    assert sparse["forward_flops_per_byte"]["total"] < plain["forward_flops_per_byte"]["total"]
    parts = answer("--training.micro_batch_rows", "2")
    assert parts["micro_batches"] == 4
    more = parts["training_flops_per_byte"]["total"] - plain["training_flops_per_byte"]["total"]
    forward = plain["forward_flops_per_byte"]["by_part"]
    assert more == forward["encoder"] + forward["early_head"] + forward["policy"]


def test_the_table_has_every_part_and_says_what_it_holds_for(params, answer):
    found = answer("--training.micro_batch_rows", "2")
    code, out, err = params("--training.micro_batch_rows", "2")
    assert (code, err) == (0, "")
    table, _, notes = out.partition("\n\n")
    title, *rows = table.splitlines()
    assert title.split() == ["parameters", "FLOPs/byte", "forward", "FLOPs/byte", "training"]
    assert len({len(line) for line in (title, *rows)}) == 1
    columns = [found[name] for name in ("parameters", "forward_flops_per_byte", "training_flops_per_byte")]
    for row, part in zip(rows, columns[0]["by_part"], strict=False):
        assert row.startswith(part.replace("_", " "))
        for column in columns:
            assert f" {column['by_part'][part]:,} " in row
    assert rows[-1].startswith("total ")
    for column in columns:
        assert f" {column['total']:,} " in rows[-1]
    share = 100 * found["token_model_share"]["training_flops_per_byte"]
    assert f"{share:.1f} %" in next(row for row in rows if row.startswith("token model"))
    assert "counted at 4 bytes per token, in rows of 128 bytes" in notes
    assert "2 more rollouts forward on 50 % of the rows" in notes
    assert "the statistics of 4 micro-batches" in notes


def test_a_rule_that_learns_nothing(params, answer):
    rule = ("--strategy.name", "uniform")
    assert answer(*rule)["parameters"]["by_part"]["policy"] == 0
    out = params(*rule)[1]
    assert "rollouts" not in out
    assert "micro-batches" not in out


def test_another_rate_than_the_target(params, answer):
    target, other = answer(), answer("--rate", "0.5")
    assert other["rate"] == 0.5
    width = 32
    # Twice the tokens, of which each meets twice as many.
    token_block = 2 * (4 * width * width + 3 * width * 64) + 4 * 64 * width
    assert other["forward_flops_per_byte"]["by_part"]["token_model"] == 2 * token_block // 2
    for part in ("encoder", "decoder", "head"):
        assert other["forward_flops_per_byte"]["by_part"][part] == target["forward_flops_per_byte"]["by_part"][part]
    assert "counted at 2 bytes per token" in params("--rate", "0.5")[1]
    for rate in ("0", "1.5", "nan"):
        assert params("--rate", rate)[::2] == (
            2,
            f"byteseam: --rate is {float(rate):g}, but tokens per byte lie in (0, 1]\n",
        )


def test_the_flat_model_is_sized_first(answer):
    unet = answer("--strategy.name", "uniform")
    flat = answer("--strategy.name", "flat")
    assert flat["forward_flops_per_byte"]["total"] == pytest.approx(unet["forward_flops_per_byte"]["total"], rel=0.02)
    assert flat["parameters"]["by_part"]["token_model"] == 32 + answer("--strategy.name=flat")["strategy"]["width"] - 32
    assert flat["strategy"]["layers"] == 2


def test_what_pooling_learns_is_a_part_of_its_own(answer):
    assert answer("--strategy.name", "hnet")["parameters"]["by_part"]["pooling"] == 32 * 32
    assert answer("--strategy.name", "gumbel")["parameters"]["by_part"]["pooling"] == 32


def test_no_memory_is_taken_for_the_model(answer):
    # 4 * 10^14 parameters: the meta device or nothing
    found = answer("--model.width", "4000000", "--model.token_layers", "4")
    assert found["parameters"]["by_part"]["token_model"] > 2.5e14


def test_mistakes_are_one_sentence(params, capsys):
    code, out, err = params("--model.widht", "64")
    assert (code, out) == (2, "")
    assert err == "byteseam: override: unknown key model.widht = 64; did you mean model.width?\n"
    assert cli.main(["params"]) == 2
    assert "required: CONFIG.toml" in capsys.readouterr().err
