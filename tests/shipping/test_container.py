"""Files that are not as they were written: no crash, nothing is run, and words that say so."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random

import pytest
import torch

import lampwork
from lampwork.shipping import container
from tests.shipping.support import compiled

KEY, OTHER = b"k" * 32, b"o" * 32


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Bytes of a file of `save` and of one of `package`, each unsigned and signed."""
    folder = tmp_path_factory.mktemp("made")
    fast, _ = compiled(model(), torch.ones(2, 4))
    found = {}
    for kind, make in (("save", lampwork.save), ("package", lampwork.package)):
        for key in (None, KEY):
            make(fast, folder / "file", key=key)
            found[kind, key] = (folder / "file").read_bytes()
    return found


def load(kind, path, key=None, **more):
    return lampwork.load(path, *([model()] if kind == "save" else []), key=key, **more)


def answers(kind, path, key=None):
    with torch.no_grad():
        return load(kind, path, key)(torch.ones(2, 4))


KINDS = ("save", "package")


@pytest.mark.parametrize("kind", KINDS)
def test_files_as_they_were_written_are_used(kind, made, tmp_path):
    with torch.no_grad():
        expected = model()(torch.ones(2, 4))
    for (each, key), data in made.items():
        if each == kind:
            path = tmp_path / "file"
            path.write_bytes(data)
            assert torch.allclose(answers(kind, path), expected)  # signed ones may be read without the key
            if key is not None:
                assert torch.allclose(answers(kind, path, key), expected)


def bent(data: bytes, choice: random.Random) -> bytes:
    """`data`, damaged in one of the ways in which files are."""
    size, bits = len(data), bytearray(data)
    kind = choice.randrange(8)
    at, end = sorted((choice.randrange(size), choice.randrange(size)))
    if kind == 0:
        bits[at] ^= 1 << choice.randrange(8)
    elif kind == 1:
        del bits[at:]
    elif kind == 2:
        del bits[at : at + choice.randrange(1, 200)]
    elif kind == 3:
        bits[at:end] = bytes(end - at)
    elif kind == 4:
        middle = (at + end) // 2
        bits[at:end] = bits[middle:end] + bits[at:middle]
    elif kind == 5:
        bits += choice.randbytes(choice.randrange(1, 100))
    elif kind == 6:
        bits[at:at] = choice.randbytes(choice.randrange(1, 100))
    else:
        bits[at : at + 8] = choice.randbytes(8)
    return bytes(bits)


@pytest.mark.parametrize("kind", KINDS)
def test_bent_files_are_refused(kind, made, tmp_path):
    path, choice = tmp_path / "file", random.Random(7)
    whole = made[kind, None]
    for _ in range(400):
        data = bent(whole, choice)
        if data != whole:
            path.write_bytes(data)
            with pytest.raises(lampwork.ArtifactError, match="file"):
                load(kind, path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_length_and_every_bit_of_the_line_are_noticed(kind, made, tmp_path):
    path, whole = tmp_path / "file", made[kind, KEY]
    line = whole.index(b"\n") + 1
    for length in (*range(0, line + 5), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(lampwork.ArtifactError):
            load(kind, path)
    for bit in range(0, 8 * line, 3):
        bits = bytearray(whole)
        bits[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bits)
        with pytest.raises(lampwork.ArtifactError):
            load(kind, path, KEY)


def test_parts_of_other_files_do_not_fit(made, tmp_path):
    path = tmp_path / "file"
    first, second = made["save", None], made["package", None]
    for left, right in ((first, second), (second, first)):
        for cut in (left.index(b"\n") + 1, len(left) // 2, len(left) - 100):
            path.write_bytes(left[:cut] + right[cut:])
            with pytest.raises(lampwork.ArtifactError):
                lampwork.load(path)


# Behind the seal: whoever writes a checksum of his own may say anything ------------------------------------------------


def opened(data: bytes):
    """(header, bytes of each section by name) of a file."""
    line, _, rest = data.partition(b"\n")
    size = int(line.split()[2])
    header, rest = json.loads(rest[:size]), rest[size:]
    sections = {}
    for name, length, _ in header["sections"]:
        sections[name], rest = rest[:length], rest[length:]
    return header, sections


def sealed(header, sections) -> bytes:
    """A file of these, with checksums that are right."""
    header = dict(header)
    if isinstance(header.get("sections"), list):
        header["sections"] = [(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in sections.items()]
    text = json.dumps(header).encode()
    line = f"lampwork-file 1 {len(text)} {hashlib.sha256(text).hexdigest()} -\n".encode()
    return line + text + b"".join(sections.values())


STRANGE = (None, True, -1, 3, 1 << 70, "", "x", "../..", [], {}, [[]], {"a": 1}, 1.5)


def places(value, path=()):
    """Paths to everything inside of JSON."""
    if path:
        yield path
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*path, key))


def changed(value, path, new):
    value = copy.deepcopy(value)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    if new is changed:
        del inner[path[-1]]
    else:
        inner[path[-1]] = new
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_manifests_of_any_form_are_read_or_refused(kind, made, tmp_path):
    """Nothing but `ArtifactError`, or an answer that is right: what is in words only may say anything."""
    header, sections = opened(made[kind, None])
    path, choice = tmp_path / "file", random.Random(3)
    with torch.no_grad():
        expected = model()(torch.ones(2, 4))
    every = [(place, new) for place in places(header["manifest"]) for new in (changed, *STRANGE)]
    refused = 0
    for place, new in choice.sample(every, 300):
        path.write_bytes(sealed({**header, "manifest": changed(header["manifest"], place, new)}, sections))
        try:
            assert torch.allclose(answers(kind, path), expected), (place, new)
        except (lampwork.ArtifactError, lampwork.OptionError):
            refused += 1
    assert refused > 150


@pytest.mark.parametrize("kind", KINDS)
def test_sections_of_any_bytes_are_refused(kind, made, tmp_path):
    header, sections = opened(made[kind, None])
    path, choice = tmp_path / "file", random.Random(5)
    for name, data in sections.items():
        texts = [b"", b"\n", data[: len(data) // 2], data + b"x", choice.randbytes(300), b"{}\n", b"[" * 100_000]
        texts += [other for key, other in sections.items() if key != name]
        for text in texts:
            path.write_bytes(sealed(header, {**sections, name: text}))
            with pytest.raises(lampwork.ArtifactError):
                load(kind, path)


def test_weights_of_another_form_are_refused(made, tmp_path):
    header, sections = opened(made["package", None])
    path = tmp_path / "file"
    data = sections["weights"]
    size = int.from_bytes(data[:8], "little")
    described = json.loads(data[8 : 8 + size])
    for place in places(described):
        for new in (changed, *STRANGE):
            text = json.dumps(changed(described, place, new)).encode()
            text = len(text).to_bytes(8, "little") + text + data[8 + size :]
            path.write_bytes(sealed(header, {**sections, "weights": text}))
            with pytest.raises(lampwork.ArtifactError):
                lampwork.load(path)


def test_headers_that_are_no_headers(tmp_path):
    path = tmp_path / "file"
    for text in (
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"manifest": 1}',
        b'{"manifest": {}, "sections": 3}',
        b"[" * 100_000,
        b"\xff",
    ):
        line = f"lampwork-file 1 {len(text)} {hashlib.sha256(text).hexdigest()} -\n".encode()
        path.write_bytes(line + text)
        with pytest.raises(lampwork.ArtifactError, match="Make"):
            lampwork.load(path)


# Keys ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_refuses_what_was_not_signed_with_it(kind, made, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(made[kind, None])
    with pytest.raises(lampwork.ArtifactError, match="is not signed, and a key was given"):
        load(kind, path, KEY)
    path.write_bytes(made[kind, KEY])
    with pytest.raises(lampwork.ArtifactError, match="signed with another key, or changed"):
        load(kind, path, OTHER)


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_has_no_key_cannot_change_a_signed_file(kind, made, tmp_path):
    header, sections = opened(made[kind, KEY])
    signature = made[kind, KEY].split(b" ")[4][:64]
    name = next(iter(sections))
    data = sealed(header, {**sections, name: sections[name] + b" "})
    path = tmp_path / "file"
    path.write_bytes(data.replace(b" -\n", b" " + signature + b"\n", 1))
    with pytest.raises(lampwork.ArtifactError, match="signed with another key, or changed"):
        load(kind, path, KEY)


def test_keys_in_files_and_keys_that_are_none(made, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(made["package", KEY])
    (tmp_path / "key").write_bytes(KEY + b"\n")
    assert lampwork.load(path, key=tmp_path / "key").name == "Sequential"
    for key in (b"short", "", tmp_path / "nothing", 3):
        with pytest.raises(lampwork.OptionError, match="key"):
            lampwork.load(path, key=key)


# The file system -----------------------------------------------------------------------------------------------------


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("hello\n" * 100)
    for name, words in (
        ("pipe", "no plain file"),
        ("text", "no file of Lampwork"),
        ("gone", "No such file"),
        (".", "directory"),
    ):
        with pytest.raises(lampwork.ArtifactError, match=words):
            lampwork.load(tmp_path / name)


def test_a_file_that_cannot_be_written_leaves_what_was_there(tmp_path, monkeypatch):
    fast, _ = compiled(model(), torch.ones(2, 4))
    path = tmp_path / "file"
    path.write_text("before")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(OSError, match="no space"):
        lampwork.save(fast, path)
    assert path.read_text() == "before" and len(list(tmp_path.iterdir())) == 1
    with pytest.raises(OSError):
        lampwork.save(fast, tmp_path / "no" / "such" / "folder")


def test_another_format_is_refused(made, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(made["save", None].replace(b"lampwork-file 1 ", b"lampwork-file 2 ", 1))
    with pytest.raises(lampwork.ArtifactError, match="has format 2, and this Lampwork reads format 1"):
        lampwork.load(path)
    assert container.VERSION == 1
