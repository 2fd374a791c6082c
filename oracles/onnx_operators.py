"""Operators of ONNX as ONNX Runtime computes them: crates/lathe-onnx/tests/it/fixtures/operators.onnx.

    python oracles/onnx_operators.py

A graph with a node for each case, whose inputs are weights, and beside each of its outputs what ONNX Runtime gave: `NAME` and
`NAME.expected` are outputs of the graph. Made with onnx 1.23.2 and onnxruntime 1.31.1.
"""
import pathlib
import ml_dtypes, numpy as np
import onnx, onnxruntime
from onnx import TensorProto, helper, numpy_helper

OUT = pathlib.Path(__file__).parents[1] / "crates/lathe-onnx/tests/it/fixtures/operators.onnx"
OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
random = np.random.default_rng(0)


def f(*shape):
    return (2 * random.standard_normal(shape)).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def number(value, kind=np.float32):
    return np.array(value, kind)


def codes(kind, low, high, *shape):
    return random.integers(low, high, shape).astype(kind)


ms = "com.microsoft"
past = f(2, 3, 4)
cases = [
    ("Abs", [f(2, 3)], {}),
    ("Relu", [f(2, 3)], {}),
    ("Sigmoid", [f(2, 9)], {}),
    ("Sqrt", [np.abs(f(5))], {}),
    ("Tanh", [f(2, 9)], {}),
    ("Sin", [f(3)], {}),
    ("Cos", [f(3)], {}),
    ("Gelu", [f(4, 8)], {}),
    ("Gelu", [f(4, 8)], {"approximate": "tanh"}),
    ("Add", [f(2, 1, 3), f(4, 1)], {}),
    ("Add", [ints(1, 2), ints(-5)], {}),
    ("Sub", [f(3), number(1)], {}),
    ("Mul", [f(2, 3), f(2, 1)], {}),
    ("Div", [f(2, 3), f(3)], {}),
    ("Max", [f(2, 3), number(0)], {}),
    ("Min", [ints(1, 7), ints(3)], {}),
    ("Pow", [f(2, 3), number(2)], {}),
    ("And", [np.array([True, False]), np.array([[True], [False]])], {}),
    ("Equal", [ints(1, 2, 3), number(2, np.int64)], {}),
    ("GreaterOrEqual", [ints(1, 2, 3), number(2, np.int64)], {}),
    ("Less", [f(4), number(0)], {}),
    ("LessOrEqual", [ints(1, 2, 3), ints(3, 2, 1)], {}),
    ("Where", [np.array([[True], [False]]), f(3), number(-1)], {}),
    ("BitwiseAnd", [codes(np.uint8, 0, 256, 2, 5), number(15, np.uint8)], {}),
    ("BitShift", [codes(np.uint8, 0, 256, 2, 5), number(4, np.uint8)], {"direction": "RIGHT"}),
    ("Cast", [codes(np.int8, -128, 128, 7)], {"to": TensorProto.FLOAT}),
    ("Cast", [codes(np.uint8, 0, 256, 7)], {"to": TensorProto.FLOAT}),
    ("Cast", [f(3, 3).astype(np.float16)], {"to": TensorProto.FLOAT}),
    ("Cast", [f(3, 3).astype(ml_dtypes.bfloat16)], {"to": TensorProto.FLOAT}),
    ("Cast", [codes(np.int32, -9, 9, 3)], {"to": TensorProto.FLOAT}),
    ("Cast", [np.array([True, False])], {"to": TensorProto.FLOAT}),
    ("Concat", [f(2, 1, 2), f(2, 0, 2), f(2, 3, 2)], {"axis": 1}),
    ("Concat", [ints(1), ints(2, 3)], {"axis": -1}),
    ("Expand", [f(2, 1), ints(3, 1, 4)], {}),
    ("Range", [number(2, np.int64), number(9, np.int64), number(3, np.int64)], {}),
    ("Range", [number(3, np.int64), number(-4, np.int64), number(-2, np.int64)], {}),
    ("Reshape", [f(2, 3, 4), ints(0, -1, 2)], {}),
    ("Reshape", [f(2, 0, 4), ints(1, 0, 8)], {"allowzero": 1}),
    ("Shape", [f(2, 0, 4)], {}),
    ("Slice", [f(4, 6), ints(1, -3), ints(2**63 - 1, 6), ints(0, 1)], {}),
    ("Slice", [f(4, 6), ints(-1), ints(-(2**63)), ints(1), ints(-2)], {}),
    ("Split", [f(2, 7), ints(1, 4, 2)], {"axis": -1}, "", 3),
    ("Squeeze", [f(1, 2, 1), ints(0, -1)], {}),
    ("Unsqueeze", [f(2, 3), ints(0, -1)], {}),
    ("Transpose", [f(2, 3, 4)], {"perm": [2, 0, 1]}),
    ("Transpose", [codes(np.int8, -128, 128, 3, 5)], {"perm": [1, 0]}),
    ("Gather", [f(5, 3), np.array([[4, 0], [-1, 2]])], {}),
    ("Gather", [f(2, 5), number(3, np.int64)], {"axis": 1}),
    ("NonZero", [np.array([[True, False, True], [False, False, True]])], {}),
    ("ScatterND", [f(4, 3), np.array([[1], [3], [1]]), f(3, 3)], {"reduction": "add"}),
    ("ScatterND", [f(4, 3), np.array([[1, 2], [0, 0]]), f(2)], {}),
    ("TopK", [np.array([[1, 3, 3, 2], [0, -1, 5, 5]], np.float32), ints(2)], {"axis": -1}, "", 2),
    ("ReduceMax", [f(2, 3, 4), ints(-1)], {"keepdims": 0}),
    ("ReduceMean", [f(2, 3, 4), ints(2)], {}),
    ("ReduceSum", [f(2, 3), ints(-1)], {"keepdims": 1}),
    ("LayerNormalization", [f(3, 8), f(8), f(8)], {"axis": -1, "epsilon": 1e-3}),
    ("Softmax", [f(3, 8)], {"axis": -1}),
    ("LogSoftmax", [f(3, 8)], {"axis": -1}),
    ("MatMul", [f(2, 3, 4), f(4, 5)], {}),
    ("MatMul", [f(2, 1, 3, 4), f(2, 4, 5)], {}),
    ("MatMul", [f(0, 4), f(4, 5)], {}),
    ("QuantizeLinear", [f(3, 9), np.abs(f(3)) / 50, np.full(3, 128, np.uint8)], {"axis": 0}),
    ("DynamicQuantizeMatMul", [f(2, 3, 16), codes(np.int8, -127, 128, 16, 5), np.abs(f(5)), None, f(5)], {}, ms),
    ("DynamicQuantizeMatMul", [np.abs(f(3, 16)), codes(np.int8, -127, 128, 16, 5), np.abs(f(5))], {}, ms),
    ("MatMulIntegerToFloat", [codes(np.uint8, 1, 256, 2, 3, 16), codes(np.int8, -127, 128, 16, 5), number(1), np.abs(f(5)), number(128, np.uint8)], {}, ms),
    ("MatMulNBits", [f(2, 3, 64), codes(np.uint8, 0, 256, 5, 2, 16), f(5, 2)], {"K": 64, "N": 5, "bits": 4, "block_size": 32, "accuracy_level": 1}, ms),
    ("MatMulNBits", [f(2, 3, 64), codes(np.uint8, 0, 256, 5, 2, 16), f(5, 2)], {"K": 64, "N": 5, "bits": 4, "block_size": 32, "accuracy_level": 4}, ms),
    ("MatMulNBits", [f(3, 64), codes(np.uint8, 0, 256, 5, 2, 32), f(5, 2)], {"K": 64, "N": 5, "bits": 8, "block_size": 32, "accuracy_level": 4}, ms),
    ("MatMulNBits", [f(3, 40), codes(np.uint8, 0, 256, 5, 2, 16), f(5, 2)], {"K": 40, "N": 5, "bits": 4, "block_size": 32, "accuracy_level": 1}, ms),
    ("RotaryEmbedding", [f(2, 3, 4, 8), np.array([[0, 1, 2, 3], [0, 0, 1, 2]]), f(6, 4), f(6, 4)], {"interleaved": 0}, ms),
    ("RotaryEmbedding", [f(2, 3, 4, 8), ints(2), f(6, 4), f(6, 4)], {"interleaved": 0}, ms),
]


def kind_of(array):
    return helper.np_dtype_to_tensor_dtype(array.dtype)


def tensor(array, name):
    proto = helper.make_tensor(name, kind_of(array), array.shape, array.tobytes(), raw=True)
    return proto


def model(nodes, weights, outputs):
    infos = [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in outputs]
    graph = helper.make_graph(nodes, "operators", [], infos, weights)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=9)


def main():
    nodes, weights, outputs = [], [], []
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for i, (op, arrays, attributes, *rest) in enumerate(cases):
        domain, count = (rest + ["", 1][len(rest):])[:2]
        names = [f"{op}.{i}.in{j}" if array is not None else "" for j, array in enumerate(arrays)]
        own = [tensor(array, name) for array, name in zip(arrays, names) if name]
        given = [f"{op}.{i}.{j}" for j in range(count)]
        node = helper.make_node(op, names, given, domain=domain, **attributes)
        one = helper.make_model(
            helper.make_graph([node], "one", [], [helper.make_empty_tensor_value_info(name) for name in given], own),
            opset_imports=OPSETS, ir_version=9,
        )
        session = onnxruntime.InferenceSession(one.SerializeToString(), options, providers=["CPUExecutionProvider"])
        nodes.append(node)
        weights += own
        for name, array in zip(given, session.run(None, {})):
            weights.append(tensor(np.ascontiguousarray(array), f"{name}.weight"))
            nodes.append(helper.make_node("Identity", [f"{name}.weight"], [f"{name}.expected"]))
            outputs += [(part, kind_of(array), array.shape) for part in (name, f"{name}.expected")]
    whole = model(nodes, weights, outputs)
    onnx.checker.check_model(whole)
    OUT.parent.mkdir(parents=True, exist_ok=True)
    OUT.write_bytes(whole.SerializeToString())
    print(len(cases), "cases,", OUT.stat().st_size, "bytes")


main()
