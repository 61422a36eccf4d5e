"""Waiting and telling."""

import io

import pytest
from rigs.progress import Console
from rigs.rootfs import RigError
from rigs.waiting import NotInTime, wait_until


def test_the_value_of_the_condition_is_returned() -> None:
    answers = iter([None, 0, "yes"])
    assert wait_until("an answer", lambda: next(answers), 5.0, interval_s=0.0) == "yes"


def test_the_last_error_is_quoted_when_time_runs_out() -> None:
    def refuse() -> bool:
        raise RigError("connection refused")

    with pytest.raises(NotInTime, match="the API server: not within 0 s; last answer: connection refused"):
        wait_until("the API server", refuse, 0.0)


def test_an_error_of_another_kind_is_not_swallowed() -> None:
    def broken() -> bool:
        raise KeyError("status")

    with pytest.raises(KeyError):
        wait_until("anything", broken, 5.0)


def test_waiting_ends_when_it_can_never_succeed() -> None:
    with pytest.raises(NotInTime, match=r"^etcd answering: etcd has ended$"):
        wait_until("etcd answering", lambda: None, 60.0, give_up=lambda: "etcd has ended")


def test_progress_has_the_elapsed_seconds_and_no_colour_in_a_file() -> None:
    stream = io.StringIO()
    Console(stream)("starting")
    assert stream.getvalue() == "[   0.0 s] starting\n"
