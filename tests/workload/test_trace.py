"""Traces in both formats, and what is wrong with a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2llm_opt.errors import Fault, InputError
from e2llm_opt.workload import trace as trace_module
from e2llm_opt.workload.trace import read_trace

HEADER = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], str]:
    monkeypatch.chdir(tmp_path)

    def written(content: str | bytes) -> str:
        data = content if isinstance(content, bytes) else content.encode()
        Path("t.csv").write_bytes(data)
        return "t.csv"

    return written


Write = Callable[[str | bytes], str]


def refusal(path: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        read_trace(path)
    return [str(fault) for fault in caught.value.faults]


def test_our_own_format_is_read_as_it_stands(write: Write) -> None:
    trace = read_trace(write(HEADER + "0.5,100,10\n0.5,200,30\n2.5,300,20\n"))
    assert trace.arrival_s.tolist() == [0.5, 0.5, 2.5]
    assert trace.prompt_tokens.tolist() == [100, 200, 300]
    assert trace.output_tokens.tolist() == [10, 30, 20]
    assert trace.num_requests == 3
    assert trace.rate_per_s == 1.0


def test_an_azure_trace_starts_at_zero(write: Write) -> None:
    rows = "2023-11-16 23:59:59.5000000,4808,10\n2023-11-17 00:00:01.7500001,3180,8\n"
    trace = read_trace(write(AZURE + rows))
    assert trace.arrival_s.tolist() == pytest.approx([0, 2.25], abs=1e-6)
    assert trace.prompt_tokens.tolist() == [4808, 3180]


def test_time_zones_are_understood(write: Write) -> None:
    rows = "2024-05-10 00:00:00+00:00,1,1\n2024-05-10 02:00:03+02:00,1,1\n2024-05-10 00:00:04,1,1\n"
    assert read_trace(write(AZURE + rows)).arrival_s.tolist() == [0, 3, 4]


def test_columns_may_come_in_any_order_and_others_are_ignored(write: Write) -> None:
    text = 'id,"Output_Tokens",arrival_s,prompt_tokens\r\nx, 7 ,1,"5"\r\n\r\ny,8,2,6\r\n'
    trace = read_trace(write("\ufeff" + text))
    assert trace.output_tokens.tolist() == [7, 8]
    assert trace.prompt_tokens.tolist() == [5, 6]


def test_lengths_have_the_mean_and_variation_of_the_trace(write: Write) -> None:
    prompts = [3, 5, 8, 13]
    rows = "".join(f"{i},{tokens},4\n" for i, tokens in enumerate(prompts))
    trace = read_trace(write(HEADER + rows))
    prompt, output = trace.workload_lengths()
    mean = sum(prompts) / 4
    variance = sum((tokens - mean) ** 2 for tokens in prompts) / 4
    assert prompt.mean == mean
    assert prompt.cv == pytest.approx(variance**0.5 / mean)
    assert (output.mean, output.cv) == (4, 0)
    assert trace.prompt_p95 == pytest.approx(12.25)
    assert trace.output_p95 == 4


def test_one_request_has_no_rate(write: Write) -> None:
    assert read_trace(write(HEADER + "5,1,1\n")).rate_per_s == 0


def test_a_trace_cannot_be_changed(write: Write) -> None:
    trace = read_trace(write(HEADER + "5,1,1\n"))
    with pytest.raises(ValueError, match="read-only"):
        trace.arrival_s[0] = 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "t.csv: the trace is empty; the first line must name arrival_s"),
        ("\n", "t.csv: the trace is empty; the first line must name arrival_s"),
        (HEADER, "t.csv: the trace has no requests"),
        ("a,b\n1,2\n", "t.csv:1: missing column arrival_s or TIMESTAMP; the first line must name"),
        ("arrival_s,prompt_tokens\n", "t.csv:1: missing column output_tokens; the first line"),
        ("TIMESTAMP,x\n", "t.csv:1: missing column ContextTokens, GeneratedTokens; the first"),
        (HEADER + "0,1\n", "t.csv:2: has 2 values; needs 3"),
        (HEADER + "x,1,1\n", "t.csv:2: the arrival must be a number of seconds, got 'x'"),
        (HEADER + "-1,1,1\n", "t.csv:2: the arrival must be zero or more and finite, got '-1'"),
        (HEADER + "nan,1,1\n", "t.csv:2: the arrival must be zero or more and finite, got 'nan'"),
        (HEADER + "inf,1,1\n", "t.csv:2: the arrival must be zero or more and finite, got 'inf'"),
        (HEADER + "1,1,1\n0,1,1\n", "t.csv:3: arrives before the request above it; sort the"),
        (
            AZURE + "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02,1,1\n",
            "t.csv:3: arrives before the request above it; sort the trace by time",
        ),
        (
            AZURE + "yesterday,1,1\n",
            "t.csv:2: the arrival must be a date and time, got 'yesterday'",
        ),
        (HEADER + "0,0,1\n", "t.csv:2: tokens must be a whole number from 1 to 100000000, got '0'"),
        (HEADER + "0,1,-4\n", "t.csv:2: tokens must be a whole number from 1 to 100000000, got"),
        (HEADER + "0,1.5,4\n", "t.csv:2: tokens must be a whole number from 1 to 100000000, got"),
        (HEADER + f"0,{'9' * 90},4\n", "t.csv:2: tokens must be a whole number from 1 to"),
        (HEADER + "0," + "1" * 5000, "t.csv:2: not a trace: a line longer than 4096 bytes"),
        (HEADER.encode() + b"0,1,1\n\xff,1,1\n", "t.csv:3: not a text file; save it as UTF-8"),
        (HEADER + "0,1,1\n0,\0,1\n", "t.csv:3: not a text file (NUL characters)"),
    ],
)
def test_a_wrong_trace_is_refused_with_its_line(
    content: str | bytes, message: str, write: Write
) -> None:
    lines = refusal(write(content))
    assert len(lines) == 1
    assert lines[0].startswith(message)


def test_all_wrong_lines_are_told_up_to_twenty(write: Write) -> None:
    assert len(refusal(write(HEADER + "0,0,1\n0,1,1\n" * 7))) == 7
    assert len(refusal(write(HEADER + "0,0,1\n" * 1000))) == 20


def test_a_trace_without_end_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_module, "MAX_REQUESTS", 3)
    path = write(HEADER + "0,1,1\n" * 4)
    assert refusal(path) == [
        "t.csv:5: more than 3 requests; take the first ones only, or cut the trace"
    ]


def test_what_is_no_file_is_refused(write: Write, tmp_path: Path) -> None:
    write("")
    assert refusal("none.csv") == ["none.csv: cannot be read: no such file or directory"]
    assert refusal(str(tmp_path)) == [f"{tmp_path}: cannot be read: is a directory"]


@given(
    rows=st.lists(
        st.tuples(st.floats(0, 1e6), st.integers(1, 10**8), st.integers(1, 10**8)), min_size=1
    )
)
def test_what_is_written_is_read(
    rows: list[tuple[float, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = sorted(rows)
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text(HEADER + "".join(f"{a!r},{p},{o}\n" for a, p, o in rows), encoding="utf-8")
    trace = read_trace(path)
    columns = (trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    assert np.array_equal(np.column_stack(columns), np.array(rows, dtype=float))


@given(text=st.text(alphabet="0123456789.,-:e nax\n\r\"'\0é", max_size=60), is_azure=st.booleans())
def test_random_lines_are_read_or_refused(
    text: str, is_azure: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text((AZURE if is_azure else HEADER) + text, encoding="utf-8", newline="")
    faults: tuple[Fault, ...] = ()
    num_requests = 0
    try:
        num_requests = read_trace(path).num_requests
    except InputError as error:
        faults = error.faults
    assert (num_requests > 0) != bool(faults)
    assert all(fault.file and fault.wrong for fault in faults)


def test_only_the_first_requests_are_read_where_asked(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,2,2\nthis is never read\n")
    assert read_trace(path, most=2).prompt_tokens.tolist() == [1, 2]
    with pytest.raises(InputError):
        read_trace(path, most=3)


def test_the_first_requests_of_a_trace_are_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n1,2,2\n4,3,3\n")
    trace = read_trace(path)
    assert trace.first(2).rate_per_s == 1
    assert trace.first(9).output_tokens.tolist() == [1, 2, 3]
