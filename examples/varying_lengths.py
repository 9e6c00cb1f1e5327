"""Batches of any size and length: a few compiles serve them all."""

import random

import torch

import lampwork

torch.manual_seed(0)
random.seed(0)


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(1000, 64)
        self.layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.tags = torch.nn.Linear(64, 7)

    def forward(self, words, mask):
        return self.tags(self.layer(self.words(words), src_key_padding_mask=~mask)).log_softmax(-1)


model = Tagger().eval().requires_grad_(False)
fast = lampwork.compile(model, options={"cache": False})  # in memory only, so that each run shows the same

for call in range(30):
    batch, longest = random.randint(2, 9), random.randint(2, 50)
    words = torch.randint(0, 1000, (batch, longest))
    lengths = torch.randint(1, longest + 1, (batch,))
    lengths[0] = longest
    mask = torch.arange(longest) < lengths[:, None]
    found, before = fast(words, mask), lampwork.stats(fast)["captures"]
    torch.testing.assert_close(found[mask], model(words, mask)[mask], rtol=1e-4, atol=1e-4)
    if call in (0, 1, 2, 29):
        print(f"call {call}: {batch} x {longest}, {before} compiled so far")

# The first compile was for numbers. What differed in the second call, the sizes, may be any from then on.
for record in lampwork.stats(fast)["recompiles"]:
    print(f"compiled anew: {record.reason}")

# Who knows beforehand what varies says so: one compile.
marked = lampwork.compile(model, options={"cache": False})
for each in (words, mask):
    lampwork.mark_dynamic(each, [0, 1])
marked(words, mask), marked(words[:3, :5].clone(), mask[:3, :5].clone())
print(f"with marks: {lampwork.stats(marked)['captures']} compiled")
