"""The code of the guide prints what stands there: `WEFT_PASTE=1` pastes it."""

import importlib.util

import pytest

from cli.test_guides import compare

NEEDED = ("langchain_core", "llama_index.core", "pyterrier")


def missing(name):
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True


@pytest.mark.skipif(any(map(missing, NEEDED)), reason="needs the packages that it is about: make test-integrations")
def test_the_output_in_the_guide_is_real(tmp_path):
    compare("guides/integrations.md", tmp_path)
