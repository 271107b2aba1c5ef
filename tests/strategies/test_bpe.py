"""BPE read from left to right: against a naive search, the library's own encoding, and itself on prefixes."""

import random
import sys

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from tiny import marks

from byteseam.errors import UserError
from byteseam.evaluation.agreement import match
from byteseam.strategies import Bpe
from byteseam.strategies.bpe import Merges, learn_merges, pieces_of, trie_of


@pytest.fixture(scope="module")
def documents() -> list[bytes]:
    """Text of a few hundred made-up words with a skewed frequency, as languages have."""
    draw = random.Random(0)
    syllables = ["ka", "to", "mi", "ren", "sol", "da", "ur", "eth", "vi", "ne", "pra", "lo"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(300)]
    weights = [1 / (rank + 1) for rank in range(300)]
    return [(" ".join(draw.choices(words, weights, k=400)) + ".\n").encode() for _ in range(30)]


def fitted(documents, **settings) -> tuple[Bpe, Merges]:
    strategy = Bpe(**settings)
    policy = strategy.build(1)
    strategy.fit(policy, documents)
    return strategy, policy


def entries(policy: Merges) -> list[bytes]:
    found = [bytes([byte]) for byte in range(256)]
    for left, right in policy.merges[policy.merges[:, 0] >= 0].tolist():
        found.append(found[left] + found[right])
    return found


def test_the_merges_are_the_librarys(documents):
    # The most frequent pairs of "abab abac": ab, then what follows most often.
    assert learn_merges(iter([b"ab", b"ab", b"abc", b"abc", b"abc"]), 2) == [(97, 98), (256, 99)]


def test_an_entry_goes_on_while_some_entry_begins_that_way(documents):
    strategy, policy = fitted(documents, vocabulary=400)
    text = documents[0][:300]
    beginnings = {entry[:size] for entry in entries(policy) for size in range(1, len(entry) + 1)}
    expected, token, before = "M", b"", None
    for byte in text:
        letter = bytes([byte])
        space_like = not letter.isalnum()
        begins_piece = space_like and before is not None and before.isalnum()
        if token and not begins_piece and token + letter in beginnings:
            token += letter
            expected += "."
        else:
            expected += "|" if token else "."
            token = letter
        before = letter
    assert marks(strategy, text, policy=policy) == expected
    assert "|" in expected


def test_later_bytes_change_nothing(documents):
    strategy, policy = fitted(documents, vocabulary=400)
    text = documents[1][:120]
    whole = marks(strategy, text, policy=policy)
    for size in range(len(text)):
        assert marks(strategy, text[:size], policy=policy) == whole[: size + 1]


def test_a_documents_first_entry_follows_its_mark_and_needs_no_boundary(documents):
    strategy, policy = fitted(documents, vocabulary=400)
    # A space begins a piece, which is a boundary anywhere else.
    assert marks(strategy, b" x", b"x x", policy=policy)[:2] == "M."
    assert marks(strategy, b" x", b"x x", policy=policy)[3:6] == "M.|"


def test_documents_do_not_see_each_other(documents):
    strategy, policy = fitted(documents, vocabulary=400)
    texts = (documents[0][:5], b"", documents[0][5:30], b" x")
    assert marks(strategy, *texts, policy=policy) == "".join(marks(strategy, text, policy=policy) for text in texts)


def test_most_boundaries_are_those_of_bpe_proper(documents):
    from tokenizers import Tokenizer, models

    strategy, policy = fitted(documents, vocabulary=500)
    letters = [chr(0x4E00 + byte) for byte in range(256)]
    vocabulary, merges, names = {letter: place for place, letter in enumerate(letters)}, [], list(letters)
    for left, right in policy.merges[policy.merges[:, 0] >= 0].tolist():
        merges.append((names[left], names[right]))
        names.append(names[left] + names[right])
        vocabulary.setdefault(names[-1], len(vocabulary))
    library = Tokenizer(models.BPE(vocabulary, merges))
    text = documents[2]
    proper, place = np.zeros(len(text), np.bool_), 0
    for piece in pieces_of(text, "words"):
        encoded = library.encode("".join(letters[byte] for byte in piece))
        proper[[place + start for start, _ in encoded.offsets]] = True
        place += len(piece)
    proper[0] = False
    found = np.array([mark == "|" for mark in marks(strategy, text, policy=policy)[1:]])
    assert match(found, proper).f1.value > 0.8


@pytest.mark.parametrize("bytes_per_token", [2.0, 3.0, 4.0])
def test_the_size_is_found_for_the_rate_of_text_kept_aside(documents, bytes_per_token):
    strategy, policy = fitted(documents, bytes_per_token=bytes_per_token)
    aside = b"".join(documents[::10])
    assert marks(strategy, aside, policy=policy).count("|") == pytest.approx(len(aside) / bytes_per_token, rel=0.05)


def test_within_lines_a_token_may_span_words(documents):
    words, words_policy = fitted(documents, vocabulary=580, within="words")
    lines, lines_policy = fitted(documents, vocabulary=580, within="lines")
    text = documents[3]
    assert all(b" " not in entry.strip() for entry in entries(words_policy))
    assert any(b" " in entry.strip() for entry in entries(lines_policy))
    assert marks(lines, text, policy=lines_policy).count("|") < marks(words, text, policy=words_policy).count("|")


def test_a_rate_out_of_reach_is_refused(documents):
    with pytest.raises(UserError, match=r'bytes_per_token = 40 is more than a BPE .* or set strategy.within = "lines"'):
        fitted(documents, bytes_per_token=40.0)
    with pytest.raises(UserError, match=r"give more text$"):
        fitted(documents, bytes_per_token=400.0, within="lines")


def test_a_text_too_small_for_the_vocabulary_is_refused(documents):
    with pytest.raises(UserError, match=r"vocabulary = 5000, but the training text is too small for more than \d+ ent"):
        fitted([b"to be or not to be"] * 3, vocabulary=5000)


def test_a_missing_library_is_named(documents, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        UserError, match=r"the strategy bpe needs the tokenizers library: pip install 'byteseam\[bpe\]'"
    ):
        fitted(documents)


def test_it_is_stored_with_the_model_and_cuts_alike_when_read_again(documents, tmp_path):
    strategy, policy = fitted(documents, vocabulary=500)
    save_file(policy.state_dict(), tmp_path / "policy.safetensors")
    again = strategy.build(1)
    before = marks(strategy, documents[4], policy=again)
    again.load_state_dict(load_file(tmp_path / "policy.safetensors"))
    after = marks(strategy, documents[4], policy=again)
    assert after == marks(strategy, documents[4], policy=policy)
    assert after != before, "the cuts of an empty vocabulary were not kept"


def test_the_trie_knows_from_which_entry_on_a_beginning_is_there():
    trie = trie_of([(97, 98), (256, 99), (98, 99)])
    node, first = trie[97]
    assert first == 97
    assert trie[node * 256 + 98][1] == 256
    assert trie[trie[node * 256 + 98][0] * 256 + 99][1] == 257
    assert trie[trie[98][0] * 256 + 99][1] == 258


@pytest.mark.parametrize("within", ["words", "lines"])
def test_pieces_are_the_whole_text_and_none_is_long(within):
    text = b"  two words,\n and " + b"x" * 500 + "中文字符".encode() * 40 + b"\n"
    pieces = list(pieces_of(text, within))
    assert b"".join(pieces) == text
    assert max(map(len, pieces)) <= 64
