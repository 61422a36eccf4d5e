"""Problems name the place, the mistake and the remedy."""

import pytest

from slackwater.errors import InputError, Problem


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("a.b", "is 5", "write 4"), "a.b: is 5; write 4"),
        (Problem("a.b", "is 5"), "a.b: is 5"),
        (Problem("", "is empty"), "is empty"),
        (Problem("b", "is 5").under("a"), "a.b: is 5"),
        (Problem("[0]", "is 5").under("a"), "a[0]: is 5"),
        (Problem("", "is 5").under("a"), "a: is 5"),
        (Problem("b", "is 5").under(""), "b: is 5"),
    ],
)
def test_sentences(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_an_error_says_all_problems() -> None:
    error = InputError([Problem("a", "is 1"), Problem("b", "is 2")]).under("file")
    assert str(error) == "file.a: is 1\nfile.b: is 2"
