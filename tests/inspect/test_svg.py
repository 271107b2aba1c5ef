from collections.abc import Callable
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from byteseam.inspect import Record, render_svg
from byteseam.text import visible

NAMESPACE = "{http://www.w3.org/2000/svg}"


def parse(record: Record, width: int = 40) -> tuple[ElementTree.Element, str]:
    """The picture and, in the order of their places, its letters."""
    root = ElementTree.fromstring(render_svg(record, width))
    texts = root.findall(f".//{NAMESPACE}text")
    places = [(float(text.attrib["y"]), float(text.attrib["x"].split()[0]), text.text or "") for text in texts]
    assert places == sorted(places, key=lambda place: place[:2])
    return root, "".join(text for _, _, text in places)


def test_hostile_text_stays_text(record: Callable[..., Record], hostile: bytes) -> None:
    name = hostile.decode("utf-8", "surrogateescape")
    for every in (1, 2, 3, 7, 1000):
        made = record(hostile, every, name=name)
        root, text = parse(made)
        assert {element.tag.removeprefix(NAMESPACE) for element in root.iter()} == {"svg", "title", "rect", "g", "text"}
        assert text == "".join(visible(span.data).replace("\n", "") for span in made.spans())


@given(st.binary(max_size=60) | st.text(max_size=30).map(str.encode), st.integers(0, 2**60 - 1))
def test_any_bytes_parse_and_come_back(data: bytes, bits: int) -> None:
    record = Record("x", data, [bool(bits >> at & 1) for at in range(len(data))])
    root, text = parse(record)
    assert text == "".join(visible(span.data).replace("\n", "") for span in record.spans())
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in root.iter(f"{NAMESPACE}rect"):
        x, y, w, h = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height


def test_every_letter_has_a_place_inside_its_box() -> None:
    root, _ = parse(Record("x", b"ab cd", [0, 0, 1, 0, 1]))
    card, first, second = root.iter(f"{NAMESPACE}rect")
    assert first.attrib["fill"] != second.attrib["fill"]
    places = [float(place) for text in root.iter(f"{NAMESPACE}text") for place in text.attrib["x"].split()]
    assert len(places) == 5
    for box, inside in ((first, places[:3]), (second, places[3:])):
        left, width = float(box.attrib["x"]), float(box.attrib["width"])
        assert all(left < place < left + width for place in inside)
    assert float(card.attrib["width"]) > places[-1]


def test_wide_and_combined_characters_have_one_place_each() -> None:
    root, _ = parse(Record("x", "a你🙂e\u0301b".encode(), [False] * 12))
    found = [(element.text, len(element.attrib["x"].split())) for element in root.iter(f"{NAMESPACE}text")]
    assert found == [("a", 1), ("你", 1), ("🙂", 1), ("e\u0301", 1), ("b", 1)]


def test_an_open_token_has_no_fill() -> None:
    root, _ = parse(Record("x", b"ab", [1, 0]))
    assert [rect.attrib["fill"] for rect in root.iter(f"{NAMESPACE}rect")][1:] == ["#cfe3ff", "none"]


def test_an_empty_text_is_an_empty_card(record: Callable[..., Record]) -> None:
    root, text = parse(record(b""))
    assert text == ""
    assert float(root.attrib["height"]) > 0


def test_it_points_nowhere(record: Callable[..., Record]) -> None:
    source = render_svg(record(b"http://example.org"))
    assert source.count("http:") == source.count('xmlns="http:')
    assert "href" not in source
