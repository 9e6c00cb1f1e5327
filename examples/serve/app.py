"""A model behind any ASGI server, with no compile while it serves.

    pip install uvicorn
    uvicorn --app-dir examples/serve app:app
    curl -d '{"tokens": [[5, 6, 7], [8, 9]]}' localhost:8000/classify
    curl localhost:8000/stats

The model is compiled and warmed up before the first request is taken. Later processes on the machine load it from the
on-disk cache. What nothing compiled serves runs eagerly, and /stats counts it.
"""

import asyncio
import json

import torch

import lampwork

LONGEST, MOST = 64, 32  # tokens of a text, texts of a request


class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(1000, 64)
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(64, 4, batch_first=True) for _ in range(2))
        self.classes = torch.nn.Linear(64, 5)

    def forward(self, words, mask):
        hidden = self.words(words)
        for layer in self.layers:
            hidden = layer(hidden, src_key_padding_mask=~mask)
        kept = hidden.masked_fill(~mask[..., None], 0.0)
        return self.classes(kept.sum(1) / mask.sum(1, keepdim=True)).softmax(-1)


torch.manual_seed(0)
model = Classifier().eval().requires_grad_(False)
fast = lampwork.compile(model)


def padded(texts):
    """Words and mask of a request. At least two of each: sizes of one are compiled apart, and so never come up."""
    rows, columns = max(2, len(texts)), max(2, *map(len, texts))
    words, mask = torch.zeros(rows, columns, dtype=torch.long), torch.zeros(rows, columns, dtype=torch.bool)
    mask[:, 0] = True  # a row without any word would be divided by 0
    for row, text in enumerate(texts):
        words[row, : len(text)], mask[row, : len(text)] = torch.tensor(text), True
    return words, mask


def classify(texts):
    return fast(*padded(texts))[: len(texts)].tolist()


def warm_up():
    words, mask = padded([[1] * 8] * 4)
    for each in (words, mask):
        lampwork.mark_dynamic(each, [0, 1], min=2)  # one entry for all sizes
    fast(words, mask)
    lampwork.set_stance("eager_on_recompile")


def is_request(texts):
    return (
        isinstance(texts, list) and 1 <= len(texts) <= MOST
        and all(isinstance(text, list) and 1 <= len(text) <= LONGEST for text in texts)
        and all(type(word) is int and 0 <= word < 1000 for text in texts for word in text)
    )  # fmt: skip


def as_text(value):
    """What JSON has no words for, as text."""
    return dict(value) if hasattr(value, "keys") else str(value)


async def respond(send, status, content):
    body = json.dumps(content, default=as_text).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def lifespan(receive, send):
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await asyncio.to_thread(warm_up)
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(receive, send)
    elif scope["type"] == "http" and scope["path"] == "/stats":
        await respond(send, 200, lampwork.stats(fast))
    elif scope["type"] == "http" and scope["path"] == "/classify":
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        try:
            texts = json.loads(body)["tokens"]
        except (ValueError, TypeError, KeyError):
            texts = None
        if not is_request(texts):
            await respond(send, 400, {"error": f"tokens: 1 to {MOST} lists of 1 to {LONGEST} numbers below 1000"})
        else:  # in a thread: compiled functions may be called from many at once, and the loop goes on meanwhile
            await respond(send, 200, {"classes": await asyncio.to_thread(classify, texts)})
    elif scope["type"] == "http":
        await respond(send, 404, {"error": "there are /classify and /stats"})
