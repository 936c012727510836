"""ONNX Runtime's CPU provider: each case is a graph of one or a few nodes."""

import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from participant import Prepared, Unsupported, load

OPSET = 23


def hello():
    return "ONNX Runtime", onnxruntime.__version__, f"CPU provider, opset {OPSET}"


def node(kind, inputs, output="result", domain="", **attributes):
    return helper.make_node(kind, inputs, [output], domain=domain, **attributes)


def conv(op, kind, spatial):
    attributes = {"strides": [op["stride"]] * spatial, "pads": [op["padding"]] * 2 * spatial}
    if "output_padding" in op:
        attributes["output_padding"] = [op["output_padding"]] * spatial
    return [node(kind, ["i0", "i1"], group=op.get("groups", 1), **attributes)], {}


def gelu_affine_mul(op):
    nodes = [
        node("Mul", ["i0", "a"], "scaled"),
        node("Add", ["scaled", "b"], "moved"),
        node("Gelu", ["moved"], "bent", approximate="tanh"),
        node("Mul", ["bent", "i1"]),
    ]
    return nodes, {"a": np.float32(op["a"]), "b": np.float32(op["b"])}


def attention(op):
    """[batch, positions, heads, width] to the operator's [batch, positions, heads * width] and back."""
    heads, width = op["heads"], op["width"]
    three = np.array([0, 0, heads * width], dtype=np.int64)
    four = np.array([0, 0, heads, width], dtype=np.int64)
    nodes = [node("Reshape", [f"i{i}", "three"], name) for i, name in enumerate("qkv")]
    nodes.append(
        node("Attention", ["q", "k", "v"], "mixed", is_causal=int(op["causal"]), q_num_heads=heads, kv_num_heads=heads)
    )
    nodes.append(node("Reshape", ["mixed", "four"]))
    return nodes, {"three": three, "four": four}


def graph(op):
    """Nodes from the inputs i0, i1, ... to `result`, and constants."""
    match op["kind"]:
        case "matmul":
            return [node("MatMul", ["i0", "i1"])], {}
        case "gelu_affine_mul":
            return gelu_affine_mul(op)
        case "softmax":
            return [node("Softmax", ["i0"], axis=-1)], {}
        case "layer_norm":
            return [node("LayerNormalization", ["i0", "i1", "i2"], axis=-1, epsilon=op["eps"])], {}
        case "rms_norm":
            return [node("RMSNormalization", ["i0", "i1"], axis=-1, epsilon=op["eps"])], {}
        case "sum":
            axes = np.array([op["axis"]], dtype=np.int64)
            return [node("ReduceSum", ["i0", "axes"], keepdims=0)], {"axes": axes}
        case "argmax":
            return [node("ArgMax", ["i0"], axis=op["axis"], keepdims=0)], {}
        case "attention":
            return attention(op)
        case "conv2d":
            return conv(op, "Conv", 2)
        case "conv1d":
            return conv(op, "Conv", 1)
        case "conv_transpose2d":
            return conv(op, "ConvTranspose", 2)
        case "transpose":
            return [node("Transpose", ["i0"], perm=[1, 0])], {}
        case "cat":
            return [node("Concat", ["i0", "i1"], axis=op["axis"])], {}
        case "gather":
            return [node("GatherElements", ["i0", "i1"], axis=op["axis"])], {}
        case "index_select":
            return [node("Gather", ["i0", "i1"], axis=0)], {}
        case "add":
            return [node("Add", ["i0", "i1"])], {}
        case kind:
            raise Unsupported(f"no {kind} here")


def prepare(job):
    case = job["case"]
    # The CPU provider has no products in half precision of its own.
    if case["dtype"] != "f32":
        raise Unsupported(f"no fast {case['dtype']} on the CPU")
    nodes, constants = graph(case["op"])
    arrays = load(job)
    inputs = [
        helper.make_tensor_value_info(f"i{i}", TensorProto.INT64 if a.dtype == np.int64 else TensorProto.FLOAT, a.shape)
        for i, a in enumerate(arrays)
    ]
    kind = TensorProto.INT64 if case["op"]["kind"] == "argmax" else TensorProto.FLOAT
    output = helper.make_tensor_value_info("result", kind, None)
    initializers = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    # A kernel or a weight is a constant to ONNX Runtime, which packs it once when the model is loaded.
    for place in WEIGHTS.get(case["op"]["kind"], ()):
        initializers.append(onnx.numpy_helper.from_array(arrays[place], f"i{place}"))
    fed = [i for i in range(len(arrays)) if i not in WEIGHTS.get(case["op"]["kind"], ())]
    proto = helper.make_model(
        helper.make_graph(nodes, "case", [inputs[i] for i in fed], [output], initializers),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {f"i{i}": arrays[i] for i in fed}
    names = ["result"]
    return Prepared(lambda: session.run(names, feed)[0], np.asarray)


# Inputs that a model file holds. For a plain product both sides are activations.
WEIGHTS = {"conv2d": (1,), "conv1d": (1,), "conv_transpose2d": (1,), "layer_norm": (1, 2), "rms_norm": (1,)}
