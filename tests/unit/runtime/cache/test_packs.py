"""Packs: entries in one file, and all that a bent or hostile one does not do."""

from __future__ import annotations

import hashlib
import json
import os
import time

import pytest
import torch

from lampwork import signatures
from lampwork.config import Settings, use_cache_dir
from lampwork.runtime.cache import entries, layout, packs
from lampwork.runtime.cache.codec import encode
from lampwork.runtime.cache.versions import versions
from tests.unit.runtime import handmade

KEY, OTHER_KEY = b"0123456789abcdef" * 2, b"fedcba9876543210" * 2


def program(x):
    return torch.relu(x) + 1


@pytest.fixture
def cache(tmp_path):
    """A folder with two entries of one key."""
    folder = tmp_path / "cache"
    with use_cache_dir(str(folder)):
        for size in (8, 9):
            artifact = handmade.relu_plus_one(size)
            artifact = type(artifact)(**{**vars(artifact), "versions": versions()})
            assert entries.store(program, Settings(), artifact, print)
    return folder


def found(folder):
    with use_cache_dir(str(folder)):
        return list(entries.candidates(program, Settings(), print))


def everything(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


CASES = {
    "signed": (KEY, KEY, False, ""),
    "trusted": (b"", b"", True, ""),
    "signed, and trusted": (KEY, b"", True, ""),
    "nobody vouches": (KEY, b"", False, "nothing says whose.*--key-file.*--trust"),
    "another key": (OTHER_KEY, KEY, False, "signed with another key"),
    "not signed": (b"", KEY, False, "is not signed: export it with --key-file"),
}


@pytest.mark.parametrize(("writer", "reader", "trust", "refused"), CASES.values(), ids=CASES)
def test_a_pack_brings_the_entries_where_somebody_vouches(cache, tmp_path, writer, reader, trust, refused):
    file, there = tmp_path / "pack", tmp_path / "there"
    count, size = packs.export(cache, file, writer)
    assert count == 2 and size == file.stat().st_size
    if refused:
        with pytest.raises(packs.NotAPack, match=refused):
            packs.load(there, file, reader, trust)
        assert not there.exists()
        return
    assert packs.load(there, file, reader, trust) == packs.Imported(2, 0, ())
    assert len(found(there)) == 2 and everything(there) == everything(cache)
    assert packs.load(there, file, reader, trust) == packs.Imported(0, 2, ())


def test_only_what_was_used_since_then(cache, tmp_path):
    path = min((cache / "v1").glob("*/*"))
    os.utime(path, (0, time.time() - 3600))
    assert packs.export(cache, tmp_path / "pack", since=time.time() - 1800)[0] == 1
    assert packs.export(cache, tmp_path / "pack", since=time.time() + 1800)[0] == 0
    assert packs.load(tmp_path / "there", tmp_path / "pack", trust=True) == packs.Imported(0, 0, ())


def test_nothing_but_entries_and_facts_leaves(cache, tmp_path):
    (cache / "letters").mkdir()
    (cache / "letters" / "one").write_text("private")
    (cache / "v1" / "kernels").mkdir()
    (cache / "v1" / "kernels" / f"{'0' * 32}.entry").write_text("private")
    (next((cache / "v1").glob("*[0-9]*")) / "note.txt").write_text("private")
    packs.export(cache, tmp_path / "pack")
    assert b"private" not in (tmp_path / "pack").read_bytes()


def test_an_empty_cache_is_an_empty_pack(tmp_path):
    assert packs.export(tmp_path / "nowhere", tmp_path / "pack")[0] == 0


def test_a_pack_that_cannot_be_written_leaves_nothing(cache, tmp_path):
    with pytest.raises(OSError):
        packs.export(cache, tmp_path / "nowhere" / "pack")
    (tmp_path / "out" / "pack").mkdir(parents=True)
    with pytest.raises(OSError):
        packs.export(cache, tmp_path / "out" / "pack")
    assert os.listdir(tmp_path / "out") == ["pack"]


def test_damage_anywhere_is_refused(cache, tmp_path):
    file, there = tmp_path / "pack", tmp_path / "there"
    packs.export(cache, file, KEY)
    data = file.read_bytes()
    for offset in range(0, len(data), 41):
        for bent in (data[:offset] + bytes([data[offset] ^ 4]) + data[offset + 1 :], data[:offset]):
            file.write_bytes(bent)
            with pytest.raises(packs.NotAPack):
                packs.load(there, file, KEY)
    file.write_bytes(data + b"x")
    with pytest.raises(packs.NotAPack, match="something follows"):
        packs.load(there, file, KEY)


def pack(*items, key=b""):
    """The bytes of a pack that whoever has the key, or is trusted, might write: (folder, subfolder, name, data)."""
    listed = [[top, sub, name, len(data), hashlib.sha256(data).hexdigest()] for top, sub, name, data in items]
    return raw(json.dumps(listed).encode(), b"".join(data for *_, data in items), key)


def raw(listed, data=b"", key=b""):
    seal = signatures.signature(key, b"lampwork pack\n" + listed) if key else "-"
    return b"lampwork pack 1 " + f"{hashlib.sha256(listed).hexdigest()} {seal}\n".encode() + listed + b"\n" + data


NAME, SUB = f"{'0' * 32}.entry", "0" * 32
TRICKS = {
    "parent": ("v1", "..", NAME),
    "absolute": ("v1", "/tmp", NAME),
    "name": ("v1", SUB, "../../../escaped.entry"),
    "new line": ("v1", SUB, f"{NAME}\n"),
    "folder": ("..", SUB, NAME),
    "other folder": ("reproducers", SUB, NAME),
    "lock": ("locks", SUB, NAME),
    "facts": ("facts", SUB, "../x.json"),
    "empty": ("v1", SUB, ""),
}


@pytest.mark.parametrize("trick", TRICKS.values(), ids=TRICKS)
def test_names_that_lead_elsewhere_stop_the_import_before_it_begins(tmp_path, trick):
    file = tmp_path / "pack"
    file.write_bytes(pack(("v1", SUB, NAME, b"first"), (*trick, b"data"), key=KEY))
    with pytest.raises(packs.NotAPack, match="nothing of it was imported"):
        packs.load(tmp_path / "there", file, KEY)
    assert os.listdir(tmp_path) == ["pack"]


@pytest.mark.parametrize(
    "listed", [b"", b"{}", b"[1]", b"[[]]", b'[["v1"]]', b"[" * 100_000, json.dumps([["v1", SUB, NAME, -1, ""]]).encode(),
               json.dumps([["v1", SUB, NAME, 1 << 60, ""]]).encode(), json.dumps([["v1", SUB, NAME, True, ""]]).encode()]
)  # fmt: skip
def test_lists_that_are_none(tmp_path, listed):
    file = tmp_path / "pack"
    file.write_bytes(raw(listed))
    with pytest.raises(packs.NotAPack, match="nothing of it was imported"):
        packs.load(tmp_path / "there", file, trust=True)


def with_header(body):
    checksum = hashlib.sha256(body).hexdigest()
    return layout.entry_name(checksum), layout.header(checksum) + body


def test_what_is_not_well_formed_is_left_out_with_the_reason(cache, tmp_path):
    file, there = tmp_path / "pack", tmp_path / "there"
    path = min((cache / "v1").glob("*/*"))
    good = path.read_bytes()
    old = good.replace(b"lampwork entry 3 ", b"lampwork entry 3 other", 1)
    file.write_bytes(
        pack(
            ("v1", SUB, path.name, good),
            ("v1", SUB, NAME, good),
            ("v1", SUB, f"{'1' * 32}.entry", b"junk"),
            ("v1", SUB, f"{'2' * 32}.entry", old),
            ("v1", SUB, *with_header(b"\x80\x04no data of ours")),
            ("facts", SUB, f"{'3' * 32}.json", b"[]"),
        )
    )
    made = packs.load(there, file, trust=True)
    assert made.new == 1 and made.had == 0
    told = ("another one's", "checksum", "another Lampwork", "it is no entry", "no facts")
    assert all(why in text for why, text in zip(told, made.left_out, strict=True))
    assert [path.name for path in there.rglob("*") if path.is_file()] == [path.name]


def test_what_is_there_already_stays(cache, tmp_path):
    file = tmp_path / "pack"
    packs.export(cache, file)
    path = min((cache / "v1").glob("*/*"))
    before = path.stat().st_ino
    assert packs.load(cache, file, trust=True).had == 2 and path.stat().st_ino == before


def test_a_cache_that_others_may_write_to_is_neither_packed_nor_filled(cache, tmp_path):
    packs.export(cache, tmp_path / "pack")
    cache.chmod(0o777)
    for act in (
        lambda: packs.export(cache, tmp_path / "more"),
        lambda: packs.load(cache, tmp_path / "pack", trust=True),
    ):
        with pytest.raises(OSError, match="others may write"):
            act()


def test_an_entry_of_a_program_that_is_not_loaded_here_is_imported(tmp_path):
    name, data = with_header(encode(({}, {}, ()), None))
    (tmp_path / "pack").write_bytes(pack(("v1", SUB, name, data)))
    assert packs.load(tmp_path / "there", tmp_path / "pack", trust=True).new == 1
