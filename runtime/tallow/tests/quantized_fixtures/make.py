"""Makes blocks.gguf beside this file with the `gguf` package of PyPI: `python make.py`.

`x` is numbers; `quantized.T` are its blocks of the types that `gguf` quantizes; `random.T` are random blocks, and `values.T` what
they hold."""

from pathlib import Path

import gguf
import numpy as np

T = gguf.GGMLQuantizationType
K = {T.Q2_K: (80, 82), T.Q3_K: (108,), T.Q4_K: (0, 2), T.Q5_K: (0, 2), T.Q6_K: (208,)}
LEGACY = {T.Q4_0: (0,), T.Q4_1: (0, 2), T.Q5_0: (0,), T.Q5_1: (0, 2), T.Q8_0: (0,)}

random = np.random.default_rng(7)
writer = gguf.GGUFWriter(Path(__file__).parent / "blocks.gguf", "none")
x = random.normal(size=(2, 256)).astype(np.float32)
x[1, 32:64] = 0
x[1, 64:96] = np.abs(x[1, 64:96])
writer.add_tensor("x", x)
for kind in LEGACY:
    writer.add_tensor(f"quantized.{kind.name}", gguf.quants.quantize(x, kind), raw_dtype=kind)
for kind, halves in (LEGACY | K).items():
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, size=(2, 256 // elements, size), dtype=np.uint8)
    for at in halves:
        scales = random.normal(scale=0.1, size=(*blocks.shape[:2], 1)).astype(np.float16)
        blocks[..., at:at + 2] = scales.view(np.uint8)
    blocks = blocks.reshape(2, -1)
    writer.add_tensor(f"random.{kind.name}", blocks, raw_dtype=kind)
    writer.add_tensor(f"values.{kind.name}", gguf.quants.dequantize(blocks, kind).astype(np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
