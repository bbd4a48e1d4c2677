"""Merges keep what counts as it is stored, hold what comes in between, and leave no file behind."""

import numpy as np
import pytest

from storage.merged_documents import DIM, committed_files, contents, documents_of, files, kinds_of, made, named
from storage.merged_documents import coded_from as coded_from
from weft import Document, Index, TokenVectors, WeftError
from weft.storage import merger
from weft.storage.merging import BASE
from weft.storage.segments import writing


@pytest.fixture
def trainings(monkeypatch):
    """Which codebooks were made, in their order: "trained", or "extended" where another one went on."""
    made = []
    real_trained, real_extended = writing.trained, writing.extended

    def trained(*arguments):
        made.append("trained")
        return real_trained(*arguments)

    def extended(*arguments):
        result = real_extended(*arguments)
        if result is not None:
            made.append("extended")
        return result

    monkeypatch.setattr(writing, "trained", trained)
    monkeypatch.setattr(writing, "extended", extended)
    return made


class TestContents:
    @pytest.mark.parametrize("dtype", [np.float32, np.float16])
    def test_flat_stays_flat_to_the_last_bit(self, tmp_path, dtype):
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            for i in range(4):
                index.add(named(30 * i, 30 * i + 40, i), made(i, dtype=dtype))  # ten of them replace others
            index.delete([f"d{i}" for i in range(0, 130, 7)])
            before, old = contents(index), files(index)
            index.compact()
            assert contents(index) == before
            assert kinds_of(index) == [False]
            assert not old & files(index)
            assert files(index) == committed_files(index)
            assert index.info()["deleted"] == 0
            assert index.check().sound

    @pytest.mark.parametrize("bits", [8, 4, 2])
    def test_flat_becomes_coded(self, tmp_path, bits, coded_from):
        coded_from(10**9)
        with Index.create(tmp_path / "i", DIM, bits=bits, merge="off") as index:
            for i in range(3):
                index.add(named(40 * i, 40 * i + 40), made(i))
            index.delete(["d3", "d119"])
            before = contents(index)
            coded_from(200)
            index.compact()
            after = contents(index)
            assert kinds_of(index) == [True]
            assert after.keys() == before.keys()
            errors = []
            for id, (document, (values, *rest)) in before.items():  # noqa: A001
                assert after[id][0] == document
                assert after[id][1][1:] == rest  # token ids, saliences and spans as they were
                errors.append(np.ravel(np.subtract(after[id][1][0][1], values[1])))
            error, size = np.concatenate(errors), np.concatenate([np.ravel(v[1][0][1]) for v in before.values()])
            assert np.sqrt((error**2).mean()) < {8: 0.02, 4: 0.1, 2: 0.3}[bits] * size.std()
            assert index.check().sound

    @pytest.mark.parametrize("bits", [8, 4, 2])
    def test_the_donors_codes_are_copied(self, tmp_path, bits, coded_from, trainings):
        coded_from(300)
        with Index.create(tmp_path / "i", DIM, bits=bits, merge="off") as index:
            index.add(named(0, 150), made(0, 150))  # coded
            index.add(named(150, 180), made(1, 30))  # flat
            index.delete([f"d{i}" for i in range(0, 170, 9)])
            assert kinds_of(index) == [True, False]
            before = contents(index)
            with index.view() as view:
                donor = view.segments[0].segment
                left = np.flatnonzero(view.segments[0].live)
                rows = donor.token_rows(left)
                arrays = {
                    name: donor.arrays[name][rows].copy()
                    for name in (*donor.codec.per_token, "sketches")
                    if name in donor.arrays
                }
                rotation, scale = donor.arrays["rotation"].copy(), donor.scale
                numbers = donor.numbers[left].copy()
            trainings.clear()
            index.compact()
            assert trainings == ["extended"]
            with index.view() as view:
                (merged,) = (s.segment for s in view.segments)
                at = merged.ordinals_of(numbers)
                assert merged.numbers[at].tolist() == numbers.tolist()
                assert merged.scale == scale
                assert np.array_equal(merged.arrays["rotation"], rotation)
                assert ("sketches" in arrays) == (bits == 8)
                for name, expected in arrays.items():
                    assert np.array_equal(merged.arrays[name][merged.token_rows(at)], expected), name
            after = contents(index)
            assert after.keys() == before.keys()
            for i in range(180):
                if f"d{i}" in before and i < 150:
                    assert after[f"d{i}"] == before[f"d{i}"]
            assert index.check().sound

    def test_a_new_codebook_keeps_byte_codes_of_its_scale(self, tmp_path, coded_from, monkeypatch, trainings):
        coded_from(300)
        monkeypatch.setattr(writing, "GROWN", 1)  # never extended
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            index.add(named(0, 150), made(0, 150))
            index.add(named(150, 300), made(0, 150))
            before = contents(index)
            trainings.clear()
            with index.view() as view:
                scales = {s.segment.scale for s in view.segments}
                codes = [s.segment.arrays["codes"].copy() for s in view.segments]
            index.compact()
            assert trainings == ["trained"]
            with index.view() as view:
                (merged,) = (s.segment for s in view.segments)
                assert {merged.scale} == scales
                assert np.array_equal(merged.arrays["codes"], np.concatenate(codes))
            assert contents(index) == before

    def test_documents_of_other_kinds_stay_apart(self, tmp_path):
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            start = 0
            for _ in range(2):
                for options in ({}, {"spans": False}, {"ids": False}, {"saliences": False}, {"dtype": np.float16}):
                    index.add(named(start, start + 10), made(start, 10, **options))
                    start += 10
            before = contents(index)
            index.compact()
            assert contents(index) == before
            assert len(kinds_of(index)) == 5
            assert index.check().sound
            old = files(index)
            index.compact()  # nothing to do
            assert files(index) == old

    def test_numbers_survive(self, tmp_path):
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            for i in range(3):
                index.add(named(10 * i, 10 * i + 10), made(i, 10))
            index.add(named(0, 5, 1), made(9, 5))

            def numbers():
                with index.reading_catalogue() as catalogue:
                    return {id: catalogue.number(id) for id in index.matching("id != ''")}  # noqa: A001

            before = numbers()
            index.compact()
            assert numbers() == before
            index.delete("d29")
            index.add(named(4, 5, 2), made(3, 1))
            assert numbers()["d4"] > max(before.values())
            index.compact()
            del before["d29"]
            assert numbers() == {**before, "d4": numbers()["d4"]}


class TestMeanwhile:
    @pytest.mark.parametrize("bits", [None, 8, 2])
    def test_deletes_and_upserts_hold(self, tmp_path, monkeypatch, coded_from, bits):
        coded_from(10**9 if bits is None else 200)
        with Index.create(tmp_path / "i", DIM, bits=bits or 8, merge="off") as index:
            for i in range(3):
                index.add(named(60 * i, 60 * i + 60), made(i, 60))
            index.delete(["d0", "d61"])
            real = merger.write_segment
            expected = {}

            def disturbed(*arguments, **options):
                monkeypatch.setattr(merger, "write_segment", real)
                real(*arguments, **options)
                index.delete(["d1", "d62", "d179"])
                index.add(named(2, 4, "new"), made(77, 2))
                index.add([Document("fresh", "fresh")], made(78, 1))
                index.delete("d63")
                index.add([Document("d63", "back")], made(79, 1))
                expected.update(contents(index))

            monkeypatch.setattr(merger, "write_segment", disturbed)
            index.compact()
            after = contents(index)
            assert after.keys() == expected.keys()
            assert documents_of(after) == documents_of(expected)
            for id in ("d2", "d3", "fresh", "d63"):  # noqa: A001
                assert after[id] == expected[id]
            assert after["d63"][0].text == "back"
            gone = {"d0", "d61", "d1", "d62", "d179"}
            (ranking,) = index.search(np.ones((3, DIM)), 400)
            assert len(set(ranking.ids)) == len(ranking.ids)
            assert not gone & set(ranking.ids)
            assert index.info()["deleted"] == 6  # three deleted, three replaced: tombstones that the merge left alone
            assert index.check().sound
            index.compact()
            assert contents(index).keys() == expected.keys()
            assert index.info()["deleted"] == 0
            assert index.check().sound
        with Index.open(tmp_path / "i") as again:
            assert contents(again).keys() == expected.keys()

    def test_all_may_go(self, tmp_path, monkeypatch):
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            index.add(named(0, 5), made(0, 5))
            index.add(named(5, 9), made(1, 4))
            real = merger.write_segment

            def disturbed(*arguments, **options):
                real(*arguments, **options)
                index.delete([f"d{i}" for i in range(9)])

            monkeypatch.setattr(merger, "write_segment", disturbed)
            index.compact()
            assert len(index) == 0
            assert index.check().sound
            index.compact()
            assert files(index) == set()

    def test_a_failing_merge_changes_nothing(self, tmp_path, monkeypatch):
        with Index.create(tmp_path / "i", DIM, merge="inline") as index:
            real = merger.write_segment

            def full(path, *arguments, **options):
                path.write_bytes(b"half")
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(merger, "write_segment", full)
            for i in range(30):
                index.add(named(i, i + 1), made(i, 1))
            assert len(kinds_of(index)) == 30
            assert isinstance(index.merging.error, OSError | WeftError)
            assert files(index) == committed_files(index)
            before = contents(index)
            monkeypatch.setattr(merger, "write_segment", real)
            index.add(named(30, 31), made(30, 1))
            assert index.merging.error is None
            assert len(kinds_of(index)) < 12
            assert {id: value for id, value in contents(index).items() if id != "d30"} == before  # noqa: A001
            assert files(index) == committed_files(index)


class TestCodebooks:
    def test_serve_until_there_is_four_times_as_much(self, tmp_path, coded_from, trainings, monkeypatch):
        coded_from(200)
        monkeypatch.setattr(writing, "GROWN", 4)
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            index.add(named(0, 100), made(0, 100))
            with index.view() as view:
                start = view.tokens
            for step in range(1, 6):
                trainings.clear()
                index.add(named(100 * step, 100 * step + 100), made(0, 100), flat=True)  # the same once more
                index.compact()
                with index.view() as view:
                    (segment,) = (s.segment for s in view.segments)
                assert segment.n_tokens == (step + 1) * start
                assert trainings == (["trained"] if step == 4 else ["extended"])
                assert segment.trained == (start if step < 4 else 5 * start)

    def test_are_trained_anew_where_newcomers_lie_elsewhere(self, tmp_path, coded_from, trainings):
        coded_from(200)
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            index.add(named(0, 100), made(0, 100))
            trainings.clear()
            index.add(named(100, 150), made(1, 50, topics=1), flat=True)
            index.compact()
            assert trainings == ["trained"]

    def test_are_trained_anew_where_newcomers_leave_the_range(self, tmp_path, coded_from, trainings, monkeypatch):
        coded_from(200)
        monkeypatch.setattr(writing, "DRIFT", np.inf)
        with Index.create(tmp_path / "i", DIM, merge="off") as index:
            index.add(named(0, 100), made(0, 100))
            trainings.clear()
            index.add(named(100, 150), made(0, 50), flat=True)
            index.compact()
            assert trainings == ["extended"]
            index.add(named(200, 210), made(1, 10, centre=20.0), flat=True)
            index.compact()
            assert trainings == ["extended", "trained"]
            for i in range(200, 210):
                kept, given = index.vectors(f"d{i}").values, made(1, 10, centre=20.0)[i - 200]
                assert np.abs(kept - given).max(initial=0) < 0.02 * 20 * np.sqrt(DIM)


@pytest.mark.parametrize(("size", "adds"), [(1, 128), (16, 64)])
def test_as_many_segments_as_there_were_adds_count(tmp_path, size, adds, coded_from):
    """Documents that come in groups leave no more segments than as many single ones would."""
    most = 0
    coded_from(40)
    with Index.create(tmp_path / "i", DIM, merge="inline") as index:
        for i in range(adds):
            index.add([f"d{i}-{j}" for j in range(size)], TokenVectors.from_list([np.ones((1, DIM))] * size))
            with index.view() as view:
                most = max(most, len(view.segments))
        assert len(index) == size * adds
        assert index.merging.written_bytes <= 8 * index.merging.added_bytes
    assert most <= BASE + np.log2(adds)
