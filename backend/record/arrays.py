"""How a trace's arrays are written, and what is checked when they are read.

Entropies, states and the heads' logits are base64 float16 with their shape, small arrays and the other logits lists of
four significant digits, positions exact integers.
"""
from __future__ import annotations

import base64
import math
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

LIST_UP_TO = 32
F16_LARGEST = 65504.0
MAX_DIMENSIONS = 3
# Nats: the logarithm of more tokens than a context or a vocabulary has; rounding may take an entropy below 0.
MAX_ENTROPY, LEAST_ENTROPY = 100.0, -1e-2
# Shares sum to 1; as float16 each may be a little larger.
MOST_SHARES = 1.01


def _packed(array: np.ndarray) -> dict[str, Any]:
    halves = np.clip(array, -F16_LARGEST, F16_LARGEST).astype("<f2")
    return {"shape": list(array.shape), "f16": base64.b64encode(halves.tobytes()).decode()}


def _unpacked(value: dict[str, Any]) -> np.ndarray:
    shape, text = value.get("shape"), value.get("f16")
    if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS or not isinstance(text, str):
        raise ValueError("an array needs a shape and its base64 float16 numbers")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError("an array's shape is made of sizes from 0 up")
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError("an array's numbers are not written as base64") from error
    if len(raw) != 2 * math.prod(shape):
        raise ValueError(f"an array of shape {shape} does not have {len(raw) // 2} numbers")
    return np.frombuffer(raw, "<f2").reshape(shape)


def _listed(array: np.ndarray) -> list[Any]:
    if array.ndim == 1:
        return [float(f"{number:.4g}") for number in array.tolist()]
    return [_listed(row) for row in array]


def _even(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise ValueError("an array's rows differ in length, or hold no numbers") from error


def _array(value: Any, dtype: type) -> np.ndarray:
    """An array from either written form, or the array itself; ValueError where it is ragged or not finite."""
    found = _unpacked(value) if isinstance(value, dict) else _even(value)
    if found.ndim == 0 or (found.size and found.dtype.kind not in "iuf"):
        raise ValueError("an array holds something other than numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        array: np.ndarray = found.astype(dtype)
    if not np.isfinite(array).all():
        raise ValueError("an array holds a number that is not finite or too large")
    return array


def _numbers(value: Any) -> np.ndarray:
    return _array(value, np.float32)


def _state(value: Any) -> np.ndarray:
    return _array(np.clip(value, -F16_LARGEST, F16_LARGEST) if isinstance(value, np.ndarray) else value, np.float16)


def _integers(value: Any) -> np.ndarray:
    array = _even(value)
    if array.ndim != 1 or (array.size and (array.dtype.kind not in "iu" or array.max() >= 2**53)):
        raise ValueError("positions and counts are a list of whole numbers")
    return array.astype(np.int64)


def _entropies(value: Any) -> np.ndarray:
    array = _numbers(value)
    if array.size and (array.min() < LEAST_ENTROPY or array.max() > MAX_ENTROPY):
        raise ValueError(f"entropies are from 0 to {MAX_ENTROPY:,.0f} nats")
    return array


def _shares(value: Any) -> np.ndarray:
    array = _numbers(value)
    if array.ndim != 1 or not array.size or array.min() < 0 or array.sum() > MOST_SHARES:
        raise ValueError("the shares of attention are a list of numbers from 0, whose sum is 1")
    return array


def _parts(value: Any) -> np.ndarray:
    if (array := _numbers(value)).ndim != 1 or not array.size or array.min() < 0 or array.max() > MOST_SHARES:
        raise ValueError("the shares of attention on the first tokens are numbers from 0 to 1, one a layer")
    return array


def _by_size(array: np.ndarray) -> Any:
    return _packed(array) if array.size > LIST_UP_TO or not array.size else _listed(array)


Entropies = Annotated[np.ndarray, PlainValidator(_entropies), PlainSerializer(_by_size)]
Shares = Annotated[np.ndarray, PlainValidator(_shares), PlainSerializer(_by_size)]
Parts = Annotated[np.ndarray, PlainValidator(_parts), PlainSerializer(_by_size)]
States = Annotated[np.ndarray, PlainValidator(_state), PlainSerializer(_packed)]
Bins = Annotated[np.ndarray, PlainValidator(_numbers), PlainSerializer(_listed)]
Heads = Annotated[np.ndarray, PlainValidator(_numbers), PlainSerializer(_packed)]
Integers = Annotated[np.ndarray, PlainValidator(_integers), PlainSerializer(np.ndarray.tolist)]
