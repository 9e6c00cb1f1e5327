"""What architectures are called with: functions from a configuration to the keyword arguments of one call.

They draw from torch's generator. Texts are a batch of two, tokens between 5 and 92 of a vocabulary of 97: no special
token is among them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

VOCABULARY = 97
BATCH = 2


def token_ids(length: int = 16) -> torch.Tensor:
    return torch.randint(5, VOCABULARY - 5, (BATCH, length))


def text_mask(length: int = 16, padded: int = 3) -> torch.Tensor:
    """A batch of two: one full row, one whose last `padded` positions are padding."""
    mask = torch.ones(BATCH, length, dtype=torch.int64)
    mask[1, length - padded :] = 0
    return mask


def tokens(config: Any) -> dict[str, Any]:
    """Token ids alone."""
    return {"input_ids": token_ids()}


def padded_tokens(config: Any) -> dict[str, Any]:
    """Token ids and the attention mask of a batch whose second row is shorter, as a tokenizer gives them."""
    return {"input_ids": token_ids(), "attention_mask": text_mask()}


def full_tokens(config: Any) -> dict[str, Any]:
    """Token ids and an attention mask that hides nothing."""
    return {"input_ids": token_ids(), "attention_mask": torch.ones(BATCH, 16, dtype=torch.int64)}


def pairs(config: Any) -> dict[str, Any]:
    """Source tokens with padding, and target tokens."""
    return {**padded_tokens(config), "decoder_input_ids": token_ids(9)}


def labelled_pairs(config: Any) -> dict[str, Any]:
    """Source tokens and labels, from which the model makes its decoder's tokens and a loss."""
    return {**padded_tokens(config), "labels": token_ids(9)}


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
    return {"input_features": torch.randn(BATCH, config.num_mel_bins, frames), "decoder_input_ids": token_ids(9)}


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
    ids = token_ids()
    ids[:, 1 : 1 + (side // patch) ** 2] = config.image_token_id
    return {"input_ids": ids, "attention_mask": text_mask(padded=2), "pixel_values": torch.randn(BATCH, 3, side, side)}


def layout_inputs(config: Any) -> dict[str, Any]:
    corner = torch.randint(0, 400, (BATCH, 16, 2))
    boxes = torch.cat([corner, corner + torch.randint(1, 400, (BATCH, 16, 2))], -1)
    return {**padded_tokens(config), "bbox": boxes}


def layout_and_image(config: Any) -> dict[str, Any]:
    """Words with their boxes, and the page that they are on."""
    return {**layout_inputs(config), "pixel_values": torch.randn(BATCH, 3, config.input_size, config.input_size)}


def boxes_and_target(config: Any) -> dict[str, Any]:
    """Words with their boxes as shares of a page, and target tokens."""
    return {**pairs(config), "bbox": torch.rand(BATCH, 16, 4)}


def mel_and_noise(config: Any) -> dict[str, Any]:
    """A mel spectrogram and the noise that a vocoder makes sound of."""
    noise = torch.randn(BATCH, 12, config.model_in_channels)
    return {"input_features": torch.randn(BATCH, 12, config.num_mel_bins), "noise_sequence": noise}


def lxmert_inputs(config: Any) -> dict[str, Any]:
    """A text, and features of five objects with their boxes."""
    objects = {"visual_feats": torch.randn(BATCH, 5, config.visual_feat_dim), "visual_pos": torch.rand(BATCH, 5, 4)}
    return {**padded_tokens(config), **objects}


def visual_features(config: Any) -> dict[str, Any]:
    """A text, and features of five parts of an image."""
    return {**padded_tokens(config), "visual_embeds": torch.randn(BATCH, 5, config.visual_embedding_dim)}


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


def image_and_target(config: Any) -> dict[str, Any]:
    """An image for the encoder and tokens for the decoder."""
    side = config.encoder.image_size
    return {"pixel_values": torch.randn(BATCH, 3, side, side), "decoder_input_ids": token_ids(9)}


def image_prompt(tokens_per_image: int, many: bool = False) -> Callable[[Any], dict[str, Any]]:
    """A prompt that begins with tokens which stand for the image; `many`: images come in lists of one."""

    def inputs(config: Any) -> dict[str, Any]:
        ids = token_ids()
        ids[:, 1 : 1 + tokens_per_image] = config.image_token_id
        side = config.vision_config.image_size
        shape = (BATCH, 1, 3, side, side) if many else (BATCH, 3, side, side)
        return {"input_ids": ids, "attention_mask": text_mask(padded=2), "pixel_values": torch.randn(shape)}

    return inputs


def grids(config: Any) -> dict[str, Any]:
    """Flat patches of images whose sizes come as numbers in a tensor."""
    ids = token_ids()
    ids[:, 1] = config.vision_start_token_id
    ids[:, 2:6] = config.image_token_id
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(BATCH * 16, 3 * 2 * 8 * 8),
        "image_grid_thw": torch.tensor([[1, 4, 4]] * BATCH),
        "mm_token_type_ids": (ids == config.image_token_id).int(),
    }


def long_tokens(length: int) -> Callable[[Any], dict[str, Any]]:
    """`length` tokens and no mask."""
    return lambda config: {"input_ids": token_ids(length)}


def long_padded_tokens(length: int) -> Callable[[Any], dict[str, Any]]:
    """`length` tokens, the second row padded."""
    return lambda config: {"input_ids": token_ids(length), "attention_mask": text_mask(length, 4)}


def speech_features(config: Any) -> dict[str, Any]:
    """Filter banks and target tokens."""
    return {
        "input_features": torch.randn(BATCH, 40, config.input_feat_per_channel),
        "decoder_input_ids": token_ids(9),
    }


def speech_to_text(config: Any) -> dict[str, Any]:
    """Raw audio and target tokens."""
    return {"input_values": torch.randn(BATCH, 2000), "decoder_input_ids": token_ids(9)}


def frames(count: int, width: int) -> Callable[[Any], dict[str, Any]]:
    """`count` frames of `width` audio features."""
    return lambda config: {"input_features": torch.randn(BATCH, count, width)}


def one_channel(samples: int) -> Callable[[Any], dict[str, Any]]:
    """Raw audio with a dimension for channels."""
    return lambda config: {"input_values": torch.randn(BATCH, 1, samples)}


def audio_patches(config: Any) -> dict[str, Any]:
    return {"input_values": torch.randn(BATCH, config.max_length, config.num_mel_bins)}


def series_in_a_list(config: Any) -> dict[str, Any]:
    """Two univariate series, apart, with their frequencies."""
    return {"past_values": [torch.randn(64), torch.randn(64)], "freq": [0, 1]}
