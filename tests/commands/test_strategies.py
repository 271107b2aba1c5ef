import json

from byteseam import cli
from byteseam.strategies import STRATEGIES


def test_every_strategy_has_a_row(capsys):
    assert cli.main(["strategies"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name in STRATEGIES:
        assert name in out


def test_json_has_what_the_table_has_and_the_settings(capsys):
    assert cli.main(["strategies", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["strategies"]
    assert [row["name"] for row in rows] == list(STRATEGIES)
    for row in rows:
        assert all(row[key] for key in ("learns", "rate_control", "source"))
        assert STRATEGIES[row["name"]](**row["settings"])
    by_name = {row["name"]: row for row in rows}
    assert by_name["hnet"]["settings"]["rate_weight"] == 0.03
    assert "Nawrot" in by_name["gumbel"]["source"]
