import pytest
import torch

from byteseam.model.layers import Block, Norm, rotary_table, rotate


def positions(*values: int) -> torch.Tensor:
    return torch.tensor([values])


def test_rotation_preserves_norms():
    hidden = torch.randn(1, 4, 3, 8)
    turned = rotate(hidden, rotary_table(positions(0, 1, 77, 4095), 8, 10_000.0))
    torch.testing.assert_close(turned.norm(dim=-1), hidden.norm(dim=-1))
    pairs = (..., 4, 2)
    torch.testing.assert_close(
        turned.reshape(1, 4, 3, *pairs[1:]).norm(dim=-1), hidden.reshape(1, 4, 3, *pairs[1:]).norm(dim=-1)
    )
    assert torch.equal(turned[:, 0], hidden[:, 0]), "position 0 stays"
    assert not torch.allclose(turned[:, 1], hidden[:, 1])


def test_rotation_worked_by_hand():
    # One pair turns by one radian a position, whatever the base.
    turned = rotate(torch.tensor([[[[1.0, 0.0]]]]), rotary_table(positions(3), 2, 10_000.0))
    three = torch.tensor(3.0)
    torch.testing.assert_close(turned.flatten(), torch.stack((three.cos(), three.sin())))


def test_products_depend_on_the_distance_alone():
    query, key = torch.randn(2, 1, 1, 1, 8)

    def product(i, k):
        tables = [rotary_table(positions(place), 8, 10_000.0) for place in (i, k)]
        return (rotate(query, tables[0]) * rotate(key, tables[1])).sum()

    for shift in (1, 100, 4000):
        torch.testing.assert_close(product(9 + shift, 2 + shift), product(9, 2), rtol=0, atol=5e-3)
    assert not torch.allclose(product(9, 2), product(9, 3), atol=5e-3)


def test_neighbours_differ_at_large_positions():
    # bf16 has 8 bits of mantissa: it would give 4094 and 4095 one angle.
    table = rotary_table(positions(4094, 4095), 8, 10_000.0)
    assert table.dtype == torch.complex64
    one = torch.polar(torch.tensor(1.0), torch.tensor(1.0))
    torch.testing.assert_close(table[0, 1, 0, 0] / table[0, 0, 0, 0], one, rtol=0, atol=1e-3)


def test_positions_are_integers():
    with pytest.raises(TypeError):
        rotary_table(torch.zeros(1, 3), 8, 10_000.0)


@pytest.mark.parametrize("autocast", [False, True])
def test_rotary_tables_are_fp32_whatever_the_autocast_type(autocast):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        table = rotary_table(positions(0, 300, 4095), 8, 10_000.0)
        turned = rotate(torch.ones(1, 3, 1, 8, dtype=torch.bfloat16 if autocast else torch.float32), table)
    assert turned.dtype == torch.float32
    assert torch.equal(table, rotary_table(positions(0, 300, 4095), 8, 10_000.0))


def test_norm_has_zero_mean_unit_variance_and_its_gain():
    norm = Norm(64)
    found = norm(torch.randn(5, 64, dtype=torch.bfloat16) * 7 + 3)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.mean(-1), torch.zeros(5), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.var(-1, unbiased=False), torch.ones(5), rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        norm.weight.mul_(2)
    assert norm(torch.ones(1, 64) + torch.eye(1, 64)).std(unbiased=False).item() == pytest.approx(2, rel=1e-3)


def test_a_block_mixes_positions_through_attention_alone():
    block = Block(16, 2, 16)
    table = rotary_table(torch.arange(6)[None], 8, 10_000.0)
    hidden = torch.randn(1, 6, 16)

    def only_value(query, key, value):
        return value

    full = block(hidden, only_value, table)
    for i in range(6):
        alone = block(hidden[:, i : i + 1], only_value, table[:, i : i + 1])
        torch.testing.assert_close(alone[:, 0], full[:, i])


def test_attention_gets_rotated_normalised_queries_and_keys_and_plain_values():
    block = Block(16, 2, 16)
    seen = {}

    def record(query, key, value):
        seen.update(query=query, key=key, value=value)
        return value

    hidden = torch.randn(1, 2, 16).expand(2, 1, 2, 16).reshape(1, 4, 16)  # positions 0 and 2 hold the same, 1 and 3 too
    block(hidden, record, rotary_table(torch.arange(4)[None], 8, 10_000.0))
    for name in ("query", "key"):
        assert seen[name].shape == (1, 4, 2, 8)
        assert not torch.allclose(seen[name][0, 0], seen[name][0, 2])
        torch.testing.assert_close(seen[name][0, 0].norm(dim=-1), seen[name][0, 2].norm(dim=-1))
        assert (seen[name].norm(dim=-1) < 8**0.5 + 1e-3).all()
    torch.testing.assert_close(seen["value"][0, 0], seen["value"][0, 2])
