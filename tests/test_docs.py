"""Documents that a machine keeps true: the folders of ARCHITECTURE.md, the flaws, places, links, words."""

from __future__ import annotations

import ast
import io
import re
import shlex
import tokenize
from functools import cache
from pathlib import Path
from typing import TypeGuard

from checkers.models import MODELS
from cluster.flaws import FLAWS
from tests.support.known_runs import flawed_options

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("harness", "cluster", "nemesis", "workloads", "checkers", "results", "assay", "bench")
DESIGN = ROOT / "docs" / "design"
MECHANISM = re.compile(r"\b[GMRQ][1-9][0-9]?\b")
CITED = re.compile(r"`([a-z_]+(?:\.[A-Za-z_]+)+)(?:\([^`]*)?`")
MECHANISMS_NAMED_IN = ("cluster", "harness", "nemesis", "assay", "tests/cluster", "tests/harness", "tests/nemesis")
"""Elsewhere such names are of phenomena: G0, G1a and G2 are Adya's."""
PLACE = re.compile(r"`([^`]+)`")


@cache
def first_sentence(path: Path) -> str:
    text = path.read_text()
    opened = text.startswith('"""') and text.find('"""', 3)
    head = text[: opened + 3] if opened and opened > 0 else text  # to read no more of it than is asked for
    text = " ".join((ast.get_docstring(ast.parse(head)) or "").split())
    return re.split(r"(?<=[.:])\s", text)[0].rstrip(".:")


def test_every_folder_with_code_has_its_line_and_no_other() -> None:
    _, _, table = (ROOT / "ARCHITECTURE.md").read_text().partition("## Every folder in a line")
    told = [name for line in table.splitlines() if line.startswith("| `") for name in PLACE.findall(line.split("|")[1])]
    folders = {path.parent.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    beside = ("tests", "tests/support", "tests/corpus", "docs/design", "docs/decisions", ".ci")
    assert sorted(told) == sorted(f"{name}/" for name in (*map(str, folders), *beside))


def test_every_module_says_what_it_is() -> None:
    silent = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if not first_sentence(path)]
    assert silent == []


def remarks(path: Path, mark: str) -> str:
    """Comments and docstrings of a module, those of its constants included; nothing if a pattern is nowhere in it."""
    text = path.read_text()
    if not re.search(mark, text):
        return ""
    strings = (node.value.value for node in ast.walk(ast.parse(text)) if is_string(node))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = (token.string for token in tokens if token.type == tokenize.COMMENT)
    return "\n".join([*strings, *comments])


def is_string(node: ast.AST) -> TypeGuard[ast.Expr]:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def mechanisms() -> dict[str, tuple[str, ...]]:
    """The rows of docs/design/mechanisms.md: (promise, source, where) by id."""
    rows = [line.strip("| ").split(" | ") for line in (DESIGN / "mechanisms.md").read_text().splitlines()]
    return {row[0]: tuple(row[1:]) for row in rows if MECHANISM.fullmatch(row[0])}


def test_every_mechanism_named_in_the_code_has_its_entry() -> None:
    known = mechanisms()
    named = {
        (name, path.relative_to(ROOT).as_posix())
        for package in MECHANISMS_NAMED_IN
        for path in sorted((ROOT / package).rglob("*.py"))
        for name in MECHANISM.findall(remarks(path, MECHANISM.pattern))
    }
    assert len(named) > 50
    assert sorted((name, path) for name, path in named if name not in known) == []


def test_entries_of_mechanisms_are_whole_and_lead_somewhere() -> None:
    known = mechanisms()
    expected = {"G": 10, "M": 14, "R": 10, "Q": 12}
    assert list(known) == [f"{letter}{number}" for letter, count in expected.items() for number in range(1, count + 1)]
    for name, row in known.items():
        assert len(row) == 3 and all(row), name
        places = re.findall(r"`([^`]+)`", row[2])
        assert places or row[2] == "not built yet", name
        assert [place for place in places if not (ROOT / place).exists()] == [], name


def test_places_that_design_pages_name_exist() -> None:
    for page in sorted(DESIGN.glob("*.md")):
        places = re.findall(r"`((?:cluster|harness|nemesis|assay|tests)/[^`]+)`", page.read_text())
        assert [place for place in places if not (ROOT / place.partition("::")[0]).exists()] == [], page.name


def test_documents_and_sections_that_the_code_names_exist() -> None:
    documents = {path.name: path for folder in (ROOT, ROOT / "docs", DESIGN) for path in folder.glob("*.md")}
    for package in (*PACKAGES, "tests"):
        for path in sorted((ROOT / package).rglob("*.py")):
            named = re.findall(r"`([\w./-]+\.md)`(?:, \"([^\"]+)\")?", " ".join(remarks(path, r"\.md`").split()))
            for document, section in named:
                assert document in documents or (ROOT / document).exists(), f"{path}: {document}"
                text = documents.get(document, ROOT / document).read_text()
                assert not section or f"# {section}" in text, f"{path}: {document}, {section}"


def documents() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), ROOT / "tests" / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def anchors(path: Path) -> set[str]:
    """Headings as links name them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_of_documents_lead_somewhere() -> None:
    links = [
        (path, *target.partition("#")[::2])
        for path in documents()
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.S))
        if "://" not in target
    ]
    assert len(links) > 40
    lost = [
        f"{path.relative_to(ROOT)}: {place}#{section}"
        for path, place, section in links
        if not (at := path.parent / place if place else path).exists() or (section and section not in anchors(at))
    ]
    assert lost == []


def test_places_that_documents_name_exist() -> None:
    folders = "|".join((*PACKAGES, "tests", "docs"))
    lost = [
        f"{path.relative_to(ROOT)}: {place}"
        for path in documents()
        for place in re.findall(rf"`((?:{folders})/[\w./*-]+)(?:::\w+)?`", path.read_text())
        if not any(ROOT.glob(place.rstrip("/")))
    ]
    assert lost == []


@cache
def names_in(path: Path) -> set[str]:
    """What a module's code says by name."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.arg | ast.Attribute):
            names.add(node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else node.attr)
    return names


def test_places_in_the_code_that_checkers_cite_exist() -> None:
    """`room.module` and `module.name` lead somewhere; Jepsen's own namespaces are elsewhere."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in paths}

    def leads_somewhere(cited: str) -> bool:
        parts = cited.split(".")
        return any(
            f".{module}".endswith("." + ".".join(parts[:count]))
            and (count == len(parts) or parts[count] in names_in(path))
            for count in range(1, len(parts) + 1)
            for module, path in modules.items()
        )

    lost = [
        f"{module}: {cited}"
        for module, path in modules.items()
        if module.startswith("checkers.")
        for cited in CITED.findall(remarks(path, CITED.pattern))
        if cited.split(".")[0] not in names_in(path) and not cited.startswith("jepsen.") and not leads_somewhere(cited)
    ]
    assert lost == []
    assert leads_somewhere("registers.register_zones") and not leads_somewhere("kernels.zones")


def test_the_page_on_invariants_names_each_of_them() -> None:
    text = (DESIGN / "invariants.md").read_text()
    named = [
        node.value.value
        for path in sorted((ROOT / "cluster" / "invariants").glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    assert len(named) >= 14
    assert [name for name in named if f"| `{name}` |" not in text] == []


def rows_of(path: Path) -> dict[str, list[str]]:
    """The rows of a document's tables whose first cell is a name in code style, by that name."""
    rows = [line.strip("| ").split(" | ") for line in path.read_text().splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in reversed(rows)}  # of two of one name the first


def test_track_record_names_every_flaw_and_its_command() -> None:
    from tests.assay.test_campaigns import FOUND_BY

    track_record = rows_of(ROOT / "docs" / "flaws.md")
    assert track_record.keys() == FLAWS.keys()
    for name, flaw in FLAWS.items():
        options = flawed_options(flaw, FOUND_BY[name])
        words = f"assay run {flaw.workload} --nemesis {shlex.quote(flaw.nemesis)} --time-limit {options.time_limit:g}"
        assert f"{words} --seed {options.seed} --flaw {name}" in track_record[name][1]


def test_readme_shows_five_flaws_of_the_track_record() -> None:
    readme = ROOT / "README.md"
    shown, track_record = rows_of(readme), rows_of(ROOT / "docs" / "flaws.md")
    assert len(shown) == 5 and f"Five of {len(FLAWS)} known bugs" in readme.read_text()
    for name, (_, found) in shown.items():
        words = re.findall(r"[a-z]+(?:-[a-z]+)+", found)
        assert words and all(word in track_record[name][-1] for word in words), name
    assert len(readme.read_text().splitlines()) <= 80


def test_the_page_on_judging_names_every_model() -> None:
    _, _, models = (ROOT / "docs" / "checking.md").read_text().partition("## Models\n")
    table = models.partition("\n\n")[0]
    assert sorted(PLACE.findall(table)) == sorted(MODELS)


def test_architecture_is_a_walk_and_no_list() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_text().splitlines()) <= 200


def test_words_of_ours_are_words_of_the_code() -> None:
    _, _, ours = (ROOT / "docs" / "words.md").read_text().partition("## Ours")
    names = {name for name in PLACE.findall(ours) if name.isidentifier()}
    code = "\n".join(path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    assert len(names) > 10
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", code)] == []
