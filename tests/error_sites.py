"""Finds the texts of all errors that the source raises on purpose, as templates with ``…`` for what is filled in."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import neo

GAP = "…"
SOURCE = Path(neo.__file__ or "").parent
NOT_FOR_USERS = ("testing",)
_FEWEST_LETTERS = 6  # fewer are punctuation around texts that are made elsewhere


@dataclass(frozen=True)
class ErrorSite:
    """One place that makes an error.

    Attributes:
        place: File and line.
        kind: The error's class, or ``Finding``.
        text: Its message with ``…`` for what is filled in.
    """

    place: str
    kind: str
    text: str


def error_sites(source: Path = SOURCE) -> list[ErrorSite]:
    """Return every error with a text of its own."""
    found = []
    for path in sorted(source.rglob("*.py")):
        if not set(path.relative_to(source).parts) & set(NOT_FOR_USERS):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += list(sites_of(tree, str(path.relative_to(source))))
    return found


def sites_of(tree: ast.Module, file: str) -> Iterator[ErrorSite]:
    """Return the errors of one module."""
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef):
            continue
        texts = _assigned_texts(scope)
        for node in ast.walk(scope):
            if not isinstance(node, ast.Call):
                continue
            kind = _name(node.func)
            position = 1 if kind == "Finding" else 0
            if (kind == "Finding" or kind.endswith("Error")) and len(node.args) > position:
                for text in _texts(node.args[position], texts):
                    if sum(letter.isalpha() for letter in text) >= _FEWEST_LETTERS:
                        yield ErrorSite(f"{file}:{node.lineno}", kind, " ".join(text.split()))


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def _assigned_texts(scope: ast.FunctionDef) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            texts.setdefault(node.targets[0].id, []).extend(_texts(node.value, {}))
    return texts


def _texts(node: ast.expr, names: dict[str, list[str]]) -> list[str]:
    """Return the templates that an expression can become."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(part.value) if isinstance(part, ast.Constant) else GAP for part in node.values)]
    if isinstance(node, ast.BinOp):
        sides = [_texts(side, names) or [GAP] for side in (node.left, node.right)]
        return [left + right for left in sides[0] for right in sides[1]]
    if isinstance(node, ast.IfExp):
        return _texts(node.body, names) + _texts(node.orelse, names)
    return names.get(node.id, []) if isinstance(node, ast.Name) else []
