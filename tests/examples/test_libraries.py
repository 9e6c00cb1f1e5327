"""The recipes of docs/recipes.md, each followed once: losses are eager's, and nothing runs eagerly.

accelerate and lightning are no part of what tests need: `pip install accelerate lightning`, and these run.
"""

from __future__ import annotations

import contextlib
import os

import pytest
import torch

import lampwork

transformers = pytest.importorskip("transformers")


def clean(compiled):
    """Nothing ran eagerly, and something was compiled."""
    found = lampwork.stats(compiled)
    return found["calls"] > 0 and found["entries"] > 0 and not found["breaks"] and not found["fallbacks"]


# transformers --------------------------------------------------------------------------------------------------------

TOKENS = torch.arange(3, 17).view(2, 7)


def language_model():
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=100, n_positions=64,
                                     bos_token_id=1, eos_token_id=2)  # fmt: skip
    return transformers.GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize("cache", [None, "static"])
def test_generate(cache):
    settings = dict(
        max_new_tokens=12, do_sample=False, pad_token_id=0, cache_implementation=cache, disable_compile=True
    )
    model = language_model()
    fast = lampwork.compile(model)
    assert torch.equal(fast.generate(TOKENS, **settings), model.generate(TOKENS, **settings))
    assert clean(fast) and lampwork.stats(fast)["entries"] <= 3


def classifier():
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                                     vocab_size=100)  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def examples():
    generator = torch.Generator().manual_seed(0)
    return [{"input_ids": torch.randint(0, 100, (16,), generator=generator), "labels": torch.tensor(number % 2),
             "attention_mask": torch.ones(16, dtype=torch.long)} for number in range(32)]  # fmt: skip


def in_place_of_another():
    return torch.compiler.set_stance("default", force_backend="lampwork")


def trained(model, folder, around=contextlib.nullcontext, **settings):
    """The loss of a few steps of transformers' trainer, and the trainer."""
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), use_cpu=True, report_to=[], per_device_train_batch_size=8, max_steps=4,
        save_strategy="no", logging_strategy="no", disable_tqdm=True, **settings,
    )  # fmt: skip
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=examples())
    with around():
        return trainer.train().training_loss, trainer


@pytest.mark.parametrize("settings", [{}, {"bf16": True}, {"gradient_checkpointing": True}], ids=str)
def test_the_trainer(settings, tmp_path):
    pytest.importorskip("accelerate")
    expected, _ = trained(classifier(), tmp_path, **settings)
    model = lampwork.compile(classifier())
    found, trainer = trained(model, tmp_path, **settings)
    assert found == pytest.approx(expected, rel=1e-3) and clean(model)
    trainer.save_model(str(tmp_path / "model"))
    again = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "model")
    assert all(map(torch.equal, again.state_dict().values(), model.state_dict().values()))


def test_the_trainers_list_of_back_ends(tmp_path):
    pytest.importorskip("accelerate")
    with pytest.raises(ValueError, match="'LAMPWORK' is not a valid DynamoBackend"):
        trained(classifier(), tmp_path, torch_compile_backend="lampwork")
    expected, _ = trained(classifier(), tmp_path)
    model = classifier()
    model.compile(backend="lampwork")
    assert trained(model, tmp_path)[0] == pytest.approx(expected, rel=1e-3)
    found, _ = trained(classifier(), tmp_path, in_place_of_another, torch_compile_backend="inductor")
    assert found == pytest.approx(expected, rel=1e-3)


# accelerate ----------------------------------------------------------------------------------------------------------


def new_accelerator(**settings):
    accelerate = pytest.importorskip("accelerate")
    accelerate.state.AcceleratorState._reset_state(True)
    return accelerate.Accelerator(cpu=True, **settings)


def looped(accelerator, model):
    """Losses of a loop as accelerate's pages write it, and the model that `prepare` returned."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loader = torch.utils.data.DataLoader(examples(), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses, model


@pytest.mark.parametrize("settings", [{}, {"mixed_precision": "bf16", "gradient_accumulation_steps": 2}], ids=str)
def test_accelerate(settings, tmp_path):
    expected, _ = looped(new_accelerator(**settings), classifier())
    accelerator, model = new_accelerator(**settings), lampwork.compile(classifier())
    found, prepared = looped(accelerator, model)
    assert found == pytest.approx(expected, rel=1e-3) and clean(model)
    assert accelerator.unwrap_model(prepared) is model
    accelerator.save_state(str(tmp_path))
    accelerator.load_state(str(tmp_path))


def test_accelerates_list_of_back_ends(monkeypatch):
    with pytest.raises(ValueError, match="'LAMPWORK' is not a valid DynamoBackend"):
        new_accelerator(dynamo_backend="lampwork")
    expected, _ = looped(new_accelerator(), classifier())
    with in_place_of_another():
        found, _ = looped(new_accelerator(dynamo_backend="inductor"), classifier())
    assert found == pytest.approx(expected, rel=1e-3)
    monkeypatch.setitem(os.environ, "ACCELERATE_DYNAMO_BACKEND", "lampwork")
    with pytest.raises(ValueError, match="'LAMPWORK' is not a valid DynamoBackend"):
        new_accelerator()


# lightning -----------------------------------------------------------------------------------------------------------


def test_lightning():
    lightning = pytest.importorskip("lightning")

    class Model(lightning.LightningModule):
        def __init__(self, compiles):
            super().__init__()
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))
            self.net = compiles(net)

        def training_step(self, batch, index):
            loss = self.net(batch).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), 1e-3)

    def fit(model):
        trainer = lightning.Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_checkpointing=False,
                                    enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
        trainer.fit(model, torch.utils.data.DataLoader(torch.ones(64, 8), batch_size=16))
        return trainer.callback_metrics["loss"].item()

    expected, model = fit(Model(lambda net: net)), Model(lampwork.compile)
    assert fit(model) == pytest.approx(expected, rel=1e-3) and clean(model.net)
    whole = lampwork.compile(Model(lambda net: net))  # compiles `forward`, which nothing calls here
    assert fit(whole) == pytest.approx(expected, rel=1e-3) and lampwork.stats(whole)["calls"] == 0


def test_fabric():
    lightning = pytest.importorskip("lightning")
    torch.manual_seed(0)
    model = lampwork.compile(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)))
    fabric = lightning.Fabric(accelerator="cpu", precision="bf16-mixed")
    wrapped, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters()))
    for _ in range(3):
        optimizer.zero_grad()
        fabric.backward(wrapped(torch.ones(4, 8)).square().mean())
        optimizer.step()
    assert clean(model)
