"""Translation of modules to ONNX, and running of the result."""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from maze_pl.bundle.errors import ExportError

OPSET: Final = 18
"""Version of ONNX's operators; the one that torch translates to without a further conversion."""
_HINT: Final = "exporting needs onnx, onnxscript and onnxruntime: pip install maze-pl[onnx]"
_OPERATION: Final = re.compile(r"OpOverload\(op='([^']+)'|(?:^|\s)((?:aten|prims|torchvision)[.:]+\w+(?:\.\w+)?)")


def _log_sigmoid(x: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x))) for any x; torch translates it to Log(Sigmoid(x)), which is -inf for x below -18."""
    return -torch.relu(-x) - torch.log1p(torch.exp(-x.abs()))


_REPLACED: Final[dict[Any, Callable[..., Tensor]]] = {torch.ops.aten.log_sigmoid.default: _log_sigmoid}
"""Operation -> a function of others, whose translation is more accurate."""


def to_onnx(graph: nn.Module, inputs: dict[str, Tensor], outputs: Sequence[str], where: str) -> bytes:
    """Translate a module, for batches of any size.

    Args:
        graph: Takes a dict of tensors [B, ...] and returns one.
        inputs: Name -> example, with B above 1.
        outputs: Names of the outputs that it returns, in order.
        where: Description of the module for messages.

    Raises:
        ExportError: An operation cannot be traced or translated; the message names it.
        ImportError: The packages of the extra `onnx` are missing.
    """
    _require_packages()
    batch = torch.export.Dim("batch")
    sizes: Any = {name: {0: batch} for name in inputs}
    with _quiet(), torch.no_grad():
        try:
            program = torch.export.export(graph, (inputs,), dynamic_shapes=(sizes,), strict=False)
        except Exception as error:  # any exception, as networks are user code
            raise ExportError(f"{where} cannot be traced by torch.export: {_reason(error)}") from error
        try:
            translated: Any = torch.onnx.export(
                program.run_decompositions(_REPLACED),
                dynamo=True,
                verbose=False,
                input_names=list(inputs),
                output_names=list(outputs),
                opset_version=OPSET,
            )
        except Exception as error:  # torch raises many classes
            raise ExportError(f"{where} cannot be translated to ONNX: {_reason(error)}") from error
    return _without_origin(translated.model_proto)


def _without_origin(model: Any) -> bytes:
    """Serialize a graph without the notes of torch's exporter, such as paths of source files on this machine."""
    parts = [model, model.graph, *model.functions]
    for graph in (model.graph, *model.functions):
        parts += graph.node
    for part in (*parts, *model.graph.input, *model.graph.output, *model.graph.initializer, *model.graph.value_info):
        del part.metadata_props[:]
    content: bytes = model.SerializeToString()
    return content


def _require_packages() -> None:
    """Raise ImportError with a hint if a package of the extra is missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(f"{_HINT} ({error})") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's notes about its exporter, on which users cannot act."""
    levels = {name: logging.getLogger(name).level for name in ("torch.onnx", "onnxscript", "onnx_ir")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _reason(error: BaseException) -> str:
    """Return the operation that an error names, or its first line."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    for cause in reversed(causes):
        if found := _OPERATION.search(str(cause)):
            return f"the operation {found[1] or found[2]} is not supported there"
    lines = [line.strip() for line in str(causes[-1]).splitlines() if line.strip()]
    return f"{type(causes[-1]).__name__}: {lines[0] if lines else 'no further description'}"
