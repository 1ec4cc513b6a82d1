# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether Ansible can load a file of tasks, found out before anything depends on it.

Ansible itself reads such a file only when it is included, which is when the node is already
drained. It is loaded here by the same code, with its modules resolved,
and nothing of it is executed.
"""

from __future__ import annotations

import re
import typing as t
from pathlib import Path

import jinja2
from ansible import errors
from ansible.parsing import dataloader, vault
from ansible.playbook import block, play, role_include, task, task_include
from ansible.vars import manager

# As ansible-core says it since 2.19, and before.
PLACES = (re.compile(r"Origin: (.+?):(\d+)"), re.compile(r"in '(.+?)': line (\d+)"))
EXTENDED = "\n\nThe error appears to be in"
ROLE = ("name", "role", "tasks_from", "vars_from", "defaults_from", "handlers_from")

Entry = dict[str, t.Any]


def fault(path: str, folder: str) -> str:
    """What is wrong with the file, and in which line; empty if Ansible can load it.

    ``folder`` is that of the playbook, where roles are searched. Files and roles that the tasks
    include are loaded too, unless a condition or a template decides about them: whether Ansible
    would ever load those is not known here.
    """
    loader = dataloader.DataLoader()
    loader.set_basedir(folder)
    left: list[Entry] = [{"ansible.builtin.import_tasks": path}]
    done: list[Entry] = []
    while left:
        entry = left.pop()
        done.append(entry)
        try:
            made = play.Play.load(
                {"name": "Load", "hosts": "localhost", "gather_facts": False, "tasks": [entry]},
                variable_manager=manager.VariableManager(loader=loader),
                loader=loader,
            )
        except jinja2.UndefinedError:
            # What AnsibleUndefinedVariable is within a template of Ansible, since 2.19.
            continue
        except (errors.AnsibleError, OSError, UnicodeError) as error:
            if _unknown_here(error):
                continue
            return _told(error, path)
        left += [more for more in _included(made.tasks, Path(folder)) if more not in [*done, *left]]
    return ""


def _unknown_here(error: BaseException | None) -> bool:
    """Whether a variable or a vault's password is missing, which says nothing of the file."""
    while error is not None:
        if isinstance(error, (errors.AnsibleUndefinedVariable, vault.AnsibleVaultError)):
            return True
        error = error.__cause__ or getattr(error, "orig_exc", None)
    return False


def _told(error: Exception, path: str) -> str:
    text = str(error)
    context = getattr(error, "_formatted_source_context", None) or text
    found = next(filter(None, (place.search(context) for place in PLACES)), None)
    where = f"{found[1]}, line {found[2]}" if found else path
    about = getattr(error, "obj", None)
    whole = isinstance(about, t.Mapping) and {"hosts", "import_playbook"} & set(about)
    hint = " This is a play; the file must be the list of its tasks alone." if whole else ""
    return f"{where}: {' '.join(text.partition(EXTENDED)[0].split()).rstrip('.')}.{hint}"


def _included(found: t.Iterable[t.Any], folder: Path) -> t.Iterator[Entry]:
    """What the tasks include in any case, as imports, which Ansible loads at once."""
    for one in found:
        if isinstance(one, block.Block):
            yield from _included([*one.block, *one.always], folder)
        elif isinstance(one, task_include.TaskInclude) and not one.when:
            name = str(
                one.args.get("name") or one.args.get("role") or one.args.get("_raw_params") or ""
            )
            if "{{" in name:
                continue
            if isinstance(one, role_include.IncludeRole):
                given = {key: one.args[key] for key in ROLE if key in one.args}
                yield {"ansible.builtin.import_role": given}
            elif file := _file(one, name, folder):
                yield {"ansible.builtin.import_tasks": str(file)}


def _file(one: task.Task, name: str, folder: Path) -> Path | None:
    """The file that a task includes, which is searched from the file that the task is in."""
    here = Path(one.get_path().rpartition(":")[0]).parent
    places = (here / name, here / "tasks" / name, folder / name)
    return next((place for place in places if place.is_file()), None)
