"""Small faults for the code: those of cosmic-ray that change what a function does."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.ast.ast_query import ASTQuery
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    Position = tuple[int, int]

ROOT = Path(__file__).parents[1]
EQUIVALENT = Path(__file__).with_name("mutation_equivalent.txt")
NUMBERS = {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"}
BITS = {"BitOr", "BitAnd", "BitXor"}
ORDER = {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"}
LEFT_OUT = {"ExceptionReplacer", "RemoveDecorator", "VariableReplacer", "VariableInserter"}


@dataclass(frozen=True)
class Mutant:
    """One change: *occurrence* of cosmic-ray's *operator* in *path*."""

    path: str
    line: int
    column: int
    function: str
    operator: str
    occurrence: int
    old: str = ""
    new: str = ""
    outcome: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.path, self.function, self.old, self.new


def mutants(path: str) -> Iterator[Mutant]:
    """Yield every mutant of a file, its lines not yet filled in."""
    source = (ROOT / path).read_text(encoding="utf-8")
    lines, tree, areas = source.split("\n"), get_ast(source), list(_areas(source))
    for name in filter(_is_sensible, operator_names()):
        operator = get_operator(name)()
        found = (
            (node, at) for node in ast_nodes(tree) for at, _ in operator.mutation_positions(node)
        )
        for occurrence, (node, (line, column)) in enumerate(found):
            at = (line, len(lines[line - 1][:column].encode()))
            if {may for may, start, stop in areas if start <= at < stop} == {True}:
                function = ASTQuery(node).get_definition_name() or ""
                yield Mutant(path, line, column, function, name, occurrence)


def mutated(mutant: Mutant) -> tuple[Mutant, str]:
    """Return a mutant with its old and new lines, and the changed file."""
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    code = mutate_code(source, get_operator(mutant.operator)(), mutant.occurrence) or source
    changes = [*unified_diff(source.split("\n"), code.split("\n"), n=0, lineterm="")][3:]
    old, new = (" ".join(t[1:].strip() for t in changes if t[0] == sign) for sign in "-+")
    return replace(mutant, old=old, new=new), code


def equivalents() -> dict[tuple[str, str, str, str], str]:
    """Return why each (path, function, old, new) changes nothing that anybody could see."""
    found = {}
    path = function = reason = old = ""
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("- "):
            old = line[2:]
        elif line.startswith("+ "):
            found[path, function, old, line[2:]] = reason
        elif line and not line.startswith("#"):
            place, _, reason = line.partition(": ")
            path, function = place.split()
    return found


def _is_sensible(name: str) -> bool:
    """Leave out what no test could miss: bits of floats, the identity of numbers."""
    kind, *ends = name.removeprefix("core/").split("_")
    if kind in LEFT_OUT or (kind == "ReplaceUnaryOperator" and "Invert" in ends):
        return False
    if kind == "ReplaceBinaryOperator":
        return set(ends) <= NUMBERS or set(ends) <= BITS
    return kind != "ReplaceComparisonOperator" or set(ends) <= ORDER or set(ends) == {"Is", "IsNot"}


def _areas(source: str) -> Iterator[tuple[bool, Position, Position]]:
    """Yield (may change, start, stop): function bodies, and the text and annotations in them."""
    for node in ast.walk(ast.parse(source)):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.FunctionDef):
            yield True, _start(node.body[0]), _stop(node.body[-1])
            parts = [arg.annotation for arg in ast.walk(node.args) if isinstance(arg, ast.arg)]
            parts.append(node.returns)
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            parts = [node]
        for part in parts:
            if part is not None:
                yield False, _start(part), _stop(part)


def _start(node: ast.expr | ast.stmt) -> Position:
    return node.lineno, node.col_offset


def _stop(node: ast.expr | ast.stmt) -> Position:
    return node.end_lineno or 0, node.end_col_offset or 0
