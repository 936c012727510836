"""PyTorch on the CPU, eager, as its documentation would have it written."""

import os

import numpy as np
import torch
import torch.nn.functional as F

from participant import Prepared, Unsupported, load

torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def hello():
    return "PyTorch", torch.__version__, f"eager, {torch.get_num_threads()} threads, oneDNN and MKL as in the wheel"


def array(tensor):
    return tensor.detach().to(torch.float32).numpy()


def prepare(job):
    case = job["case"]
    op = case["op"]
    dtype = DTYPES[case["dtype"]]
    inputs = [torch.from_numpy(a) for a in load(job)]
    inputs = [t if t.dtype == torch.int64 else t.to(dtype) for t in inputs]
    if op["kind"] in TRAIN:
        return Prepared(TRAIN[op["kind"]](op, *inputs), gradients)
    if op["kind"] in SMALL:
        return Prepared(SMALL[op["kind"]](op, *inputs), np.array, torch.inference_mode)
    work = WORK.get(op["kind"])
    if work is None:
        raise Unsupported(f"no {op['kind']} here")
    return Prepared(work(op, *inputs), array, torch.inference_mode)


def rms_norm(op, x, weight):
    shape, eps = weight.shape, op["eps"]
    return lambda: F.rms_norm(x, shape, weight, eps)


def layer_norm(op, x, weight, bias):
    shape, eps = weight.shape, op["eps"]
    return lambda: F.layer_norm(x, shape, weight, bias, eps)


def attention(op, q, k, v):
    def work():
        heads_first = (t.transpose(1, 2) for t in (q, k, v))
        return F.scaled_dot_product_attention(*heads_first, is_causal=op["causal"]).transpose(1, 2)

    return work


def chain(op, x, factor, term):
    def work():
        y = x
        for _ in range(op["length"] // 2):
            y = y * factor + term
        return y.tolist()

    return work


WORK = {
    "matmul": lambda op, x, y: lambda: torch.matmul(x, y),
    "gelu_affine_mul": lambda op, x, c: lambda: F.gelu(x * op["a"] + op["b"], approximate="tanh") * c,
    "softmax": lambda op, x: lambda: x.softmax(-1),
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "sum": lambda op, x: lambda: x.sum(op["axis"]),
    "argmax": lambda op, x: lambda: x.argmax(op["axis"]),
    "attention": attention,
    "conv2d": lambda op, x, w: lambda: F.conv2d(x, w, None, op["stride"], op["padding"], 1, op["groups"]),
    "conv1d": lambda op, x, w: lambda: F.conv1d(x, w, None, op["stride"], op["padding"]),
    "conv_transpose2d": lambda op, x, w: lambda: F.conv_transpose2d(
        x, w, None, op["stride"], op["padding"], op["output_padding"]
    ),
    "transpose": lambda op, x: lambda: x.t().contiguous(),
    "cat": lambda op, *xs: lambda: torch.cat(xs, op["axis"]),
    "gather": lambda op, x, ids: lambda: x.gather(op["axis"], ids),
    "index_select": lambda op, x, ids: lambda: x.index_select(0, ids),
    "index_add": lambda op, x, ids, y: lambda: x.index_add(0, ids, y),
    "sort": lambda op, x: lambda: x.sort(-1).values,
}


# Small work is read back into the language's own numbers: that is what a user waits for.
SMALL = {"add": lambda op, x, y: lambda: (x + y).tolist(), "chain": chain}


def gradients(result):
    """Loss and gradients, one after the other."""
    return np.concatenate([array(t).reshape(-1) for t in result])


def cnn(op, x, labels, k1, b1, k2, b2, w1, c1, w2, c2):
    weights = [t.requires_grad_() for t in (k1, b1, k2, b2, w1, c1, w2, c2)]

    def work():
        y = F.max_pool2d(F.relu(F.conv2d(x, k1, b1, padding=1)), 2)
        y = F.max_pool2d(F.relu(F.conv2d(y, k2, b2, padding=1)), 2)
        y = F.relu(y.flatten(1) @ w1 + c1) @ w2 + c2
        loss = F.cross_entropy(y, labels)
        return [loss, *torch.autograd.grad(loss, weights)]

    return work


def decoder(op, x, *weights):
    weights = [t.requires_grad_() for t in weights]
    heads, eps = op["heads"], 1e-5

    def norm(x, gain):
        return F.rms_norm(x, gain.shape, gain, eps)

    def work():
        y = x
        batch, length, width = x.shape
        for layer in range(op["layers"]):
            g1, qkv, out, g2, up, down = weights[6 * layer : 6 * layer + 6]
            parts = (norm(y, g1) @ qkv).view(batch, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
            y = y + mixed.transpose(1, 2).reshape(batch, length, width) @ out
            y = y + F.gelu(norm(y, g2) @ up, approximate="tanh") @ down
        loss = y.square().mean()
        return [loss, *torch.autograd.grad(loss, weights)]

    return work


TRAIN = {"train_cnn": cnn, "train_decoder": decoder}
