"""Makes the fixtures beside this file: `python make.py`, with PyTorch 2.3 or later."""

from collections import OrderedDict
from pathlib import Path
import io
import zipfile

import torch

HERE = Path(__file__).parent


def numbers(*shape, dtype=torch.float32):
    """0, 1, 2, ... minus 5."""
    return (torch.arange(torch.Size(shape).numel()) - 5).reshape(shape).to(dtype)


def tensors():
    base = numbers(4, 6)
    plain = {str(dtype).removeprefix("torch."): numbers(2, 3, dtype=dtype) for dtype in [
        torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
    ]}
    return plain | {
        "uint8": torch.tensor([0, 7, 255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "transposed": base.t(),
        "part": base[1:3, 2:5],
        "shared": base,
        "every": base[:, ::2],
        "expanded": torch.tensor([2.5, -1.0]).unsqueeze(1).expand(2, 3),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "parameter": torch.nn.Parameter(numbers(2, 2)),
    }


def model():
    layer = torch.nn.Sequential(OrderedDict(
        conv=torch.nn.Conv1d(2, 3, 1), norm=torch.nn.BatchNorm1d(3), out=torch.nn.Linear(3, 2, bias=False)))
    with torch.no_grad():
        for at, parameter in enumerate(layer.parameters()):
            parameter.copy_(numbers(*parameter.shape) + at)
    return layer


def checkpoint():
    layer = model()
    adam = torch.optim.Adam(layer.parameters(), lr=0.5)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    adam.step()
    return {
        "epoch": 7, "loss": 0.25, "note": "b\u00e4r", "big": 1 << 80, "history": [1.0, 2.0], "nothing": None,
        "device": torch.device("cpu"), "state_dict": model().state_dict(), "optimizer": adam.state_dict(),
        "pair": (torch.ones(1), [torch.zeros(2)]), 3: torch.tensor([3]),
    }


def save(what, name, **options):
    torch.save(what, HERE / name, **options)


def main():
    for name, options in [("zip", {}), ("plain", {"_use_new_zipfile_serialization": False})]:
        save(tensors(), f"tensors_{name}.pth", **options)
        save(checkpoint(), f"checkpoint_{name}.pth", **options)
    save(tensors(), "tensors_protocol_4.pth", pickle_protocol=4)
    save(tensors(), "tensors_plain_protocol_5.pth", pickle_protocol=5, _use_new_zipfile_serialization=False)
    save({
        "e4m3": numbers(2, 3).to(torch.float8_e4m3fn), "e5m2": numbers(2, 3).to(torch.float8_e5m2),
        "uint16": torch.tensor([0, 65535], dtype=torch.uint16), "fnuz": numbers(3).to(torch.float8_e4m3fnuz),
        "complex": torch.tensor([1 + 2j]), "sparse": torch.eye(2).to_sparse(), "fine": numbers(3),
    }, "newer_types.pth")
    save(numbers(2, 3), "one.pth")
    save([numbers(2), numbers(3)], "list.pth")
    save(model(), "whole_model.pth")
    # As a machine whose highest byte comes first writes it.
    buffer = io.BytesIO()
    torch.save({"x": numbers(2, 3), "y": numbers(2, dtype=torch.int16)}, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(HERE / "big_endian_deflated.pth", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            elif "/data/" in name:
                size = 4 if len(data) == 24 else 2
                data = b"".join(data[at:at + size][::-1] for at in range(0, len(data), size))
            new.writestr(name, data)


main()
