import torch

from byteseam.rl.rewards import early_exit_reward, likelihood_reward


def test_a_likelier_byte_is_a_larger_reward():
    nll = torch.tensor([[0.0, 1.0, 3.0]])
    assert likelihood_reward(nll).tolist() == [[0.0, -1.0, -3.0]]


def test_early_exit_reward_is_what_the_tokens_bought():
    nll, early = torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([[3.0, 3.0, 2.0]])
    assert early_exit_reward(nll, early).tolist() == [[2.0, -1.0, 0.0]]


def test_every_rollout_is_compared_with_the_same_early_exit():
    nll, early = torch.rand(3, 2, 5), torch.rand(2, 5)
    reward = early_exit_reward(nll, early)
    for rollout in range(3):
        assert torch.equal(reward[rollout], early - nll[rollout])
