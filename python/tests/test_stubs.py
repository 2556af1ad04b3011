"""The stub says what the extension has."""

import ast
import pathlib

import crosswarp
from crosswarp import _crosswarp


def declared(body):
    names = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = set(declared(node.body))
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = None
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = None
    return names


def test_the_stub_has_every_name_and_no_other():
    stub = pathlib.Path(crosswarp.__file__).with_name("_crosswarp.pyi")
    said = declared(ast.parse(stub.read_text()).body)
    assert set(said) - {"__version__"} == {n for n in dir(_crosswarp) if not n.startswith("_")}
    for name, members in said.items():
        if members and name != "Error":
            assert members - {"__init__"} == {
                n for n in dir(getattr(_crosswarp, name)) if not n.startswith("_")
            }


def test_the_package_is_typed():
    assert pathlib.Path(crosswarp.__file__).with_name("py.typed").exists()
