"""`examples/serve` as an ASGI server calls it: right answers for requests of all sizes at once, nothing compiled later."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest
import torch

import lampwork

FILE = Path(lampwork.__file__).parents[1] / "examples" / "serve" / "app.py"


@pytest.fixture
def served():
    specification = importlib.util.spec_from_file_location("served_app", FILE)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    yield module
    lampwork.set_stance("default")


async def asked(app, path, body=b""):
    """Status and content of the answer to a request, whose body comes in two parts."""
    parts = [{"type": "http.request", "body": body[:5], "more_body": True}, {"type": "http.request", "body": body[5:]}]
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    await app({"type": "http", "method": "POST", "path": path}, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


async def started(app):
    messages, sent = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}], []

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_it_serves(served):
    requests = [[[word % 1000 for word in range(row, row + 1 + (7 * row + size) % 64)] for row in range(size)]
                for size in (1, 2, 3, 5, 8, 13, 21, 32)]  # fmt: skip

    async def all_at_once():
        await started(served.app)
        bodies = [json.dumps({"tokens": texts}).encode() for texts in requests]
        answers = await asyncio.gather(*(asked(served.app, "/classify", body) for body in bodies))
        bad = [await asked(served.app, "/classify", body) for body in (b"{}", b"no json", b'{"tokens": [[1000]]}')]
        return answers, bad, await asked(served.app, "/stats"), await asked(served.app, "/other")

    answers, bad, stats, other = asyncio.run(all_at_once())
    for texts, (status, content) in zip(requests, answers):
        assert status == 200
        expected = served.model(*served.padded(texts))[: len(texts)]
        torch.testing.assert_close(torch.tensor(content["classes"]), expected, rtol=1e-4, atol=1e-5)
    assert [status for status, _ in bad] == [400, 400, 400] and other[0] == 404
    status, found = stats
    assert status == 200 and found["calls"] == 1 + len(requests)
    assert found["entries"] == 1 and found["fallbacks"] == [] and found["breaks"] == []
