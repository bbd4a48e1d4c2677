"""Whatever happened to the files and however often it was interrupted: after `update` an index is as if made afresh."""

import dataclasses
import random
from unittest import mock

import pytest

from encoders import light_models
from weft import Encoder, Index
from weft.ingest import Summary, text_source, update
from weft.sources.files import read_sources
from weft.sources.find import Selection, find, name_of
from weft.sources.records import Fields
from weft.types import Document

NAMES = ("a.txt", "sub/b.md", "rows.jsonl")
TEXT = "the red planet mars. why does rain fall? fox "
WORDS = (TEXT * 7).split()[:60]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return Encoder.load(light_models.write(tmp_path_factory.mktemp("light")))


class Stop(Exception):  # noqa: N818
    pass


def run(index, encoder, folder):
    summary = Summary()
    found = find([folder], Selection(), summary.skipped.append)
    sources = read_sources(found, Fields(), summary.skipped.append)
    return update(index, encoder, sources, roots=[name_of(folder)], threads=1, progress=False, summary=summary)


def contents(index):
    assert index.check().sound
    return {name: (index.get(name), index.vectors(name).values.tobytes()) for name in index.matching('@id != ""')}


def write(path, words):
    path.parent.mkdir(exist_ok=True)
    if path.suffix != ".jsonl":
        path.write_text(" ".join(words))
        return
    rows = [f'{{"id": "{n}", "text": "{word}"}}' for n, word in enumerate(words[:9])]
    path.write_text("\n".join(rows))


def interrupted(index, encoder, folder, method, times):
    """Update, and stop at a call of a method of the index."""
    # An even number stops before its half-th call, an odd one after it.
    real, calls = getattr(Index, method), []

    def stopping(self, *args, **options):
        calls.append(method)
        if len(calls) > times // 2:
            if times % 2:
                real(self, *args, **options)
            raise Stop
        return real(self, *args, **options)

    with mock.patch.object(Index, method, stopping):
        try:
            run(index, encoder, folder)
        except Stop:
            return


@pytest.mark.parametrize("seed", range(10))
def test_as_if_made_afresh(encoder, seed, tmp_path):
    chance = random.Random(seed)
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "always.txt").write_text("the fox")  # an update that finds nothing removes nothing
    with Index.create(tmp_path / "n.weft", encoder.dim) as index, mock.patch("weft.ingest.updating.MOST_PASSAGES", 3):
        for n in range(8):
            for name in chance.sample(NAMES, chance.randrange(1, 3)):
                if chance.random() < 0.2:
                    (folder / name).unlink(missing_ok=True)
                else:  # nothing, a passage or many
                    write(folder / name, WORDS[chance.randrange(9) : chance.choice([0, 12, 30, 60])])
            if n < 7 and chance.random() < 0.6:
                method, calls = chance.choice([("add", 8), ("add", 8), ("delete", 4), ("compact", 2)])
                interrupted(index, encoder, folder, method, chance.randrange(calls))
                assert index.check().sound
                continue
            run(index, encoder, folder)
            with Index.create(tmp_path / f"fresh{n}.weft", encoder.dim) as fresh:
                run(fresh, encoder, folder)
                assert contents(index) == contents(fresh)
        again = run(index, encoder, folder)
        assert (again.added, again.updated, again.removed, again.passages) == (0, 0, 0, 0)


def test_what_is_cut_is_counted_and_not_logged(encoder, tmp_path, caplog):
    rows = [Document("long", TEXT * 3), Document("short", "fox"), Document("longer", TEXT * 4)]
    with Index.create(tmp_path / "i", dim=encoder.dim) as index:
        assert update(index, encoder, map(text_source, rows), split=False, progress=False).cut == 2
        assert update(index, encoder, map(text_source, rows), progress=False).cut == 0  # split instead
    assert not caplog.records


@pytest.mark.parametrize(("weighs", "said"), [(True, True), (False, False), (False, True)])
@pytest.mark.parametrize("beta_d", [None, 0.5])
def test_saliences_go_to_the_index(encoder, tmp_path, weighs, said, beta_d):
    """`weighs` in the model, `said` when the index was made."""
    settings = dataclasses.replace(encoder.settings, salience_weighs=weighs)
    model = Encoder(settings, encoder.tokenizer, encoder.backend)
    with (
        Index.create(tmp_path / "i", dim=encoder.dim, beta_d=beta_d, salience_weighs=said) as index,
        mock.patch.object(Index, "add", autospec=True, side_effect=Index.add) as add,
    ):
        update(index, model, [text_source(TEXT)], progress=False)
    given = add.call_args.args[2]
    assert given.spans is not None
    assert given.token_ids is not None
    # Those that only rank tokens must not come to weigh.
    assert (given.salience is not None) == (weighs or not said or beta_d is not None)
