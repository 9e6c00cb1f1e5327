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

from bench.architecture_inputs import (
    VOCABULARY,
    audio_patches,
    clap_inputs,
    dated_series,
    frames,
    full_tokens,
    grids,
    image,
    image_and_target,
    image_and_text,
    image_of,
    image_prompt,
    labelled_pairs,
    layout_inputs,
    llava_inputs,
    long_padded_tokens,
    long_tokens,
    one_channel,
    padded_tokens,
    padded_waveform,
    pairs,
    sam_inputs,
    series,
    series_in_a_list,
    spectrogram,
    speech_features,
    speech_to_text,
    tokens,
    trajectory,
    video,
    vilt_inputs,
    waveform,
)
from bench.architecture_sizes import GROUPED, PAIR, PATCHES, SMALL, SPEECH, TEXT_TOWER, TOKENS, VISION_TOWER
from bench.architectures_beside import BESIDE

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

    def build(self, adjust: Callable[[Any], None] = lambda config: None) -> tuple[torch.nn.Module, dict[str, Any]]:
        """The model in eval mode and its inputs, float32 on the CPU; the same each time. Raises `Missing`.

        `adjust` may change the configuration before the model is made.
        """
        transformers = importlib.import_module("transformers")
        model_class = getattr(transformers, self.model, None)
        if model_class is None:
            raise Missing(f"transformers {transformers.__version__} has no {self.model}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            config = model_class.config_class(**self.config)
            adjust(config)
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


ARCHITECTURES: tuple[Architecture, ...] = (
    # Encoders
    Architecture("bert", "encoder", "BertForMaskedLM", padded_tokens, SMALL),
    Architecture("roberta", "encoder", "RobertaForMaskedLM", padded_tokens, SMALL),
    Architecture("distilbert", "encoder", "DistilBertForMaskedLM", padded_tokens,
                 {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    Architecture("albert", "encoder", "AlbertForMaskedLM", padded_tokens, {**SMALL, "embedding_size": 16}),
    Architecture("electra", "encoder", "ElectraForPreTraining", padded_tokens, {**SMALL, "embedding_size": 16}),
    Architecture("deberta", "encoder", "DebertaV2ForMaskedLM", padded_tokens,
                 {**SMALL, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8,
                  "norm_rel_ebd": "layer_norm", "share_att_key": True, "max_relative_positions": 32}),
    Architecture("mpnet", "encoder", "MPNetForMaskedLM", padded_tokens, SMALL),
    Architecture("modernbert", "encoder", "ModernBertForMaskedLM", padded_tokens,
                 {**SMALL, "local_attention": 8, "global_attn_every_n_layers": 2, "cls_token_id": 1,
                  "sep_token_id": 2}),
    Architecture("longformer", "encoder", "LongformerForMaskedLM", padded_tokens,
                 {**SMALL, "attention_window": [8, 8]}),
    Architecture("fnet", "encoder", "FNetForMaskedLM", tokens, SMALL),
    Architecture("convbert", "encoder", "ConvBertForMaskedLM", padded_tokens, {**SMALL, "embedding_size": 16}),
    Architecture("xlnet", "encoder", "XLNetLMHeadModel", padded_tokens,
                 {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
    Architecture("funnel", "encoder", "FunnelForMaskedLM", padded_tokens,
                 {"vocab_size": VOCABULARY, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8,
                  "d_inner": 64}),
    Architecture("bigbird", "encoder", "BigBirdForMaskedLM", long_tokens(64),
                 {**SMALL, "block_size": 4, "num_random_blocks": 1, "max_position_embeddings": 64}),
    Architecture("perceiver", "encoder", "PerceiverForMaskedLM", padded_tokens,
                 {"vocab_size": VOCABULARY, "d_latents": 32, "d_model": 32, "num_latents": 8, "num_blocks": 1,
                  "num_self_attends_per_block": 2, "num_self_attention_heads": 4, "num_cross_attention_heads": 4,
                  "max_position_embeddings": 16}),
    Architecture("roformer", "encoder", "RoFormerForMaskedLM", padded_tokens, {**SMALL, "embedding_size": 32}),
    Architecture("canine", "encoder", "CanineForSequenceClassification", long_padded_tokens(32),
                 {**SMALL, "local_transformer_stride": 8, "downsampling_rate": 4, "num_hash_functions": 2,
                  "num_hash_buckets": 64}),
    # Decoders
    Architecture("gpt2", "decoder", "GPT2LMHeadModel", padded_tokens,
                 {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    Architecture("gpt-neo", "decoder", "GPTNeoForCausalLM", padded_tokens,
                 {**TOKENS, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
                  "attention_types": [[["global", "local"], 1]], "window_size": 4, "max_position_embeddings": 64}),
    Architecture("gpt-neox", "decoder", "GPTNeoXForCausalLM", tokens, {**SMALL, "max_position_embeddings": 64}),
    Architecture("gptj", "decoder", "GPTJForCausalLM", tokens,
                 {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4}),
    Architecture("opt", "decoder", "OPTForCausalLM", padded_tokens,
                 {**SMALL, "ffn_dim": 64, "word_embed_proj_dim": 16, "max_position_embeddings": 64}),
    Architecture("llama", "decoder", "LlamaForCausalLM", padded_tokens, GROUPED),
    Architecture("mistral", "decoder", "MistralForCausalLM", full_tokens, {**GROUPED, "sliding_window": 8}),
    Architecture("qwen2", "decoder", "Qwen2ForCausalLM", padded_tokens, GROUPED),
    Architecture("qwen3", "decoder", "Qwen3ForCausalLM", tokens, {**GROUPED, "head_dim": 8}),
    Architecture("gemma2", "decoder", "Gemma2ForCausalLM", padded_tokens,
                 {**GROUPED, "head_dim": 8, "sliding_window": 8}),
    Architecture("gemma3", "decoder", "Gemma3ForCausalLM", tokens,
                 {**GROUPED, "head_dim": 8, "sliding_window": 8,
                  "layer_types": ["sliding_attention", "full_attention"]}),
    Architecture("phi3", "decoder", "Phi3ForCausalLM", padded_tokens, GROUPED),
    Architecture("falcon", "decoder", "FalconForCausalLM", padded_tokens,
                 {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "alibi": False}),
    Architecture("bloom", "decoder", "BloomForCausalLM", padded_tokens,
                 {**TOKENS, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    Architecture("mpt", "decoder", "MptForCausalLM", padded_tokens,
                 {"vocab_size": VOCABULARY, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64}),
    Architecture("starcoder2", "decoder", "Starcoder2ForCausalLM", tokens, GROUPED),
    Architecture("cohere", "decoder", "CohereForCausalLM", tokens, GROUPED),
    Architecture("olmo2", "decoder", "Olmo2ForCausalLM", tokens, GROUPED),
    Architecture("granite", "decoder", "GraniteForCausalLM", padded_tokens, GROUPED),
    Architecture("gpt-bigcode", "decoder", "GPTBigCodeForCausalLM", padded_tokens,
                 {**TOKENS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    Architecture("ctrl", "decoder", "CTRLLMHeadModel", tokens,
                 {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 64, "n_positions": 64}),
    Architecture("reformer", "decoder", "ReformerModelWithLMHead", tokens,
                 {"vocab_size": VOCABULARY, "hidden_size": 32, "num_attention_heads": 2, "attention_head_size": 16,
                  "feed_forward_size": 64, "attn_layers": ["local", "lsh"], "axial_pos_shape": [4, 4],
                  "axial_pos_embds_dim": [16, 16], "max_position_embeddings": 16, "is_decoder": True,
                  "lsh_attn_chunk_length": 4, "local_attn_chunk_length": 4, "num_buckets": 2, "num_hashes": 1,
                  "hash_seed": 7}),
    # Mixtures of experts
    Architecture("mixtral", "mixture of experts", "MixtralForCausalLM", padded_tokens,
                 {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}),
    Architecture("qwen2-moe", "mixture of experts", "Qwen2MoeForCausalLM", tokens,
                 {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                  "shared_expert_intermediate_size": 32}),
    Architecture("olmoe", "mixture of experts", "OlmoeForCausalLM", tokens,
                 {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2}),
    Architecture("deepseek-v3", "mixture of experts", "DeepseekV3ForCausalLM", tokens,
                 {**GROUPED, "num_key_value_heads": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
                  "topk_group": 1, "moe_intermediate_size": 16, "q_lora_rank": 16, "kv_lora_rank": 8,
                  "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "first_k_dense_replace": 1}),
    Architecture("gpt-oss", "mixture of experts", "GptOssForCausalLM", tokens,
                 {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
                  "layer_types": ["sliding_attention", "full_attention"]}),
    Architecture("qwen3-moe", "mixture of experts", "Qwen3MoeForCausalLM", padded_tokens,
                 {**GROUPED, "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}),
    Architecture("switch-transformers", "mixture of experts", "SwitchTransformersForConditionalGeneration", pairs,
                 {**TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2,
                  "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1, "num_heads": 4, "num_experts": 4,
                  "expert_capacity": 8}),
    # State space and recurrent models
    Architecture("mamba", "state space", "MambaForCausalLM", tokens,
                 {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "time_step_rank": 4}),
    Architecture("mamba2", "state space", "Mamba2ForCausalLM", tokens,
                 {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "num_heads": 8, "head_dim": 8,
                  "n_groups": 2, "chunk_size": 8}),
    Architecture("recurrent-gemma", "state space", "RecurrentGemmaForCausalLM", tokens,
                 {**GROUPED, "num_hidden_layers": 3, "lru_width": 32, "attention_window_size": 8}),
    Architecture("rwkv", "state space", "RwkvForCausalLM", tokens,
                 {**TOKENS, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32}),
    Architecture("jamba", "state space", "JambaForCausalLM", tokens,
                 {**GROUPED, "num_hidden_layers": 4, "num_experts": 2, "attn_layer_period": 2, "attn_layer_offset": 1,
                  "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8, "mamba_dt_rank": 4,
                  "use_mamba_kernels": False}),
    Architecture("zamba2", "state space", "Zamba2ForCausalLM", tokens,
                 {**GROUPED, "num_key_value_heads": 4, "mamba_d_state": 8, "n_mamba_heads": 8, "mamba_ngroups": 1,
                  "mamba_headdim": 8, "chunk_size": 8, "layers_block_type": ["mamba", "hybrid"], "adapter_rank": 4,
                  "use_mem_rope": True, "attention_hidden_size": 64, "attention_head_dim": 16}),
    Architecture("bamba", "state space", "BambaForCausalLM", tokens,
                 {**GROUPED, "attn_layer_indices": [1], "mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8,
                  "mamba_n_groups": 1, "mamba_chunk_size": 8}),
    Architecture("lfm2", "state space", "Lfm2ForCausalLM", tokens,
                 {**GROUPED, "layer_types": ["conv", "full_attention"]}),
    Architecture("qwen3-next", "state space", "Qwen3NextForCausalLM", tokens,
                 {**GROUPED, "head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
                  "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
                  "linear_value_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
                  "shared_expert_intermediate_size": 16}),
    # Encoder-decoders
    Architecture("t5", "encoder-decoder", "T5ForConditionalGeneration", pairs,
                 {**TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
                  "decoder_start_token_id": 0}),
    Architecture("bart", "encoder-decoder", "BartForConditionalGeneration", labelled_pairs, PAIR),
    Architecture("pegasus", "encoder-decoder", "PegasusForConditionalGeneration", pairs, PAIR),
    Architecture("mbart", "encoder-decoder", "MBartForConditionalGeneration", labelled_pairs, PAIR),
    Architecture("marian", "encoder-decoder", "MarianMTModel", pairs, PAIR),
    Architecture("led", "encoder-decoder", "LEDForConditionalGeneration", pairs,
                 {**PAIR, "attention_window": [8, 8], "max_encoder_position_embeddings": 64,
                  "max_decoder_position_embeddings": 64}),
    Architecture("prophetnet", "encoder-decoder", "ProphetNetForConditionalGeneration", pairs,
                 {**TOKENS, "hidden_size": 32, "encoder_ffn_dim": 64, "num_encoder_layers": 2,
                  "num_encoder_attention_heads": 4, "decoder_ffn_dim": 64, "num_decoder_layers": 2,
                  "num_decoder_attention_heads": 4, "max_position_embeddings": 64}),
    Architecture("longt5", "encoder-decoder", "LongT5ForConditionalGeneration", pairs,
                 {**TOKENS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "local_radius": 4,
                  "encoder_attention_type": "transient-global", "global_block_size": 4}),
    # Audio
    Architecture("whisper", "audio", "WhisperForConditionalGeneration", spectrogram,
                 {**PAIR, "num_mel_bins": 16, "max_source_positions": 30, "max_target_positions": 20}),
    Architecture("wav2vec2", "audio", "Wav2Vec2ForCTC", padded_waveform, SPEECH),
    Architecture("hubert", "audio", "HubertForCTC", waveform, SPEECH),
    Architecture("wavlm", "audio", "WavLMForCTC", waveform, {**SPEECH, "num_buckets": 32, "max_bucket_distance": 64}),
    Architecture("sew", "audio", "SEWForCTC", waveform, {**SPEECH, "squeeze_factor": 2}),
    Architecture("ast", "audio", "ASTForAudioClassification", audio_patches,
                 {**PATCHES, "max_length": 32, "num_mel_bins": 32, "frequency_stride": 8, "time_stride": 8}),
    Architecture("speech2text", "audio", "Speech2TextForConditionalGeneration", speech_features,
                 {**PAIR, "input_feat_per_channel": 16, "input_channels": 1, "conv_channels": 32,
                  "max_source_positions": 64, "max_target_positions": 64}),
    Architecture("moonshine", "audio", "MoonshineForConditionalGeneration", speech_to_text,
                 {**TOKENS, "hidden_size": 32, "intermediate_size": 64, "encoder_num_hidden_layers": 2,
                  "decoder_num_hidden_layers": 2, "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4,
                  "decoder_start_token_id": 1, "max_position_embeddings": 64}),
    Architecture("wav2vec2-bert", "audio", "Wav2Vec2BertForCTC", frames(20, 16),
                 {**SMALL, "feature_projection_input_dim": 16, "conv_depthwise_kernel_size": 7}),
    Architecture("dac", "audio", "DacModel", one_channel(640),
                 {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "decoder_hidden_size": 32,
                  "upsampling_ratios": [4, 2], "codebook_size": 32, "n_codebooks": 2, "codebook_dim": 4}),
    Architecture("encodec", "audio", "EncodecModel", one_channel(640),
                 {"num_filters": 4, "hidden_size": 16, "codebook_size": 32, "num_residual_layers": 1,
                  "num_lstm_layers": 1, "target_bandwidths": [1.5]}),
    # Vision
    Architecture("vit", "vision", "ViTForImageClassification", image, PATCHES),
    Architecture("deit", "vision", "DeiTForImageClassification", image, PATCHES),
    Architecture("beit", "vision", "BeitForImageClassification", image,
                 {**PATCHES, "use_relative_position_bias": True}),
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
    Architecture("dinov2", "vision", "Dinov2ForImageClassification", image, {**PATCHES, "mlp_ratio": 2}),
    Architecture("yolos", "vision", "YolosForObjectDetection", image,
                 {**PATCHES, "image_size": [32, 32], "num_detection_tokens": 5}),
    Architecture("videomae", "vision", "VideoMAEForVideoClassification", video, {**PATCHES, "num_frames": 4}),
    Architecture("mobilenet-v2", "vision", "MobileNetV2ForImageClassification", image_of(64),
                 {"image_size": 64, "depth_multiplier": 0.35, "num_labels": 10}),
    Architecture("levit", "vision", "LevitForImageClassification", image_of(64),
                 {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4],
                  "depths": [1, 1, 1], "key_dim": [8, 8, 8], "num_labels": 10}),
    Architecture("pvt", "vision", "PvtForImageClassification", image_of(64),
                 {"image_size": 64, "hidden_sizes": [16, 16, 24, 32], "depths": [1, 1, 1, 1],
                  "num_attention_heads": [1, 2, 2, 4], "num_labels": 10}),
    Architecture("poolformer", "vision", "PoolFormerForImageClassification", image_of(64),
                 {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_labels": 10}),
    Architecture("dpt", "vision", "DPTForDepthEstimation", image,
                 {**PATCHES, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3],
                  "neck_hidden_sizes": [8, 16, 16, 16], "fusion_hidden_size": 16, "is_hybrid": False}),
    Architecture("detr", "vision", "DetrForObjectDetection", image_of(64),
                 {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None,
                  "backbone_config": {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16, 16, 32],
                                      "depths": [1, 1, 1, 1], "out_features": ["stage4"]},
                  "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
                  "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "num_queries": 5,
                  "num_labels": 10}),
    Architecture("timesformer", "vision", "TimesformerForVideoClassification", video, {**PATCHES, "num_frames": 4}),
    # Several kinds of input
    Architecture("clip", "multimodal", "CLIPModel", image_and_text,
                 {"text_config": TEXT_TOWER, "vision_config": VISION_TOWER, "projection_dim": 16}),
    Architecture("siglip", "multimodal", "SiglipModel", image_and_text,
                 {"text_config": TEXT_TOWER, "vision_config": VISION_TOWER}),
    Architecture("blip", "multimodal", "BlipForConditionalGeneration", image_and_text,
                 {"text_config": {**TEXT_TOWER, "encoder_hidden_size": 32}, "vision_config": VISION_TOWER,
                  "projection_dim": 16}),
    Architecture("llava", "multimodal", "LlavaForConditionalGeneration", llava_inputs,
                 {"text_config": {**GROUPED, "model_type": "llama"},
                  "vision_config": {**VISION_TOWER, "image_size": 24, "model_type": "clip_vision_model"},
                  "image_token_id": 96}),
    Architecture("vilt", "multimodal", "ViltForQuestionAnswering", vilt_inputs, {**SMALL, **PATCHES}),
    Architecture("layoutlm", "multimodal", "LayoutLMForTokenClassification", layout_inputs, SMALL),
    Architecture("clap", "multimodal", "ClapModel", clap_inputs,
                 {"text_config": {**SMALL, "max_position_embeddings": 32},
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
    Architecture("git", "multimodal", "GitForCausalLM", image_and_text, {**SMALL, "vision_config": VISION_TOWER}),
    Architecture("paligemma", "multimodal", "PaliGemmaForConditionalGeneration", image_prompt(9),
                 {"text_config": {**GROUPED, "model_type": "gemma", "head_dim": 8},
                  "vision_config": {**VISION_TOWER, "image_size": 24, "model_type": "siglip_vision_model"},
                  "image_token_id": 96, "projection_dim": 32}),
    Architecture("idefics3", "multimodal", "Idefics3ForConditionalGeneration", image_prompt(4, many=True),
                 {"text_config": {**GROUPED, "model_type": "llama"}, "vision_config": VISION_TOWER,
                  "image_token_id": 96, "scale_factor": 2}),
    Architecture("qwen2-vl", "multimodal", "Qwen2VLForConditionalGeneration", grids,
                 {"text_config": {**GROUPED, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                                                  "mrope_section": [1, 1, 2]}},
                  "vision_config": {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 8,
                                    "mlp_ratio": 2},
                  "image_token_id": 96, "video_token_id": 95, "vision_start_token_id": 94, "vision_end_token_id": 93}),
    Architecture("clipseg", "multimodal", "CLIPSegForImageSegmentation", image_and_text,
                 {"text_config": TEXT_TOWER, "vision_config": VISION_TOWER, "projection_dim": 16,
                  "extract_layers": [0, 1], "reduce_dim": 16, "decoder_num_attention_heads": 2,
                  "decoder_intermediate_size": 32, "conditional_layer": 0}),
    Architecture("vision-encoder-decoder", "multimodal", "VisionEncoderDecoderModel", image_and_target,
                 {"encoder": {**PATCHES, "model_type": "vit"},
                  "decoder": {**SMALL, "model_type": "bert", "is_decoder": True, "add_cross_attention": True}}),
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
    Architecture("timesfm", "time series", "TimesFmModelForPrediction", series_in_a_list,
                 {"patch_length": 8, "context_length": 64, "horizon_length": 16, "hidden_size": 32,
                  "intermediate_size": 32, "head_dim": 8, "num_attention_heads": 4, "num_hidden_layers": 2}),
)  # fmt: skip

ARCHITECTURES += tuple(Architecture(*each) for each in BESIDE)
BY_NAME: dict[str, Architecture] = {each.name: each for each in ARCHITECTURES}


if __name__ == "__main__":
    from bench.architecture_check import main

    raise SystemExit(main())
