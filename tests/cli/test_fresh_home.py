"""No verb writes into a fresh home, and none opens a connection."""

import os
import re
import shutil
import subprocess
import sys

import pytest

VERBS = [
    ("index", "notes", "-o", "n.weft"),
    ("search", "n.weft", "red planet"),
    ("search", "n.weft", "red planet", "--hybrid", "--json"),
    ("explain", "n.weft", "red planet", "--html", "page.html"),
    ("add", "n.weft", "the lazy dog", "--id", "dog"),
    ("delete", "n.weft", "dog"),
    ("get", "n.weft", "notes/dog.txt"),
    ("info", "n.weft"),
    ("check", "n.weft"),
    ("compact", "n.weft"),
]


def fresh(folder, *arguments):
    """Run Python in a home of its own; return the files that it left there and the addresses that it connected to."""
    home, trace = folder / "home", folder / "trace"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
    command = [sys.executable, *map(str, arguments)]
    if shutil.which("strace"):
        command = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=connect,sendto", *command]
    environment = {**kept, "HOME": str(home), "LANG": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    asked = re.findall(r"AF_INET.*", trace.read_text()) if trace.exists() else []
    return sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()), asked


def test_the_bundled_model_leaves_nothing(notes, tmp_path):
    for verb in VERBS:
        assert fresh(tmp_path, "-m", "weft", *verb) == ([], []), verb


def test_a_cache_is_all_that_grep_leaves(notes, tmp_path):
    left, asked = fresh(tmp_path, "-m", "weft", "grep", "red planet", "notes")
    assert {name.split("/")[1:3] == ["weft", "grep"] for name in left} == {True}
    assert asked == []


@pytest.mark.torch
def test_training_exporting_and_measuring_leave_nothing(tiny_bert, beir_folder, tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("ir_measures")
    (tmp_path / "recipe.toml").write_text(
        '[model]\nbase = "{models}"\ndim = 8\ndocument_length = 16\n[loss]\nalignment = "top-k:2"\n'
        '[training]\noutput = "out"\nsteps = 1\nbatch_size = 4\n[[data]]\npath = "{data}"\n'
    )
    verbs = [
        ("train", "recipe.toml", "--data", beir_folder, "--models", tiny_bert),
        ("export", "out/model", "light", "--no-compare"),
        ("evaluate", beir_folder, "--split", "train", "-m", "ours=light", "--measures", "nDCG@10"),
    ]
    for verb in verbs:
        assert fresh(tmp_path, "-m", "weft", *verb) == ([], []), verb


@pytest.mark.torch
def test_decoding_leaves_nothing(beir_folder, tmp_path):
    for module in ("torch", "transformers"):
        pytest.importorskip(module, reason="needs the generative extra: pip install 'weft-search[generative]'")
    (tmp_path / "recipe.toml").write_text(
        '[model]\nsize = "tiny"\nvocabulary = 80\n[identifiers]\nmethod = "seal"\n'
        "[examples]\nspan = 4\ndocument_length = 8\n"
        '[training]\noutput = "out"\nsteps = 1\nbatch_size = 4\n[[data]]\npath = "{data}"\n'
    )
    verbs = [
        ("train", "recipe.toml", "--data", beir_folder),
        ("index", "out/collection", "-o", "ix", "-m", "out/model"),
        ("search", "ix", "red planet"),
    ]
    for verb in verbs:
        assert fresh(tmp_path, "-m", "weft", "generative", *verb) == ([], []), verb


def test_quantising_leaves_nothing(tmp_path):
    pytest.importorskip("onnx")
    assert fresh(tmp_path, "-c", "import weft; from onnxruntime.quantization import quantize_dynamic") == ([], [])


def test_a_choice_of_the_user_stays(tmp_path):
    code = "import os, weft; print(os.environ['ORT_DISABLE_TELEMETRY'], os.environ['HF_HUB_DISABLE_TELEMETRY'])"
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "0"}
    environment.pop("HF_HUB_DISABLE_TELEMETRY", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "1"]
