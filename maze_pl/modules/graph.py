"""What is left out of a recorded graph of tensor operations before it is replayed.

Autograd writes down much that does nothing, such as multiplications by 1, or that gives the same each time, such as the
gradient that it starts with. For small networks an operation costs about the same whatever it computes.
"""

import operator
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, fx

_aten = torch.ops.aten


def simplified(module: fx.GraphModule, arguments: Sequence[Tensor]) -> fx.GraphModule:
    """Without operations that do nothing or give constants, views computed once, in the form that TorchScript takes."""
    graph = module.graph
    for node in list(graph.nodes):
        if node.target in (_aten.detach.default, _aten.alias.default):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif node.target is _aten.t.default and node.args[0].target is _aten.t.default:
            node.replace_all_uses_with(node.args[0].args[0])
            graph.erase_node(node)
        elif node.target is _aten.view.default and node.args[0].target is _aten.view.default:
            node.args = (node.args[0].args[0], *node.args[1:])
    _fold_constants(module, arguments)
    seen: dict[Any, fx.Node] = {}
    changing = {_origin(written) for node in graph.nodes for written in _written(node)}
    for node in list(graph.nodes):
        if _is_function(node) and not changing & {_origin(item) for item in (node, *node.all_input_nodes)}:
            key = (node.target, str(node.args), str(node.kwargs))
            if key in seen:
                node.replace_all_uses_with(seen[key])
                graph.erase_node(node)
            else:
                seen[key] = node
    graph.eliminate_dead_code(lambda node: node.op in ("placeholder", "output") or bool(_written(node)))
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is _aten._to_copy.default:
            node.target, node.args = _aten.to.dtype, (node.args[0], node.kwargs["dtype"])
            node.kwargs = {name: value for name, value in node.kwargs.items() if name == "memory_format"}
        node.kwargs = {name: value for name, value in node.kwargs.items() if name not in _PLACEMENT}
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = node.target.overloadpacket
    module.recompile()
    return module


def check_shapes_are_fixed(module: fx.GraphModule) -> None:
    """Refuse operations whose outputs have other shapes for other values, since shapes are baked into a record.

    Raises:
        ValueError: There is one; the message names it.
    """
    for node in module.graph.nodes:
        if torch.Tag.dynamic_output_shape not in getattr(node.target, "tags", ()):
            continue
        masks = [item for item in node.args[1] if item is not None] if node.target is _aten.index.Tensor else []
        if not masks or any(item.meta["tensor_meta"].dtype in (torch.bool, torch.uint8) for item in masks):
            raise ValueError(f"the shape of what {node.target} gives depends on values")


def _fold_constants(module: fx.GraphModule, arguments: Sequence[Tensor]) -> None:
    """Compute once what depends on shapes only, and leave out multiplications by 1 and additions of 0."""
    graph = module.graph
    changing = {_origin(written) for node in graph.nodes for written in _written(node)}
    operations = [node for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    interpreter = fx.Interpreter(module, garbage_collect_values=False)
    with torch.no_grad():
        interpreter.run(*arguments)
    values = interpreter.env
    constants: dict[fx.Node, None] = {}  # in the graph's order
    for node in operations:
        if not isinstance(values[node], Tensor) or _written(node) or _origin(node) in changing:
            continue
        by_shape = node.target.overloadpacket in _BY_SHAPE
        if by_shape or not (_any_value(node.target) or set(node.all_input_nodes) - constants.keys()):
            constants[node] = None
        elif (kept := _unchanged(node, values, constants)) is not None and _origin(kept) not in changing:
            node.replace_all_uses_with(kept)
    for index, node in enumerate(constants):
        if node.users.keys() - constants.keys():
            name = f"constant_{index}"
            module.register_buffer(name, values[node])
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.get_attr(name))


def _unchanged(node: fx.Node, values: dict[fx.Node, Any], constants: Collection[fx.Node]) -> fx.Node | None:
    """The operand that an operation gives back as it is."""

    def equals(operand: Any, number: float) -> bool:
        if isinstance(operand, fx.Node):
            return operand in constants and bool((values[operand] == number).all())
        return bool(operand == number)

    if node.target not in _NEUTRAL or node.kwargs.get("alpha", 1) != 1:
        return None
    number, commutes = _NEUTRAL[node.target]
    for kept, other in ((0, 1), (1, 0))[: 1 + commutes]:
        operand = node.args[kept]
        if isinstance(operand, fx.Node) and equals(node.args[other], number):
            same, value = values[operand], values[node]
            return operand if (same.shape, same.dtype) == (value.shape, value.dtype) else None
    return None


def _written(node: fx.Node) -> list[fx.Node]:
    """What an operation changes in place."""
    written: list[Any] = []
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    for index, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            written += value if isinstance(value, list | tuple) else [value]
    return [value for value in written if isinstance(value, fx.Node)]


def _origin(node: fx.Node) -> fx.Node:
    """What a node is a view of, or wrote to."""
    while True:
        operation = node.target
        if written := _written(node):
            node = written[0]
        elif operation is operator.getitem or (isinstance(operation, torch._ops.OpOverload) and operation.is_view):
            node = node.all_input_nodes[0]
        else:
            return node


def _is_function(node: fx.Node) -> bool:
    """Whether an operation gives the same whenever it is given the same, and changes nothing."""
    return isinstance(node.target, torch._ops.OpOverload) and not _written(node) and not _any_value(node.target)


def _any_value(target: torch._ops.OpOverload) -> bool:
    """Whether an operation draws random numbers or leaves memory as it finds it."""
    return torch.Tag.nondeterministic_seeded in target.tags or "empty" in target._schema.name


_BY_SHAPE = (_aten.ones_like, _aten.zeros_like, _aten.full_like, _aten.new_zeros, _aten.new_ones, _aten.new_full)
_NEUTRAL = {
    _aten.mul.Tensor: (1.0, True),
    _aten.div.Tensor: (1.0, False),
    _aten.add.Tensor: (0.0, True),
    _aten.sub.Tensor: (0.0, False),
    _aten.pow.Tensor_Scalar: (1.0, False),
}
"""The second operand with which an operation does nothing, and whether it may also be the first."""

_PLACEMENT = ("device", "pin_memory", "layout")  # all on the CPU, where this is used
