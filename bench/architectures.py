"""Architectures of `transformers`, each with a small random configuration and the inputs of one call.

    python -m bench.architectures                        all of them, in a table
    python -m bench.architectures bert mamba --fullgraph --json results.json

Nothing is downloaded: weights are random, and no last layer is left at zero. What the installed version of
`transformers` lacks is skipped with a word. Checking is in `architecture_check.py`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

SEED = 2027
FAMILIES = (
    "encoder", "decoder", "mixture of experts", "state space", "encoder-decoder", "audio", "vision", "multimodal",
    "time series",
)  # fmt: skip


class Missing(Exception):
    """The installed `transformers` has no such architecture."""


@dataclass(frozen=True)
class Architecture:
    """One model class, the configuration that makes it small, and what it is called with.

    `inputs(config)` gives the keyword arguments of one call; it draws from torch's generator.
    """

    name: str
    family: str
    model: str
    inputs: Callable[[Any], dict[str, Any]]
    config: dict[str, Any] = field(default_factory=dict)

    def build(self) -> tuple[torch.nn.Module, dict[str, Any]]:
        """The model in eval mode and its inputs, float32 on the CPU; the same each time. Raises `Missing`."""
        transformers = importlib.import_module("transformers")
        model_class = getattr(transformers, self.model, None)
        if model_class is None:
            raise Missing(f"transformers {transformers.__version__} has no {self.model}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            config = model_class.config_class(**self.config)
            module = model_class(config).eval()
            _randomise(module)
            return module, self.inputs(config)


def _randomise(module: torch.nn.Module) -> None:
    """Random values for parameters that are all zero or all one, and statistics for batch norms: a model whose last
    layer is zero would give the right answer whatever the layers before it did."""
    with torch.no_grad():
        for parameter in module.parameters():
            if not parameter.is_floating_point() or not parameter.numel():
                continue
            if not parameter.any():
                parameter.normal_(0, 0.05)
            elif bool((parameter == 1).all()):
                parameter.add_(torch.randn_like(parameter) * 0.05)
        for child in module.modules():
            if isinstance(child, torch.nn.modules.batchnorm._BatchNorm) and child.running_var is not None:
                child.running_mean.normal_(0, 0.1)  # type: ignore[union-attr]
                child.running_var.uniform_(0.5, 1.5)


# Inputs ---------------------------------------------------------------------------------------------------------------

VOCABULARY = 97
BATCH = 2


def _ids(length: int = 16) -> torch.Tensor:
    return torch.randint(5, VOCABULARY - 5, (BATCH, length))


def _mask(length: int = 16, padded: int = 3) -> torch.Tensor:
    """A batch of two: one full row, one whose last `padded` positions are padding."""
    mask = torch.ones(BATCH, length, dtype=torch.int64)
    mask[1, length - padded :] = 0
    return mask


def tokens(config: Any) -> dict[str, Any]:
    """Token ids alone."""
    return {"input_ids": _ids()}


def padded_tokens(config: Any) -> dict[str, Any]:
    """Token ids and the attention mask of a batch whose second row is shorter, as a tokenizer gives them."""
    return {"input_ids": _ids(), "attention_mask": _mask()}


def full_tokens(config: Any) -> dict[str, Any]:
    """Token ids and an attention mask that hides nothing."""
    return {"input_ids": _ids(), "attention_mask": torch.ones(BATCH, 16, dtype=torch.int64)}


def pairs(config: Any) -> dict[str, Any]:
    """Source tokens with padding, and target tokens."""
    return {**padded_tokens(config), "decoder_input_ids": _ids(9)}


def labelled_pairs(config: Any) -> dict[str, Any]:
    """Source tokens and labels, from which the model makes its decoder's tokens and a loss."""
    return {**padded_tokens(config), "labels": _ids(9)}


def image(config: Any) -> dict[str, Any]:
    """Two square images of the configuration's size."""
    side = getattr(config, "image_size", None) or 32
    side = side[0] if isinstance(side, (list, tuple)) else side
    return {"pixel_values": torch.randn(BATCH, 3, side, side)}


def image_of(side: int) -> Callable[[Any], dict[str, Any]]:
    """Two square images of `side` pixels."""
    return lambda config: {"pixel_values": torch.randn(BATCH, 3, side, side)}


def video(config: Any) -> dict[str, Any]:
    """Two clips of the configuration's frames and size."""
    return {"pixel_values": torch.randn(BATCH, config.num_frames, 3, config.image_size, config.image_size)}


def waveform(config: Any) -> dict[str, Any]:
    """Two stretches of raw audio."""
    return {"input_values": torch.randn(BATCH, 2000)}


def padded_waveform(config: Any) -> dict[str, Any]:
    """Two stretches of raw audio, the second shorter."""
    mask = torch.ones(BATCH, 2000, dtype=torch.int64)
    mask[1, 1500:] = 0
    return {"input_values": torch.randn(BATCH, 2000), "attention_mask": mask}


def spectrogram(config: Any) -> dict[str, Any]:
    """Whisper's features for its full window, and target tokens."""
    frames = 2 * config.max_source_positions
    return {"input_features": torch.randn(BATCH, config.num_mel_bins, frames), "decoder_input_ids": _ids(9)}


def image_and_text(config: Any) -> dict[str, Any]:
    """Two images with a padded text each."""
    side = config.vision_config.image_size
    return {**padded_tokens(config), "pixel_values": torch.randn(BATCH, 3, side, side)}


def vilt_inputs(config: Any) -> dict[str, Any]:
    side = config.image_size
    return {
        **padded_tokens(config),
        "token_type_ids": torch.zeros(BATCH, 16, dtype=torch.int64),
        "pixel_values": torch.randn(BATCH, 3, side, side),
        "pixel_mask": torch.ones(BATCH, side, side, dtype=torch.int64),
    }


def llava_inputs(config: Any) -> dict[str, Any]:
    """A prompt whose second token onwards stands for the patches of the image."""
    side, patch = config.vision_config.image_size, config.vision_config.patch_size
    ids = _ids()
    ids[:, 1 : 1 + (side // patch) ** 2] = config.image_token_id
    return {"input_ids": ids, "attention_mask": _mask(padded=2), "pixel_values": torch.randn(BATCH, 3, side, side)}


def layout_inputs(config: Any) -> dict[str, Any]:
    corner = torch.randint(0, 400, (BATCH, 16, 2))
    boxes = torch.cat([corner, corner + torch.randint(1, 400, (BATCH, 16, 2))], -1)
    return {**padded_tokens(config), "bbox": boxes}


def clap_inputs(config: Any) -> dict[str, Any]:
    return {**padded_tokens(config), "input_features": torch.randn(BATCH, 1, 64, 64)}


def sam_inputs(config: Any) -> dict[str, Any]:
    side = config.vision_config.image_size
    return {"pixel_values": torch.randn(BATCH, 3, side, side), "input_points": torch.rand(BATCH, 1, 2, 2) * side}


def series(config: Any) -> dict[str, Any]:
    """Past values of a multivariate series, channels last."""
    return {"past_values": torch.randn(BATCH, config.context_length, config.num_input_channels)}


def dated_series(config: Any) -> dict[str, Any]:
    """A series with time features and a mask of what was observed, as probabilistic forecasters take it."""
    past = config.context_length + max(config.lags_sequence)
    return {
        "past_values": torch.rand(BATCH, past),
        "past_time_features": torch.randn(BATCH, past, config.num_time_features),
        "past_observed_mask": torch.ones(BATCH, past),
        "future_values": torch.rand(BATCH, config.prediction_length),
        "future_time_features": torch.randn(BATCH, config.prediction_length, config.num_time_features),
    }


def trajectory(config: Any) -> dict[str, Any]:
    """States, actions and returns of an agent's last steps."""
    length = 6
    return {
        "states": torch.randn(BATCH, length, config.state_dim),
        "actions": torch.randn(BATCH, length, config.act_dim),
        "rewards": torch.randn(BATCH, length, 1),
        "returns_to_go": torch.randn(BATCH, length, 1),
        "timesteps": torch.arange(length).expand(BATCH, length).contiguous(),
        "attention_mask": torch.ones(BATCH, length),
    }


# Configurations -------------------------------------------------------------------------------------------------------

#: No special token lies among those that `_ids` draws.
_TOKENS = {"vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SMALL = {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_GROUPED = {**_SMALL, "num_key_value_heads": 2, "max_position_embeddings": 64}
_PAIR = {
    **_TOKENS, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "decoder_start_token_id": 2,
}  # fmt: skip
_PATCHES = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 32,
    "patch_size": 8, "num_labels": 10,
}  # fmt: skip
_TEXT_TOWER = {**_SMALL, "max_position_embeddings": 32}
_VISION_TOWER = {key: value for key, value in _PATCHES.items() if key != "num_labels"}
_SPEECH = {
    **_SMALL, "conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 3), "conv_stride": (5, 2, 2),
    "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip

ARCHITECTURES: tuple[Architecture, ...] = (
    # Encoders
    Architecture("bert", "encoder", "BertForMaskedLM", padded_tokens, _SMALL),
    Architecture("roberta", "encoder", "RobertaForMaskedLM", padded_tokens, _SMALL),
    Architecture("distilbert", "encoder", "DistilBertForMaskedLM", padded_tokens,
                 {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    Architecture("albert", "encoder", "AlbertForMaskedLM", padded_tokens, {**_SMALL, "embedding_size": 16}),
    Architecture("electra", "encoder", "ElectraForPreTraining", padded_tokens, {**_SMALL, "embedding_size": 16}),
    Architecture("deberta", "encoder", "DebertaV2ForMaskedLM", padded_tokens,
                 {**_SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
                  "norm_rel_ebd": "layer_norm", "share_att_key": True, "max_relative_positions": 32}),
    Architecture("mpnet", "encoder", "MPNetForMaskedLM", padded_tokens, _SMALL),
    Architecture("modernbert", "encoder", "ModernBertForMaskedLM", padded_tokens,
                 {**_SMALL, "local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 1,
                  "sep_token_id": 2}),
    Architecture("longformer", "encoder", "LongformerForMaskedLM", padded_tokens,
                 {**_SMALL, "attention_window": [8, 8]}),
    Architecture("fnet", "encoder", "FNetForMaskedLM", tokens, _SMALL),
    Architecture("convbert", "encoder", "ConvBertForMaskedLM", padded_tokens, {**_SMALL, "embedding_size": 16}),
    Architecture("xlnet", "encoder", "XLNetLMHeadModel", padded_tokens,
                 {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    # Decoders
    Architecture("gpt2", "decoder", "GPT2LMHeadModel", padded_tokens,
                 {**_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    Architecture("gpt-neo", "decoder", "GPTNeoForCausalLM", padded_tokens,
                 {**_TOKENS, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
                  "attention_types": [[["global", "local"], 1]], "window_size": 4, "max_position_embeddings": 64}),
    Architecture("gpt-neox", "decoder", "GPTNeoXForCausalLM", tokens, {**_SMALL, "max_position_embeddings": 64}),
    Architecture("gptj", "decoder", "GPTJForCausalLM", tokens,
                 {**_TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4}),
    Architecture("opt", "decoder", "OPTForCausalLM", padded_tokens,
                 {**_SMALL, "ffn_dim": 64, "word_embed_proj_dim": 16, "max_position_embeddings": 64}),
    Architecture("llama", "decoder", "LlamaForCausalLM", padded_tokens, _GROUPED),
    Architecture("mistral", "decoder", "MistralForCausalLM", full_tokens, {**_GROUPED, "sliding_window": 8}),
    Architecture("qwen2", "decoder", "Qwen2ForCausalLM", padded_tokens, _GROUPED),
    Architecture("qwen3", "decoder", "Qwen3ForCausalLM", tokens, {**_GROUPED, "head_dim": 8}),
    Architecture("gemma2", "decoder", "Gemma2ForCausalLM", padded_tokens,
                 {**_GROUPED, "head_dim": 8, "sliding_window": 8}),
    Architecture("gemma3", "decoder", "Gemma3ForCausalLM", tokens,
                 {**_GROUPED, "head_dim": 8, "sliding_window": 8,
                  "layer_types": ["sliding_attention", "full_attention"]}),
    Architecture("phi3", "decoder", "Phi3ForCausalLM", padded_tokens, _GROUPED),
    Architecture("falcon", "decoder", "FalconForCausalLM", padded_tokens,
                 {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": False}),
    Architecture("bloom", "decoder", "BloomForCausalLM", padded_tokens,
                 {**_TOKENS, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    Architecture("mpt", "decoder", "MptForCausalLM", padded_tokens,
                 {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    Architecture("starcoder2", "decoder", "Starcoder2ForCausalLM", tokens, _GROUPED),
    Architecture("cohere", "decoder", "CohereForCausalLM", tokens, _GROUPED),
    Architecture("olmo2", "decoder", "Olmo2ForCausalLM", tokens, _GROUPED),
    Architecture("granite", "decoder", "GraniteForCausalLM", padded_tokens, _GROUPED),
    # Mixtures of experts
    Architecture("mixtral", "mixture of experts", "MixtralForCausalLM", padded_tokens,
                 {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}),
    Architecture("qwen2-moe", "mixture of experts", "Qwen2MoeForCausalLM", tokens,
                 {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                  "shared_expert_intermediate_size": 32}),
    Architecture("olmoe", "mixture of experts", "OlmoeForCausalLM", tokens,
                 {**_GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
    Architecture("deepseek-v3", "mixture of experts", "DeepseekV3ForCausalLM", tokens,
                 {**_GROUPED, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
                  "topk_group": 1, "moe_intermediate_size": 16, "q_lora_rank": 16, "kv_lora_rank": 8,
                  "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1}),
    Architecture("gpt-oss", "mixture of experts", "GptOssForCausalLM", tokens,
                 {**_GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
                  "layer_types": ["sliding_attention", "full_attention"]}),
    # State space and recurrent models
    Architecture("mamba", "state space", "MambaForCausalLM", tokens,
                 {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4}),
    Architecture("mamba2", "state space", "Mamba2ForCausalLM", tokens,
                 {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 8,
                  "n_groups": 2, "chunk_size": 8}),
    Architecture("recurrent-gemma", "state space", "RecurrentGemmaForCausalLM", tokens,
                 {**_GROUPED, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8}),
    Architecture("rwkv", "state space", "RwkvForCausalLM", tokens,
                 {**_TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}),
    Architecture("jamba", "state space", "JambaForCausalLM", tokens,
                 {**_GROUPED, "num_hidden_layers": 4, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1,
                  "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 4,
                  "use_mamba_kernels": False}),
    # Encoder-decoders
    Architecture("t5", "encoder-decoder", "T5ForConditionalGeneration", pairs,
                 {**_TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
                  "decoder_start_token_id": 0}),
    Architecture("bart", "encoder-decoder", "BartForConditionalGeneration", labelled_pairs, _PAIR),
    Architecture("pegasus", "encoder-decoder", "PegasusForConditionalGeneration", pairs, _PAIR),
    Architecture("mbart", "encoder-decoder", "MBartForConditionalGeneration", labelled_pairs, _PAIR),
    Architecture("marian", "encoder-decoder", "MarianMTModel", pairs, _PAIR),
    Architecture("led", "encoder-decoder", "LEDForConditionalGeneration", pairs,
                 {**_PAIR, "attention_window": [8, 8], "max_encoder_position_embeddings": 64,
                  "max_decoder_position_embeddings": 64}),
    # Audio
    Architecture("whisper", "audio", "WhisperForConditionalGeneration", spectrogram,
                 {**_PAIR, "num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 20}),
    Architecture("wav2vec2", "audio", "Wav2Vec2ForCTC", padded_waveform, _SPEECH),
    Architecture("hubert", "audio", "HubertForCTC", waveform, _SPEECH),
    Architecture("wavlm", "audio", "WavLMForCTC", waveform, {**_SPEECH, "num_buckets": 32, "max_bucket_distance": 64}),
    Architecture("sew", "audio", "SEWForCTC", waveform, {**_SPEECH, "squeeze_factor": 2}),
    Architecture("ast", "audio", "ASTForAudioClassification",
                 lambda config: {"input_values": torch.randn(BATCH, config.max_length, config.num_mel_bins)},
                 {**_PATCHES, "max_length": 32, "num_mel_bins": 32, "frequency_stride": 8, "time_stride": 8}),
    # Vision
    Architecture("vit", "vision", "ViTForImageClassification", image, _PATCHES),
    Architecture("deit", "vision", "DeiTForImageClassification", image, _PATCHES),
    Architecture("beit", "vision", "BeitForImageClassification", image,
                 {**_PATCHES, "use_relative_position_bias": True}),
    Architecture("swin", "vision", "SwinForImageClassification", image,
                 {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
                  "window_size": 4, "num_labels": 10}),
    Architecture("swinv2", "vision", "Swinv2ForImageClassification", image,
                 {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
                  "window_size": 4, "num_labels": 10}),
    Architecture("convnext", "vision", "ConvNextForImageClassification", image,
                 {"image_size": 32, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "num_labels": 10}),
    Architecture("resnet", "vision", "ResNetForImageClassification", image_of(32),
                 {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [2, 2], "num_labels": 10}),
    Architecture("regnet", "vision", "RegNetForImageClassification", image_of(32),
                 {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [2, 2], "groups_width": 8,
                  "num_labels": 10}),
    Architecture("mobilevit", "vision", "MobileViTForImageClassification", image_of(64),
                 {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
                  "num_labels": 10}),
    Architecture("segformer", "vision", "SegformerForSemanticSegmentation", image_of(64),
                 {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 16, 32], "num_attention_heads": [1, 2, 2, 4],
                  "decoder_hidden_size": 16, "num_labels": 10}),
    Architecture("dinov2", "vision", "Dinov2ForImageClassification", image, {**_PATCHES, "mlp_ratio": 2}),
    Architecture("yolos", "vision", "YolosForObjectDetection", image,
                 {**_PATCHES, "image_size": [32, 32], "num_detection_tokens": 5}),
    Architecture("videomae", "vision", "VideoMAEForVideoClassification", video, {**_PATCHES, "num_frames": 4}),
    # Several kinds of input
    Architecture("clip", "multimodal", "CLIPModel", image_and_text,
                 {"text_config": _TEXT_TOWER, "vision_config": _VISION_TOWER, "projection_dim": 16}),
    Architecture("siglip", "multimodal", "SiglipModel", image_and_text,
                 {"text_config": _TEXT_TOWER, "vision_config": _VISION_TOWER}),
    Architecture("blip", "multimodal", "BlipForConditionalGeneration", image_and_text,
                 {"text_config": {**_TEXT_TOWER, "encoder_hidden_size": 32}, "vision_config": _VISION_TOWER,
                  "projection_dim": 16}),
    Architecture("llava", "multimodal", "LlavaForConditionalGeneration", llava_inputs,
                 {"text_config": {**_GROUPED, "model_type": "llama"},
                  "vision_config": {**_VISION_TOWER, "image_size": 24, "model_type": "clip_vision_model"},
                  "image_token_id": 96}),
    Architecture("vilt", "multimodal", "ViltForQuestionAnswering", vilt_inputs, {**_SMALL, **_PATCHES}),
    Architecture("layoutlm", "multimodal", "LayoutLMForTokenClassification", layout_inputs, _SMALL),
    Architecture("clap", "multimodal", "ClapModel", clap_inputs,
                 {"text_config": {**_SMALL, "max_position_embeddings": 32},
                  "audio_config": {"num_mel_bins": 64, "spec_size": 64, "hidden_size": 32, "patch_size": 4,
                                   "patch_stride": [4, 4], "depths": [1, 1], "num_attention_heads": [2, 2],
                                   "window_size": 4, "num_hidden_layers": 2, "patch_embeds_hidden_size": 16},
                  "projection_dim": 16}),
    Architecture("sam", "multimodal", "SamModel", sam_inputs,
                 {"vision_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
                                    "image_size": 64, "patch_size": 16, "output_channels": 32, "window_size": 2,
                                    "global_attn_indexes": [1], "num_pos_feats": 16, "mlp_dim": 64},
                  "prompt_encoder_config": {"hidden_size": 32, "image_size": 64, "patch_size": 16},
                  "mask_decoder_config": {"hidden_size": 32, "mlp_dim": 64, "num_attention_heads": 4,
                                          "iou_head_hidden_dim": 32}}),
    # Series
    Architecture("patchtst", "time series", "PatchTSTForPrediction", series,
                 {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8, "d_model": 32,
                  "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 64, "prediction_length": 8}),
    Architecture("patchtsmixer", "time series", "PatchTSMixerForPrediction", series,
                 {"num_input_channels": 3, "context_length": 32, "patch_length": 8, "patch_stride": 8, "d_model": 16,
                  "num_layers": 2, "prediction_length": 8}),
    Architecture("time-series-transformer", "time series", "TimeSeriesTransformerForPrediction", dated_series,
                 {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2, 3], "num_time_features": 2,
                  "d_model": 32, "encoder_layers": 2, "decoder_layers": 2}),
    Architecture("decision-transformer", "time series", "DecisionTransformerModel", trajectory,
                 {"state_dim": 5, "act_dim": 3, "hidden_size": 32, "n_layer": 2, "n_head": 4, "max_ep_len": 50}),
)  # fmt: skip

BY_NAME: dict[str, Architecture] = {each.name: each for each in ARCHITECTURES}


if __name__ == "__main__":
    from bench.architecture_check import main

    raise SystemExit(main())
