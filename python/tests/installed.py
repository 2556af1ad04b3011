"""The package as it is installed, away from the build tree: `installed.py CMAKE BUILD_TREE SOURCE_TREE`."""

import pathlib
import re
import subprocess
import sys
import tempfile

USE = """
import pathlib, sys
prefix, build = sys.argv[1:]
sys.path.insert(0, prefix)
import crosswarp
assert pathlib.Path(crosswarp.__file__).is_relative_to(prefix), crosswarp.__file__
import numpy as np
got = crosswarp.run(2, lambda w: crosswarp.Coll(w).all_reduce(np.ones(3))[0], device="cpu")
assert got == [2, 2], got
# Nothing of the build tree is loaded, which a user does not have.
here = [line for line in open("/proc/self/maps") if f"{build}/" in line and sys.prefix not in line]
assert not here, here
print(crosswarp.__version__)
"""


def main(cmake, build, source):
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run(
            [cmake, "--install", build, "--component", "python", "--prefix", prefix],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        check_files(pathlib.Path(prefix), source / "python" / "crosswarp")
        # -I: with nobody's PYTHONPATH.
        used = subprocess.run(
            [sys.executable, "-I", "-c", USE, prefix, build],
            cwd=prefix,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
    project = (source / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.*)"', project, re.MULTILINE)[1]
    if used.stdout.strip() != version:
        sys.exit(f"the extension is {used.stdout.strip()}, pyproject.toml says {version}")


def check_files(prefix, sources):
    wanted = {f.name for f in sources.iterdir() if f.suffix in (".py", ".pyi", ".typed")}
    found = {str(f.relative_to(prefix / "crosswarp")) for f in prefix.rglob("*") if f.is_file()}
    extension = {f for f in found if re.fullmatch(r"_crosswarp\..*so", f)}
    if len(extension) != 1 or found - extension != wanted:
        sys.exit(f"installed are {sorted(found)}, not {sorted(wanted)} and an extension")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]))
