"""The views of a report: the same numbers everywhere, hostile names harmless."""

import csv
import io
import re

import pytest

from byteseam.comparison.page import to_html
from byteseam.comparison.plan import Budget, Plan, base_text, parse_entries
from byteseam.comparison.report import build_report
from byteseam.comparison.tables import to_csv, to_markdown, to_terminal
from byteseam.config import RunConfig


@pytest.fixture
def report(result):
    entries = parse_entries("ours:score_function,<b>&|:gumbel,late:hnet")
    plan = Plan(base_text(RunConfig()), entries, (0, 1), Budget("bytes", 1e6), "ours", probes=("case",))
    results = [
        result("ours", 0, bits=[30.0, 60.0], probes={"case": 3.25}),
        result("ours", 1, bits=[30.0, 66.0], probes={"case": 3.75}),
        result("<b>&|", 0, bits=[40.0, 80.0], rate=0.3, probes={"case": 5.0}),
    ]
    return build_report(plan, results, {("late", 0): "killed by <script>"}, None)


def test_the_terminal_has_both_tables_and_what_must_be_said(report):
    out = to_terminal(report)
    assert re.search(r"ours +2 +3\.100 ±0\.100 +\+0\.000", out)
    assert re.search(r"<b>&\| +1 +4\.000 +\[\+1\.000\] +\[\+1\.000 to \+1\.000\] +3\.33 !", out)
    assert re.search(r"ours +0\.50 .*3\.500", out)
    assert "! <b>&|: rate 0.300 instead of 0.200; not compared as if it were equal" in out
    assert "late, seed 0, failed: killed by <script>" in out
    assert "gold F1" not in out, "nobody has any"


def test_a_threshold_that_missed_the_rate_is_bracketed(report):
    found = {"bits_per_byte": 2.5, "rate": 0.1, "difference": {"mean": -0.5}}
    report["entries"][0]["matched"] = found | {"comparable": True}
    report["entries"][1]["matched"] = found | {"comparable": False}
    rows = {
        line.split()[0]: line
        for line in to_terminal(report).splitlines()
        if (line.split() and "3.5" in line) or "5.0" in line
    }
    assert " 2.500 " in rows["ours"]
    assert "[2.500]" in rows["<b>&|"]
    assert "[-0.500]" in rows["<b>&|"]


def test_markdown_escapes_what_would_break_its_tables(report):
    out = to_markdown(report)
    tables = [line for line in out.splitlines() if line.startswith("|")]
    assert any("<b>&\\|" in line for line in tables)
    widths = [len(re.split(r"(?<!\\)\|", line)) for line in tables]
    assert len(set(widths)) == 3, "two tables and the matrix, each of one width"
    assert "| ours | 2 | 3.100 ±0.100 |" in out


def test_csv_has_whole_precision(report):
    rows = {row["label"]: row for row in csv.DictReader(io.StringIO(to_csv(report)))}
    assert float(rows["ours"]["bits_per_byte"]) == pytest.approx(3.1, abs=1e-12)
    assert float(rows["<b>&|"]["difference.mean"]) == pytest.approx(1.0)
    assert rows["late"]["bits_per_byte"] == ""
    assert float(rows["ours"]["probes.case"]) == 3.5


def test_the_page_stands_alone_and_runs_nothing(report):
    page = to_html(report)
    assert "Content-Security-Policy" in page
    assert "<script" not in page.lower()
    assert "<b>&|" not in page
    assert not re.search(r"""(src|href)=|url\(|@import""", page)
    # The passage's own markup is shown, not obeyed; what is no UTF-8 is spelled out.
    assert "&lt;" in page
    assert "⟨ff⟩" in page
    assert page.count('class="cuts"') >= 1
    assert "±0.100" in page
    assert page.count("<svg") == 6


def test_the_page_of_a_comparison_that_has_just_begun(result):
    plan = Plan(base_text(RunConfig()), parse_entries("uniform"), (0,), Budget("bytes", 1e6), "uniform")
    assert "nothing yet" in to_html(build_report(plan, [], {}, None))
    assert "uniform" in to_terminal(build_report(plan, [], {}, None))


def test_passages_are_aligned_byte_by_byte(report):
    page = to_html(report)
    lines = re.findall(r"<div><b>(?:ours|&lt;b&gt;&amp;\|)</b><span>(.*?)</span></div>", page)
    shown = [re.sub(r"<[^>]+>", "", line) for line in lines]
    assert len(shown) == 2
    assert shown[0] == shown[1]
