"""Run the lessons anew and store what they print: each ``notebooks/*.py`` becomes the ``.ipynb`` beside it.

Arguments are files in ``notebooks/``; without any they come from ``ARGS``, and without those it is every
lesson. The same sources give the same bytes: ids, counts and metadata are fixed, and times are left out.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "notebooks"
_CELL_SECONDS: Final = 120
_KERNEL: Final = {"display_name": "Python 3", "language": "python", "name": "python3"}


def main(arguments: list[str]) -> int:
    """Run the lessons that *arguments* name, and return 0, or 1 if one of them raised an error."""
    chosen = [Path(name) for name in arguments or shlex.split(os.environ.get("ARGS", ""))]
    for source in chosen or sorted(FOLDER.glob("[0-9]*.py")):
        began = time.monotonic()
        notebook = run(source.resolve())
        target = source.with_suffix(".ipynb")
        nbformat.write(notebook, target)  # type: ignore[no-untyped-call]
        print(f"{target.name}: {len(notebook.cells)} cells, {time.monotonic() - began:.1f} s", flush=True)
    return 0


def run(source: Path) -> Any:
    """Execute the lesson of the text file *source*, and return it as it is stored."""
    notebook = jupytext.read(source)
    with tempfile.TemporaryDirectory(prefix="autocode-ipython-") as profile:
        # a reader's own start-up files must not have a say in what is stored
        os.environ["IPYTHONDIR"] = profile
        NotebookClient(
            notebook, timeout=_CELL_SECONDS, kernel_name="python3", resources=_at(source)
        ).execute()
    return normal(notebook)


def normal(notebook: Any) -> Any:
    """Return *notebook* with all fixed that isn't the lesson's: ids, counts, metadata of the machine."""
    count = 0
    for number, cell in enumerate(notebook.cells, 1):
        cell.id = f"cell-{number:02}"
        cell.metadata = _kept(cell.metadata)
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = _joined(cell.outputs)
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = count
    notebook.metadata = _node({"jupytext": {"formats": "ipynb,py:percent"}, "kernelspec": _KERNEL})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    nbformat.validate(notebook)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Join neighbouring pieces of one stream: how the kernel cut them depends on the clock."""
    joined: list[Any] = []
    for output in outputs:
        last = joined[-1] if joined else None
        if (
            last is not None
            and output.output_type == last.output_type == "stream"
            and output.name == last.name
        ):
            last.text += output.text
        else:
            joined.append(output)
    return joined


def _kept(metadata: Any) -> Any:
    return _node({name: metadata[name] for name in ("jupyter", "tags") if name in metadata})


def _node(fields: dict[str, Any]) -> Any:
    return NotebookNode(fields)  # type: ignore[no-untyped-call]


def _at(source: Path) -> dict[str, Any]:
    return {"metadata": {"path": str(source.parent)}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
