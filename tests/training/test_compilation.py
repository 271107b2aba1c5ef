"""When layers are compiled, and that compiling touches no parameter's name."""

import shutil

import pytest
import torch

from byteseam.config import ModelConfig
from byteseam.errors import UserError
from byteseam.language_model import LanguageModel
from byteseam.strategies import ScoreFunction
from byteseam.training.compilation import EARNED_BACK_BYTES, compile_layers, compiles

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def compiler(monkeypatch):
    """Whether there is a C++ compiler, as the test wants it."""

    def present(there: bool) -> None:
        monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}" if there else None)

    return present


def test_auto_compiles_on_a_gpu_and_on_a_cpu_where_it_is_earned_back(compiler):
    compiler(True)
    assert compiles("auto", CUDA, 1e3)
    assert compiles("auto", CPU, EARNED_BACK_BYTES)
    assert not compiles("auto", CPU, EARNED_BACK_BYTES - 1)


def test_without_a_compiler_auto_does_without_and_on_says_so(compiler):
    compiler(False)
    assert not compiles("auto", CPU, 1e12)
    with pytest.raises(UserError, match=r'training\.compile is "on".*no C\+\+ compiler'):
        compiles("on", CPU, 1e3)


def test_on_and_off_are_obeyed(compiler):
    compiler(True)
    assert compiles("on", CPU, 1e3)
    assert not compiles("off", CUDA, 1e12)


# PyTorch's own compiler imports what PyTorch deprecates.
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")
def test_compiling_keeps_the_names_of_parameters():
    config = ModelConfig(width=16, heads=2, encoder_layers=1, token_layers=1, decoder_layers=1, window=4)
    model = LanguageModel(config, ScoreFunction())
    before = list(model.state_dict())
    compile_layers(model)
    assert list(model.state_dict()) == before
    for stack in (model.unet.encoder, model.unet.token_model, model.unet.decoder):
        assert stack._compiled_call_impl is not None
