"""Read one YAML 1.2 document safely: plain values, the line of every field, and readable errors.

Mapping keys are always text, as written: a column called ``2019`` or ``no`` needs no quotation marks.  A number with a
leading zero is refused, because YAML would drop the zero of a code like 02134.  But a listed value, or a cell of a
lookup, like 00708, which YAML 1.1 reads as text, is text.  A merge (`<<: *NAME`) adds another mapping's fields.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from privsyn.base.errors import RequestError
from privsyn.base.wording import Text, refer_to_action
from privsyn.data_contracts.unicode import is_unicode

MAX_BYTES = 20_000_000
MAX_DEPTH = 20
MAX_FIELDS = 5_000
"""Largest number of fields of one mapping: the largest number of columns of a spec (data_contracts/release_spec.py)."""
MAX_NODES = 1_200_000
"""Largest number of values in a document: enough for the longest list of categories."""
MAX_REPEATED = 300_000
"""Largest number of values repeated by aliases: enough to share a value list, too few for a YAML bomb."""

DRAFT = refer_to_action("draft_spec")
"""The action that writes a first release spec, for cures."""

Path = tuple[str | int, ...]
"""Path of a value in a document: mapping keys and list positions from the top."""

_TAG = "tag:yaml.org,2002:"
_PLAIN = {_TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp")}
_ZERO_LED = re.compile(r"[-+]?0[0-9_]+(\.[0-9_]*)?")

_TEXT_LISTS = (("values",), ("null_values",))
"""Lists whose items may be text of digits."""

_LOOKUP_ROWS = ("lookup", "rows")
"""Place of a lookup's rows, whose cells may also be text of digits."""

_TEXT_OF_YAML_1_1 = re.compile(r"0[0-9]*[89][0-9]*")
"""Digits that YAML 1.1 reads as text, since they are not octal; programs for YAML 1.1 write such text unquoted."""


@dataclass(frozen=True)
class Document:
    """A parsed document: its top-level mapping and the line (from 1) of each key and list item."""

    content: dict[str, Any]
    lines: dict[Path, int]

    def line_of(self, place: Path) -> int | None:
        """Return the line of a value, or of the innermost mapping or list around it with a line; None without."""
        return next((self.lines[place[:n]] for n in range(len(place), 0, -1) if place[:n] in self.lines), None)


def read_yaml(path: FilePath, example: Text = DRAFT) -> Document:
    """Read the mapping in the YAML file ``path``; RequestError names the file, the line and the cure.

    ``example``: the action that writes a valid file, for the cure.
    """
    return parse_yaml(_read_text(path, example), path.name, example)


def parse_yaml(text: str, name: str, example: Text = DRAFT) -> Document:
    """Parse ``text``; ``name``: the file's name in errors (RequestError); ``example``: see :func:`read_yaml`."""
    if re.search(r"^%YAML\s+1\.[01]", text, re.MULTILINE):
        raise RequestError(f"{name} asks for an old YAML version, in which `no` means false", "Remove the %YAML line")
    yaml = YAML(typ="safe", pure=True)
    yaml.version, yaml.Composer = (1, 2), _Composer
    try:
        node = yaml.compose(text)
        builder = _Builder(yaml, name)
        if node is not None:
            sizes: dict[int, int] = {}
            if _measure_size(node, sizes) - len(sizes) > MAX_REPEATED:
                raise RequestError(f"{name} repeats more than {MAX_REPEATED:,} values by aliases", "Use fewer aliases")
        content = {} if node is None else builder.build(node, ())
    except YAMLError as error:
        raise _make_syntax_error(error, name) from None
    except (RecursionError, _TooDeepError):
        raise _make_depth_error(name) from None
    except _TooLargeError as error:
        raise RequestError(f"{name}{error}", "Check that it is the file you meant") from None
    except (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError):  # bugs of the parser
        raise RequestError(f"{name} is not valid YAML", "Compare it with " + example) from None
    if not isinstance(content, dict):
        raise RequestError(
            f"{name} holds no fields: its top level must be `field: value` lines", "Start from " + example
        )
    if not content:
        raise RequestError(f"{name} is empty", "Start from " + example)
    return Document(content, builder.lines)


def _read_text(path: FilePath, example: Text) -> str:
    shown = str(path)[:300]
    try:
        if path.is_dir():
            raise RequestError(f"{shown} is a folder, not a file", "Name the YAML file itself")
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device may have no end
            raise RequestError(f"{shown} is not a regular file", "Save the YAML in a file and name that")
        if path.stat().st_size > MAX_BYTES:
            raise RequestError(f"{shown} is larger than {MAX_BYTES // 10**6} MB", "Check that it is the file you meant")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise RequestError(f"there is no file {shown}", "Check the path, or start from " + example) from None
    except UnicodeDecodeError:
        raise RequestError(f"{shown} is not UTF-8 text", "Save it as UTF-8") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "the path is not valid"
        raise RequestError(f"{shown} cannot be read: {reason}", "Check the path and its permissions") from None


def _make_syntax_error(error: YAMLError, name: str) -> RequestError:
    if isinstance(error, MarkedYAMLError) and error.problem:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        problem = " ".join(str(error.problem).split())[:200]
        return RequestError(
            f"{name}{line} is not valid YAML: {problem}",
            "Check indentation (spaces, no tabs) and put quotation marks around text with `: `, `#`, "
            "brackets, or a first character like * & ! % @",
        )
    return RequestError(f"{name} holds characters that YAML does not allow", "Save it as plain UTF-8 text")


def _make_depth_error(name: str) -> RequestError:
    return RequestError(f"{name} is nested too deeply", "Check brackets and indentation")


class _TooDeepError(Exception):
    """Lists and mappings are nested beyond MAX_DEPTH."""


class _TooLargeError(Exception):
    """The document has too many fields or values; the text says where and how many."""


class _Composer(Composer):
    """ruamel's composer with limits on depth and size; the original is limited only by time and memory."""

    def __init__(self, loader: Any = None) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False
        self.nodes, self.levels = 0, 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return one node.  Raises _TooDeepError or _TooLargeError beyond the limits."""
        if self.levels > MAX_DEPTH:
            raise _TooDeepError
        if isinstance(parent, MappingNode) and len(parent.value) > MAX_FIELDS:
            raise _TooLargeError(f", line {_get_line(parent)} begins a mapping of more than {MAX_FIELDS:,} fields")
        if self.nodes >= MAX_NODES:
            raise _TooLargeError(f" holds more than {MAX_NODES:,} values")
        self.nodes += 1
        self.levels += 1
        node = super().compose_node(parent, index)
        self.levels -= 1
        return node


def _measure_size(node: Node, sizes: dict[int, int]) -> int:
    """Return the number of values of a node with its aliases expanded; memoize each node in ``sizes``."""
    if id(node) not in sizes:
        sizes[id(node)] = -1
        parts = [] if isinstance(node, ScalarNode) else node.value
        inner = [part for pair in parts for part in pair] if isinstance(node, MappingNode) else parts
        sizes[id(node)] = 1 + sum(_measure_size(part, sizes) for part in inner)
    if sizes[id(node)] < 0:  # it holds itself
        raise _TooDeepError
    return sizes[id(node)]


@dataclass
class _Builder:
    """Builds plain values from a node graph."""

    yaml: YAML
    name: str
    lines: dict[Path, int] = field(default_factory=dict)

    def build(self, node: Node, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            raise _make_depth_error(self.name)
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._build_mapping(node, path)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return [self._build_item(item, (*path, i)) for i, item in enumerate(node.value)]
        if isinstance(node, ScalarNode) and node.tag in _PLAIN:
            return self._build_scalar(node, path)
        raise self._make_error(node, "a tag (a word that starts with !) that a spec cannot hold", "Remove it")

    def _build_item(self, node: Node, path: Path) -> Any:
        self.lines[path] = _get_line(node)
        return self.build(node, path)

    def _build_mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        merged = self._build_merged(node, path)  # first, so that the lines of the mapping's own fields stay
        for key_node, value_node in node.value:
            if not isinstance(key_node, ScalarNode):
                raise self._make_error(key_node, "a field name that is a list or mapping", "Write it as plain text")
            key = self._join_surrogates(key_node, key_node.value)
            place = (*path, key)
            if key in result:
                raise self._make_error(
                    key_node,
                    f"`{key[:80]}` for the second time (first on line {self.lines[place]})",
                    "Remove one of the two",
                )
            self.lines[place] = _get_line(key_node)
            result[key] = None if _is_merge(key_node) else self.build(value_node, place)
        if not any(isinstance(key_node, ScalarNode) and _is_merge(key_node) for key_node, _ in node.value):
            return result
        del result["<<"]
        return {**merged, **result}

    def _build_merged(self, node: MappingNode, path: Path) -> dict[str, Any]:
        """Return the fields added by a merge (`<<`); the first of several mappings wins."""
        fields: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not (isinstance(key_node, ScalarNode) and _is_merge(key_node)):
                continue
            sources = value_node.value if isinstance(value_node, SequenceNode) else [value_node]
            for source in reversed(sources):
                if not isinstance(source, MappingNode):
                    raise self._make_error(
                        key_node,
                        "a merge (`<<`) of something that is not a mapping",
                        "Write `<<: *NAME`, and mark the merged mapping with `&NAME`",
                    )
                fields |= self.build(source, path)
        return fields

    def _build_scalar(self, node: ScalarNode, path: Path) -> Any:
        may_be_text = path[-2:-1] in _TEXT_LISTS or path[-4:-2] == _LOOKUP_ROWS
        if may_be_text and node.tag == _TAG + "int" and _TEXT_OF_YAML_1_1.fullmatch(node.value):
            return node.value
        if node.tag in (_TAG + "int", _TAG + "float") and _ZERO_LED.fullmatch(node.value):
            raise self._make_error(
                node,
                f"{node.value[:40]}, a number with a leading zero",
                "Put quotation marks around it if it is a code, or leave the zero out",
            )
        try:
            value = self.yaml.constructor.construct_object(node)
            return self._join_surrogates(node, value) if isinstance(value, str) else value
        except ValueError:
            raise self._make_error(
                node,
                f"{node.value[:40]!r}, which looks like a date or number but is neither",
                "Correct it, or put quotation marks around it if it is text",
            ) from None

    def _join_surrogates(self, node: ScalarNode, text: str) -> str:
        """Return the text with each surrogate pair, JSON's escape of an emoji, joined into one character."""
        if is_unicode(text):
            return text
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        if not is_unicode(joined):
            raise self._make_error(node, "half of a character (a lone surrogate)", "Write the whole character")
        return joined

    def _make_error(self, node: Node, problem: str, cure: str) -> RequestError:
        return RequestError(f"{self.name}, line {_get_line(node)} has {problem}", cure)


def _is_merge(key: ScalarNode) -> bool:
    return bool(key.value == "<<" and not key.style)


def _get_line(node: Node) -> int:
    return int(node.start_mark.line) + 1
