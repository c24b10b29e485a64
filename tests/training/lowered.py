"""What a lowered program (StableHLO text) does, and what would be slow or wrong in it.

Every check takes the operations of a program and returns sentences: none if all is
well.
"""

import math
import re
from typing import NamedTuple

HOST = re.compile(r"callback|infeed|outfeed|send|recv", re.IGNORECASE)
WIDE = ("f64", "complex<f64>")
LONG = ("i64", "ui64")

_FUNCTION = re.compile(r"func\.func (?:public |private )?@(\w+)")
_CALL = re.compile(r"\b(?:func\.)?call @(\w+)")
_NAME = re.compile(r'(?:^|= )"?((?:stablehlo|mhlo|chlo|tpu|sdy)\.\w+|return\b)')
_PLACE = re.compile(r" loc\((?:#\w+|unknown)\)$")
_RESULT = re.compile(r"^(%\w+)(?::\d+)? = ")
_TENSOR = re.compile(r"tensor<((?:\d+x)*)([\w<>]+?)>(?=[\s,)>]|$)")
# Attributes (groups of devices, say) have types too, and are not computed.
_ATTRIBUTES = re.compile(r"dense<[^>]*> : tensor<[^>]*>")


class Operation(NamedTuple):
    function: str
    name: str  # "stablehlo.add"; "call" for a call of another function
    text: str  # its first line, and the last one if it has regions
    loops: int  # loops around it, also those around calls of its function
    blocks: tuple[int, ...] = ()  # lines that open the blocks around it

    @property
    def result(self):
        """Its name in the function, if it has one."""
        found = _RESULT.match(self.text)
        return found and found.group(1)

    @property
    def tensors(self):
        """(elements, type of an element) of each tensor that it takes or makes."""
        computed = self.text
        if self.name != "stablehlo.constant":
            computed = _ATTRIBUTES.sub("", computed)
        return [
            (math.prod(int(size) for size in shape.split("x")[:-1]), element)
            for shape, element in _TENSOR.findall(computed)
        ]

    @property
    def largest(self):
        """Elements of its largest tensor."""
        return max((count for count, _ in self.tensors), default=0)

    def takes(self, other):
        """Whether the result of another operation is one of its operands."""
        if self.function != other.function or other.result is None:
            return False
        if self.blocks[: len(other.blocks)] != other.blocks:  # blocks reuse names
            return False
        after = self.text.split(" = ", 1)[-1]
        return re.search(rf"{other.result}\b", after) is not None


def operations(text):
    """All operations of a module, with the number of loops that each is in."""
    found, calls, blocks, function = [], [], [], ""
    for place, raw in enumerate(text.splitlines()):
        line = _PLACE.sub("", raw).strip()
        if line.startswith("}") and blocks:
            opener, _, _ = blocks.pop()
            if opener is not None:  # the types of an operation follow its regions
                found[opener] = found[opener]._replace(
                    text=found[opener].text + " " + line
                )
        if match := _FUNCTION.search(line):
            function = match.group(1)
        depth = sum(is_loop for _, is_loop, _ in blocks)
        number = None
        name, call = _NAME.search(line), _CALL.search(line)
        if name or call:
            number = len(found)
            kind = name.group(1) if name else "call"
            around = tuple(opened for _, _, opened in blocks)
            found.append(Operation(function, kind, line, depth, around))
        if call:
            calls.append((function, call.group(1), depth))
        if line.endswith("{"):
            is_loop = line == "} do {"
            if line.startswith("}, {"):  # the next region of the same operation
                number = opener
            blocks.append((number, is_loop, place))
    outer = _loops_around(calls)
    return [
        each._replace(loops=each.loops + outer.get(each.function, 0)) for each in found
    ]


def _loops_around(calls):
    """{function: loops around its deepest call}."""
    around = {}
    for _ in range(len(calls) + 1):
        before = dict(around)
        for caller, called, depth in calls:
            loops = around.get(caller, 0) + depth
            around[called] = max(around.get(called, 0), loops)
        if around == before:
            return around
    raise AssertionError("functions that call each other in a ring")


def host_traffic(found):
    """Operations that wait for the host."""
    told = []
    for each in found:
        target = re.search(r'custom_call"?\s*@([\w.]+)', each.text) or re.search(
            r'call_target_name = "([^"]*)"', each.text
        )
        called = target.group(1) if target else ""
        if HOST.search(each.name) or HOST.search(called):
            told.append(f"{each.name} {called} in {each.function}".strip())
    return told


def wide_numbers(found):
    """Double precision anywhere, and arrays of 64-bit integers."""
    return [
        f"{element} x {count} in {each.name} of {each.function}"
        for each in found
        for count, element in each.tensors
        if element in WIDE or (element in LONG and count > 1)
    ]


def large_transposes(found, limit, loops):
    """Transposes of more than `limit` elements inside so many loops.

    One that only matrix products take is none: they read it in its old order.
    """
    told = []
    for each in found:
        if each.name != "stablehlo.transpose" or each.loops < loops:
            continue
        users = [user for user in found if user.takes(each)]
        folded = users and all(user.name == "stablehlo.dot_general" for user in users)
        if each.largest > limit and not folded:
            told.append(f"{each.text} in {each.function}")
    return told


def large_sorts(found, limit, loops):
    """Sorts of more than `limit` elements, and any inside so many loops."""
    return [
        f"{each.text} in {each.function}"
        for each in found
        if each.name == "stablehlo.sort"
        and (each.largest > limit or each.loops >= loops)
    ]


def inner_loops(found, loops):
    """Loops inside so many loops: a GPU may ask the host whether to go on."""
    return [
        f"a loop in {each.function}"
        for each in found
        if each.name == "stablehlo.while" and each.loops >= loops
    ]


def rounded_products(found, shapes):
    """Matrix products with a result of one of these shapes not in full float32."""
    types = tuple(f"-> tensor<{'x'.join(map(str, shape))}xf32>" for shape in shapes)
    products = [
        each
        for each in found
        if each.name == "stablehlo.dot_general" and each.text.endswith(types)
    ]
    if not products:
        return ["no product has such a result"]
    exact = "precision = [HIGHEST, HIGHEST]"
    return [each.text for each in products if exact not in each.text]
