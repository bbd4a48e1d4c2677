"""Without its package, a module says in one line which to install."""

import importlib
import sys

import pytest

import weft


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("langchain", "langchain_core", "langchain"),
        ("llama_index", "llama_index", "llama-index"),
        ("pyterrier", "pyterrier", "pyterrier"),
    ],
)
def test_one_line_with_the_pip_command(monkeypatch, module, package, extra):
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"weft.integrations.{module}", raising=False)
    with pytest.raises(weft.MissingExtraError) as raised:
        importlib.import_module(f"weft.integrations.{module}")
    assert str(raised.value).startswith(f"weft.integrations.{module} needs ")
    assert str(raised.value).endswith(f"which is not installed: pip install 'weft-search[{extra}]'")
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, ImportError)
