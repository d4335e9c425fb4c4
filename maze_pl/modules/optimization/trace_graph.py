"""Graphs of traced gradients: refusal of changing shapes, and the same results from fewer operations.

Autograd runs many operations that have no effect, are duplicates, or give the same result each
time. For small networks an operation costs about the same whatever it computes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, fx
from torch._ops import OpOverload

_aten = torch.ops.aten

_ZEROS = (_aten.zeros.default, _aten.zeros_like.default, _aten.new_zeros.default)

_VIEWS = (_aten.view.default, _aten._unsafe_view.default, _aten.expand.default, _aten.slice.Tensor)

_UNDONE = {
    _aten.squeeze.dim: _aten.unsqueeze.default,
    _aten.squeeze.dims: _aten.unsqueeze.default,
    _aten.neg.default: _aten.neg.default,
}
"""Operations, each with the one that it undoes."""

_BY_SHAPE = (
    _aten.ones_like,
    _aten.zeros_like,
    _aten.full_like,
    _aten.new_zeros,
    _aten.new_ones,
    _aten.new_full,
)

_LIFTS = (_aten.lift_fresh.default, _aten.lift_fresh_copy.default)
"""Operations on tensors that were made from numbers."""

_PLACEMENT = ("device", "pin_memory", "layout")  # TorchScript is used on the CPU only


class ShapesDependOnValues(ValueError):
    """Error for a graph with operations whose output shapes depend on values."""

    def __init__(self) -> None:
        super().__init__("the networks select entries by their values, so that shapes change")


class TensorElsewhere(ValueError):
    """Error for a graph of a device that reads a tensor of another device, such as the CPU.

    Attributes:
        tensor: The tensor.
        origin: `input` for an argument, `constant` for a tensor that the loss reads, `random` for
            numbers that it draws.
    """

    def __init__(self, tensor: Tensor, origin: Literal["input", "constant", "random"]) -> None:
        super().__init__(f"a tensor on another device is read: {tensor.device}")
        self.tensor = tensor
        self.origin = origin


def check_reads_one_device(module: fx.GraphModule, arguments: Sequence[Tensor]) -> None:
    """Refuse tensors on other devices than that of the last argument.

    A recorded graph keeps their first values. Tensors made from numbers are constants in any case.

    Args:
        module: The graph.
        arguments: Arguments that it was traced with.

    Raises:
        TensorElsewhere: The graph reads such a tensor, or draws random numbers there.
    """
    placeholders = iter(arguments)
    for node in module.graph.nodes:
        value: Any = None
        origin: Literal["input", "constant", "random"] = "random"
        if node.op == "placeholder":
            value = next(placeholders)
            origin = "input"
        elif node.op == "get_attr":
            value = getattr(module, str(node.target))
            origin = "constant"
        elif torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            value = node.meta.get("val")
        if not isinstance(value, Tensor) or value.device.type == arguments[-1].device.type:
            continue
        if any(user.op != "output" and user.target not in _LIFTS for user in node.users):
            raise TensorElsewhere(value, origin)


def check_shapes_are_fixed(module: fx.GraphModule) -> None:
    """Refuse operations whose output shapes depend on values, since a trace has fixed shapes.

    Raises:
        ShapesDependOnValues: The graph has such an operation.
    """
    for node in module.graph.nodes:
        if torch.Tag.dynamic_output_shape not in getattr(node.target, "tags", ()):
            continue
        masks = [item for item in node.args[1] if item is not None] if node.target is _aten.index.Tensor else []
        if not masks or any(item.meta["tensor_meta"].dtype in (torch.bool, torch.uint8) for item in masks):
            raise ShapesDependOnValues


def simplified(module: fx.GraphModule, arguments: Sequence[Tensor]) -> fx.GraphModule:
    """Remove needless operations from a graph; its results differ in the sign of zeros at most.

    Args:
        module: The graph, which is changed.
        arguments: Arguments that it was traced with.
    """
    graph = module.graph
    attributes: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        original = _aliased(node)
        if node.op == "get_attr" and attributes.setdefault(node.target, node) is not node:
            original = attributes[node.target]
        if original is not None:
            node.replace_all_uses_with(original)
            graph.erase_node(node)
    nodes = list(graph.nodes)
    end = next(index for index, node in enumerate(nodes) if _works_in_place(node))
    if nodes[end].target is _aten.cat.out:  # the gradient; before it, tensors keep their values
        for node in nodes[:end]:
            _simplify(module, node)
        nodes = list(graph.nodes)
        end = next(index for index, node in enumerate(nodes) if _works_in_place(node))
        _merge(module, [node for node in nodes[:end] if isinstance(node.target, OpOverload)], arguments)
    graph.eliminate_dead_code()
    module.recompile()
    return module


def unread_arguments(module: fx.GraphModule) -> frozenset[int]:
    """Return the positions of the arguments that no operation of a graph reads."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    return frozenset(index for index, node in enumerate(placeholders) if not node.users)


def for_script(module: fx.GraphModule) -> fx.GraphModule:
    """Convert a graph for TorchScript."""
    for node in module.graph.nodes:
        if node.target is _aten._to_copy.default:
            node.target, node.args = _aten.to.dtype, (node.args[0], node.kwargs["dtype"])
            node.kwargs = {name: value for name, value in node.kwargs.items() if name == "memory_format"}
        node.kwargs = {name: value for name, value in node.kwargs.items() if name not in _PLACEMENT}
        if isinstance(node.target, OpOverload):
            node.target = node.target.overloadpacket
    module.recompile()
    return module


def _works_in_place(node: fx.Node) -> bool:
    """True for an operation that changes a tensor."""
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


# --------------------------------------------------------------------------------------------- single operations


def _aliased(node: fx.Node) -> fx.Node | None:
    """Return the node whose result an operation only gives another name; None if it does more."""
    target: Any = node.target
    original: fx.Node | None = None
    if target in (_aten.detach.default, _aten.alias.default):
        original = _input(node)
    elif target is _aten.t.default and _input(node).target is target:
        original = _input(_input(node))
    return original


def _input(node: fx.Node) -> fx.Node:
    """Return the first argument of an operation."""
    first: Any = node.args[0]
    assert isinstance(first, fx.Node)
    return first


def _simplify(module: fx.GraphModule, node: fx.Node) -> None:
    """Replace an operation that has no effect, or that a view of its input can stand for."""
    if _input_with_same_values(node) is None:
        _absorb_negation(node)
        _absorb_negation(node)  # of the term that has become the second one
    target: Any = node.target
    arguments: Any = node.args
    same = _input_with_same_values(node)
    if same is not None and _form(module, same) == _form(module, node):
        node.replace_all_uses_with(same)
        module.graph.erase_node(node)
    elif target is _aten.view.default and _input(node).target is _aten.view.default:
        node.args = (_input(_input(node)), *arguments[1:])
    elif target is _aten.stack.default and len(arguments[0]) == 1:
        dim = arguments[1] if len(arguments) > 1 else 0
        _replace_by_view(module, node, _aten.unsqueeze.default, arguments[0][0], dim)
    elif target is _aten.sum.dim_IntList and _adds_up_nothing(node) and not _keeps_dims(node):
        _replace_by_view(module, node, _aten.squeeze.dims, *arguments[:2])


def _absorb_negation(node: fx.Node) -> None:
    """Turn sums and differences with a negated term into differences and sums, which round equally."""
    arguments: Any = node.args
    if node.target in (_aten.add.Tensor, _aten.sub.Tensor) and not node.kwargs:
        first, second = arguments
        positive = _without_negation(second)
        if positive is not None:
            node.target = _aten.sub.Tensor if node.target is _aten.add.Tensor else _aten.add.Tensor
            node.args = first, positive
        elif node.target is _aten.add.Tensor and _is_negation(first) and isinstance(second, fx.Node):
            node.target, node.args = _aten.sub.Tensor, (second, first.args[0])
    elif node.target is _aten.neg.default and arguments[0].target is _aten.sub.Tensor and not arguments[0].kwargs:
        minuend, subtrahend = arguments[0].args
        if isinstance(minuend, fx.Node) and isinstance(subtrahend, fx.Node):
            node.target, node.args = _aten.sub.Tensor, (subtrahend, minuend)


def _without_negation(argument: object) -> fx.Node | None:
    """Return what a node negates, also behind a view that adds a dimension; None if it negates nothing."""
    if not isinstance(argument, fx.Node):
        return None
    if _is_negation(argument):
        return _input(argument)
    if argument.target is _aten.unsqueeze.default and _is_negation(argument.args[0]):
        with argument.graph.inserting_after(argument):
            view = argument.graph.call_function(argument.target, (_input(_input(argument)), *argument.args[1:]))
        view.meta = argument.meta
        return view
    return None


def _is_negation(argument: object) -> bool:
    """True for a node that negates floats."""
    if not isinstance(argument, fx.Node) or argument.target is not _aten.neg.default:
        return False
    return bool(argument.meta["val"].is_floating_point())


def _input_with_same_values(node: fx.Node) -> fx.Node | None:
    """Return the input that has the values of an operation's result, if it also has its form; or None."""
    target: Any = node.target
    arguments: Any = node.args
    same: fx.Node | None = None
    if target in _VIEWS:
        same = _input(node)
    elif target in _UNDONE and _input(node).target is _UNDONE[target]:
        same = _input(_input(node))
    elif target in (_aten.mul.Tensor, _aten.mul.Scalar, _aten.div.Tensor, _aten.pow.Tensor_Scalar):
        same = _input(node) if _is_one(arguments[1]) else None
    elif target is _aten.add.Tensor and _is_one(node.kwargs.get("alpha", 1)):
        first, second = arguments
        if isinstance(second, fx.Node):
            same = second if first.target in _ZEROS else first if second.target in _ZEROS else None
    elif target is _aten.cat.default and len(arguments[0]) == 1:
        same = arguments[0][0]
    elif target is _aten.sum.dim_IntList and _keeps_dims(node):
        same = _input(node)  # of the same form if all dimensions that are summed over have one entry
    return same


def _form(module: fx.GraphModule, node: fx.Node) -> tuple[object, ...]:
    """Data type and shape of a tensor, with symbols by their names; unique to the node if it is none."""
    value = getattr(module, str(node.target)) if node.op == "get_attr" else node.meta.get("val")
    if not isinstance(value, Tensor):
        return (node,)
    return value.dtype, tuple(map(str, value.shape))


def _is_one(argument: object) -> bool:
    """True for the number 1."""
    return isinstance(argument, int | float) and argument == 1


def _keeps_dims(node: fx.Node) -> bool:
    """True if a sum keeps the dimensions that it adds up."""
    return len(node.args) > 2 and bool(node.args[2])


def _adds_up_nothing(node: fx.Node) -> bool:
    """True if each dimension that a sum adds up has one entry, and the data type stays the same."""
    before, after = _input(node).meta.get("val"), node.meta["val"]
    dims: Any = node.args[1]
    if before is None or before.dtype != after.dtype or not dims:
        return False
    return all(str(before.shape[dim]) == "1" for dim in dims)


def _replace_by_view(module: fx.GraphModule, node: fx.Node, target: OpOverload, *arguments: Any) -> None:
    """Replace an operation by one without arithmetic, or by nothing if that has no effect either."""
    with module.graph.inserting_before(node):
        view = module.graph.call_function(target, arguments)
    view.meta = node.meta
    node.replace_all_uses_with(view)
    module.graph.erase_node(node)
    _simplify(module, view)


# ---------------------------------------------------------------------------------------- duplicates and constants


def _merge(module: fx.GraphModule, operations: Sequence[fx.Node], arguments: Sequence[Tensor]) -> None:
    """Merge duplicate operations, and replace those that depend on shapes only by constants."""
    graph = module.graph
    seen = dict[Any, fx.Node]()
    constants = dict[fx.Node, None]()
    for node in operations:
        target: Any = node.target
        if torch.Tag.nondeterministic_seeded in target.tags or "empty" in target._schema.name:
            continue
        known = seen.setdefault((target, str(node.args), str(node.kwargs)), node)
        if known is not node:
            node.replace_all_uses_with(known)
            graph.erase_node(node)
            continue
        depends_on_shape = target.overloadpacket in _BY_SHAPE and has_fixed_shape(node)
        if depends_on_shape or constants.keys() >= set(node.all_input_nodes):
            constants[node] = None
    read = [node for node in constants if node.users.keys() - constants.keys()]
    interpreter = _Constants(module, read)
    with torch.no_grad():
        interpreter.run(*arguments)
    for index, (node, value) in enumerate(interpreter.values.items()):
        if isinstance(value, Tensor):
            module.register_buffer(f"constant_{index}", value)
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(f"constant_{index}"))


class _Constants(fx.Interpreter):
    """Interpreter of a graph that keeps the results of some operations.

    Args:
        module: The graph.
        kept: The operations.

    Attributes:
        values: Result of each.
    """

    def __init__(self, module: fx.GraphModule, kept: Iterable[fx.Node]) -> None:
        super().__init__(module)
        self._kept = set(kept)
        self.values: dict[fx.Node, Any] = {}

    def run_node(self, node: fx.Node) -> Any:
        """Run a node of the graph."""
        value = super().run_node(node)
        if node in self._kept:
            self.values[node] = value
        return value


def has_fixed_shape(node: fx.Node) -> bool:
    """True if an operation has one result, whose shape has no symbols."""
    value = node.meta.get("val")
    return isinstance(value, Tensor) and all(isinstance(size, int) for size in value.shape)
