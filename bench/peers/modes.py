"""The modes of every peer: each is measured, and its fastest counts."""

NAMES = {
    "torch": "PyTorch",
    "pyg": "PyTorch Geometric",
    "jax": "JAX",
    "onnx": "ONNX Runtime",
    "burn": "burn",
    "candle": "candle",
}

# PyTorch's training modes; where nothing else is said Adam is fused.
TRAINED = ["eager, plain Adam", "eager", "compiled", "compiled, max-autotune"]
IMAGES = TRAINED + [f"{mode}, channels last" for mode in TRAINED[1:]]
INFERRED = ["eager", "compiled", "compiled, max-autotune, frozen"]

MODES = {
    "torch": {
        "rows": TRAINED,
        "images": IMAGES,
        "graph": ["eager, CSR, plain Adam", "eager, CSR", "compiled, CSR", "compiled, index_add"]
        + ["compiled, max-autotune, index_add", "compiled, index_add, dense features"],
        "logic": ["eager", "compiled", "compiled, planes"],
        "rows, inference": INFERRED,
        "images, inference": INFERRED + [f"{mode}, channels last" for mode in INFERRED],
    },
    "pyg": {
        "graph": ["eager, plain Adam", "eager", "eager, sparse adjacency", "compiled", "compiled, max-autotune"],
    },
    "jax": {
        "rows": ["jitted"],
        "images": ["jitted", "jitted, channels last"],
        "graph": ["jitted", "jitted, dense features"],
        "logic": ["jitted", "jitted, planes"],
        "rows, inference": ["jitted"],
        "images, inference": ["jitted", "jitted, channels last"],
    },
    "onnx": {
        "rows, inference": ["all threads", "one thread"],
        "images, inference": ["all threads"],
    },
    "burn": {"rows": ["flex"], "images": ["flex"]},
    "candle": {"rows": ["gemm"], "images": ["gemm"]},
}


def modes(peer, family, trains):
    return MODES[peer].get(family if trains else f"{family}, inference", [])
