"""Many LoRA adapters in one compiled model, each beside a model compiled for it alone. Needs peft and transformers.

    python -m bench.adapters                       20 adapters of ranks 4 to 64
    python -m bench.adapters --hidden 256 --tokens 32 --rounds 60

Prints the recompiles after the second adapter, and for each adapter the medians of calls that take turns: time of the
processor, so that what else runs on the machine counts less. Set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import torch

import lampwork

RANKS = (4, 8, 16, 32, 64, 5, 6, 7, 10, 12, 14, 20, 24, 28, 40, 48, 56, 60, 9, 18)


def adapted(hidden: int) -> Any:
    """A small language model with an adapter of each rank, for two of its projections in each layer."""
    import peft
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, vocab_size=512, max_position_embeddings=512,
    )  # fmt: skip
    model: Any = transformers.LlamaForCausalLM(config)
    for number, rank in enumerate(RANKS):
        lora = peft.LoraConfig(
            r=rank, lora_alpha=16, target_modules=["q_proj", "v_proj"], init_lora_weights=False
        )  # fmt: skip
        if number:
            model.add_adapter(str(number), lora)
        else:
            model = peft.get_peft_model(model, lora, "0")
    return model.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    model = adapted(options.hidden)
    tokens = torch.randint(0, 512, (1, options.tokens))
    shared = lampwork.compile(model)
    with torch.no_grad():
        for number in range(len(RANKS)):
            model.set_adapter(str(number))
            if not torch.allclose(shared(tokens).logits, model(tokens).logits, atol=1e-3):
                raise SystemExit(f"adapter {number} is wrong")
        entries = lampwork.stats(shared)["entries"]
        print(f"{len(RANKS)} adapters: {entries} entries, {max(entries - 2, 0)} recompiles after the second adapter")
        ratios = []
        for number, rank in enumerate(RANKS):
            model.set_adapter(str(number))
            ways = {"shared": shared, "alone": lampwork.compile(model), "eager": model}
            times: dict[str, list[float]] = {name: [] for name in ways}
            for turn in range(options.rounds + 3):
                for name, way in ways.items():
                    began = time.process_time()
                    way(tokens)
                    if turn >= 3:
                        times[name].append(time.process_time() - began)
            took = {name: statistics.median(each) * 1e3 for name, each in times.items()}
            ratios.append(took["shared"] / took["alone"])
            shown = "  ".join(f"{name} {each:.2f} ms" for name, each in took.items())
            print(f"rank {rank:2}: {shown}  shared/alone {ratios[-1]:.3f}")
    print(f"shared/alone: median {statistics.median(ratios):.3f}, largest {max(ratios):.3f}")


if __name__ == "__main__":
    main()
