"""Shared fixtures and Hypothesis profiles."""

import os

import hypothesis
import pytest

hypothesis.settings.register_profile("ci", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.register_profile("few", deadline=None, derandomize=True, max_examples=20)  # with sanitizers
hypothesis.settings.register_profile("thorough", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session", params=["numpy", pytest.param("torch", marks=pytest.mark.torch)])
def backend(request):
    """A function that turns a NumPy array into this backend's array, once per backend."""
    if request.param == "numpy":
        return lambda array: array
    torch = pytest.importorskip("torch", reason="needs the torch extra: pip install 'weft[torch]'")
    return torch.from_numpy
