import pytest
import torch

from byteseam.strategies.value import ValueHead

WIDTH, LENGTH = 8, 12
DOCUMENTS = torch.tensor([[0] * 7 + [1] * 5])


@pytest.fixture
def head() -> ValueHead:
    head = ValueHead(WIDTH, 16)
    with torch.no_grad():
        head.outer.weight.normal_()
    return head


@pytest.fixture
def inputs():
    boundary = torch.rand(1, LENGTH) < 0.4
    boundary[0, [0, 7]] = True
    return {"hidden": torch.randn(1, LENGTH, WIDTH), "early_nll": torch.rand(1, LENGTH) * 5, "boundary": boundary}


def predict(head, inputs, gamma=0.9, **changed):
    return head(**{**inputs, **changed}, document_ids=DOCUMENTS, gamma=gamma)


def test_it_starts_at_zero(inputs):
    assert (predict(ValueHead(WIDTH, 16), inputs) == 0).all()


@pytest.mark.parametrize("place", range(LENGTH))
def test_a_prediction_does_not_depend_on_its_decision_or_later_ones(head, inputs, place):
    flipped = inputs["boundary"].clone()
    flipped[0, place] ^= True
    same = (predict(head, inputs, boundary=flipped) == predict(head, inputs))[0]
    assert same[: place + 1].all()
    if place + 1 < LENGTH:
        assert not same[place + 1]


def test_a_prediction_knows_the_text_ahead_but_not_beyond_its_document(head, inputs):
    later = inputs["early_nll"].clone()
    later[0, 5] += 3
    same = (predict(head, inputs, early_nll=later) == predict(head, inputs))[0]
    assert same.tolist() == [False] * 6 + [True] * 6
    same = (predict(head, inputs, gamma=0.5) == predict(head, inputs))[0]
    assert same.tolist() == [False] * 6 + [True] + [False] * 4 + [True], "the last of a document has nothing ahead"


def test_a_prediction_uses_the_encoder_state_of_its_byte_alone(head, inputs):
    changed = inputs["hidden"].clone()
    changed[0, 4, 0] += 1
    same = (predict(head, inputs, hidden=changed) == predict(head, inputs))[0]
    assert (~same).nonzero().tolist() == [[4]]


def test_nothing_flows_into_the_encoder(head, inputs):
    hidden = inputs["hidden"].requires_grad_()
    out = predict(head, inputs).sum()
    assert torch.autograd.grad(out, hidden, allow_unused=True, retain_graph=True) == (None,)
    out.backward()
    assert all(each.grad is not None for each in head.parameters())


def test_fp32_under_autocast(head, inputs):
    with torch.autocast("cpu", torch.bfloat16):
        found = predict(head, inputs, hidden=inputs["hidden"].bfloat16())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, predict(head, inputs, hidden=inputs["hidden"].bfloat16().float()))


def test_it_learns_what_it_can_see(head, inputs):
    wanted = inputs["hidden"][..., 0] + inputs["early_nll"]
    optimiser = torch.optim.Adam(head.parameters(), lr=0.02)
    for _ in range(300):
        optimiser.zero_grad()
        loss = (predict(head, inputs) - wanted).square().mean()
        loss.backward()
        optimiser.step()
    assert loss < 0.02 * wanted.var()
