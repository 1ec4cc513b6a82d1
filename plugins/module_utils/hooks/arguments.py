# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The rules of hooks as users write them, and sending their HTTP calls."""

from __future__ import annotations

import functools
import http.client
import json
import queue
import re
import ssl
import threading
import typing as t
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import pod_selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import (
    hook_definitions,
    run_hook_calls,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations

HTTP: dict[str, t.Any] = {
    "url": {"type": "str", "required": True},
    "method": {
        "type": "str",
        "default": "POST",
        "choices": ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
    },
    "headers": {"type": "dict", "no_log": True},
    "status": {"type": "list", "elements": "int", "default": [200, 201, 204]},
    "validate_certs": {"type": "bool", "default": True},
}
RULE: dict[str, t.Any] = {
    "name": {"type": "str"},
    "pods": {"type": "str"},
    "namespaces": {"type": "list", "elements": "str"},
    "owners": {"type": "list", "elements": "str"},
    "tasks": {"type": "str"},
    "http": {"type": "dict", "options": HTTP},
    "annotation": {"type": "bool"},
    "deadline": {"type": "str", "default": "5m"},
}
NODE_RULE: dict[str, t.Any] = {
    "nodes": {"type": "str"},
    **{
        key: option
        for key, option in RULE.items()
        if key not in (*pod_selectors.KEYS, "annotation")
    },
}
POD_RULES: dict[str, t.Any] = {
    name: {"type": "list", "elements": "dict", "options": RULE}
    for name in ("before_pod", "after_pod")
}
"""The options of a drain."""

EXAMPLE = (
    "a list of rules such as [{pods: app=web, http: {url: 'http://{ip}:8080/drain'}, deadline: 5m}]"
)
HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
HEADERS = "names of headers with their values, each of one line"
AGAIN = "X-Maintenance-Again"

Faults = list[tuple[str, t.Any, str]]


def read(
    option: str, value: t.Any, hook: hook_definitions.Hook
) -> tuple[hook_definitions.Rule, ...]:
    """The rules of one hook; ``None`` and an empty list are none.

    Raises:
        BadOption: names every fault of every rule. Values of headers are in no message.
    """
    if value in (None, "", [], ()):
        return ()
    given = [value] if isinstance(value, t.Mapping) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(one, t.Mapping) for one in given):
        raise option_values.BadOption(option, value, EXAMPLE)
    faults: Faults = []
    rules = [
        _rule(f"{option}[{index}]", specs.plain(one), hook, faults)
        for index, one in enumerate(given)
    ]
    if faults:
        raise option_values.BadOptions(faults)
    return tuple(rules)


def variable(name: str, value: t.Any, hook: hook_definitions.Hook) -> list[dict[str, t.Any]]:
    """The rules of a playbook's variable, which may be JSON from a survey, with absolute paths of
    existing task files.

    Raises:
        BadOption: names every fault of every rule.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise option_values.BadOption(name, "the text", EXAMPLE) from None
    rules = read(name, value, hook)
    given = [value] if isinstance(value, t.Mapping) else value
    found, faults = [], list[tuple[str, t.Any, str]]()
    for index, (rule, one) in enumerate(zip(rules, given, strict=True)):
        plain = specs.plain(one)
        if rule.tasks:
            path = Path(rule.tasks).expanduser().absolute()
            plain["tasks"] = str(path.resolve())
            if not path.is_file():
                faults.append((f"{name}[{index}].tasks", rule.tasks, f"a file; there is no {path}"))
        found.append(plain)
    if faults:
        raise option_values.BadOptions(faults)
    return found


def from_params(params: specs.Params) -> specs.Params:
    """The options of a drain with the rules of both hooks in one, for the engine."""
    rules = hook_definitions.Rules(
        *(read(name, params.get(name), t.cast("hook_definitions.Hook", name)) for name in POD_RULES)
    )
    return {
        **{key: value for key, value in params.items() if key not in POD_RULES},
        "hooks": rules,
        "send": send,
    }


def _rule(
    where: str, given: dict[str, t.Any], hook: hook_definitions.Hook, faults: Faults
) -> hook_definitions.Rule:
    of_pods = hook.endswith("_pod")
    keys = [
        key
        for key in (RULE if of_pods else NODE_RULE)
        if key != "annotation" or hook == "before_pod"
    ]
    rule = {
        key: value
        for key, value in given.items()
        if value not in (None, "", [], {}) or key not in RULE
    }
    faults += [
        (f"{where}.{key}", _hidden(key, rule[key]), f"one of {', '.join(keys)}")
        for key in rule.keys() - keys
    ]
    actions = [action for action in hook_definitions.ACTIONS if rule.get(action)]
    if len(actions) != 1:
        one_of = ", ".join(action for action in hook_definitions.ACTIONS if action in keys)
        faults.append((where, actions, f"exactly one of {one_of}"))
    which = pod_selectors.KEYS if of_pods else ("nodes",)
    if not any(rule.get(key) for key in which):
        faults.append(
            (where, sorted(rule), f"{' or '.join(which)}, which says what the rule is for")
        )
    selects, wrong = pod_selectors.read(where, rule if of_pods else {"pods": rule.get("nodes")})
    faults += [
        (place if of_pods else place.replace(".pods", ".nodes"), *rest) for place, *rest in wrong
    ]
    if not isinstance(rule.get("annotation", True), bool):
        faults.append((f"{where}.annotation", rule["annotation"], "true"))
    return hook_definitions.Rule(
        hook,
        str(rule.get("name") or f"{hook}[{where.rpartition('[')[2]}"),
        actions[0] if actions else "tasks",
        deadline=_deadline(f"{where}.deadline", rule.get("deadline"), faults),
        selects=selects,
        tasks=str(rule.get("tasks", "")),
        http=_http(f"{where}.http", rule["http"], hook, faults) if rule.get("http") else None,
    )


def _deadline(where: str, value: t.Any, faults: Faults) -> float:
    try:
        seconds = durations.seconds(value)
    except ValueError:
        faults.append((where, value, durations.EXPECTED))
        return hook_definitions.DEADLINE_SECONDS
    if seconds == 0:
        faults.append((where, value, "more than 0 seconds"))
    return hook_definitions.DEADLINE_SECONDS if seconds is None else seconds


def _http(
    where: str, given: t.Any, hook: hook_definitions.Hook, faults: Faults
) -> hook_definitions.Http:
    if not isinstance(given, t.Mapping):
        faults.append(
            (where, type(given).__name__, "a mapping such as {url: 'http://{ip}:8080/drain'}")
        )
        return hook_definitions.Http("")
    found = {
        key: value
        for key, value in given.items()
        if value not in (None, "", [], {}) or key not in HTTP
    }
    unknown = found.keys() - HTTP.keys()
    faults += [
        (f"{where}.{key}", _hidden(key, found[key]), f"one of {', '.join(HTTP)}") for key in unknown
    ]
    call = hook_definitions.Http(
        str(found.get("url", "")), str(found.get("method", "POST")).upper()
    )
    if call.method not in HTTP["method"]["choices"]:
        faults.append(
            (f"{where}.method", call.method, f"one of {', '.join(HTTP['method']['choices'])}")
        )
    faults += _url_faults(f"{where}.url", call, hook)
    status = found.get("status", list(call.status))
    numbers = [str(one) for one in (status if isinstance(status, (list, tuple)) else [status])]
    if not all(re.fullmatch(r"[2-5]\d\d", number) for number in numbers):
        faults.append((f"{where}.status", status, "statuses of HTTP such as [200, 204]"))
        numbers = []
    headers = found.get("headers", {})
    if not are_headers(headers):
        faults.append((f"{where}.headers", "it", HEADERS))
        headers = {}
    else:
        faults += [
            fault
            for value in headers.values()
            if (fault := _unknown(f"{where}.headers", str(value), hook))
        ]
    valid = found.get("validate_certs", True)
    if not isinstance(valid, bool):
        faults.append((f"{where}.validate_certs", valid, "true or false"))
    pairs = tuple((str(key), str(value)) for key, value in headers.items())
    return hook_definitions.Http(
        call.url, call.method, pairs, tuple(map(int, numbers)), valid is not False
    )


def _url_faults(where: str, call: hook_definitions.Http, hook: hook_definitions.Hook) -> Faults:
    if fault := _unknown(where, call.url, hook):
        return [fault]
    good = is_url(hook_definitions.BRACES.sub("1", call.url))
    return [] if good else [(where, call.shown(), "a URL such as https://host:8080/path")]


def is_url(text: str) -> bool:
    """Whether it is a URL that can be called."""
    try:
        parts = urllib.parse.urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def are_headers(value: t.Any) -> bool:
    """Whether these are names of headers with values that can be sent."""
    return isinstance(value, t.Mapping) and all(
        HEADER.fullmatch(str(key)) and not re.search(r"[\r\n\0]", str(each))
        for key, each in value.items()
    )


def _unknown(where: str, text: str, hook: hook_definitions.Hook) -> tuple[str, t.Any, str] | None:
    """The first ``{...}`` that names no variable of the hook."""
    known = hook_definitions.PLACEHOLDERS[hook]
    wrong = next(
        (found[0] for found in hook_definitions.BRACES.finditer(text) if found[1] not in known),
        None,
    )
    return (where, wrong, f"one of {', '.join(f'{{{name}}}' for name in known)}") if wrong else None


def _hidden(key: str, value: t.Any) -> t.Any:
    """What a message may show of a value."""
    return value if isinstance(value, (str, int, float)) and "header" not in key else "it"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Another host than the rule's does not get its headers; a redirect is a status like others."""

    def redirect_request(self, *_arguments: t.Any, **_more: t.Any) -> None:
        return None


def send(call: hook_definitions.Http, variables: run_hook_calls.Variables, timeout: float) -> int:
    """Send one call and return its HTTP status; see ``run_hook_calls.Send``.

    The timeout of a socket holds for each read, and none for the search of an address; so a thread
    of its own makes the call, and is left alone when the time is over.
    """
    answers: queue.SimpleQueue[int | Exception] = queue.SimpleQueue()

    def make() -> None:
        try:
            answers.put(_send(call, variables, timeout))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=make, name="http", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout)
    except queue.Empty:
        raise run_hook_calls.NoAnswerError(
            f"{call.shown()} gave no answer within {timeout:.0f} s"
        ) from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _send(call: hook_definitions.Http, variables: run_hook_calls.Variables, timeout: float) -> int:
    """Send one call.

    The variables are the JSON body of POST, PUT and PATCH. Proxies are those of the environment, as
    with Ansible's ``open_url``. That function itself is not for threads: it replaces the opener of
    the whole process for each call.
    """
    own = {"Content-Type": "application/json"}
    if "again" in variables:
        own[AGAIN] = str(variables["again"]).lower()
    body = json.dumps(dict(variables)).encode() if call.method in ("POST", "PUT", "PATCH") else None
    try:
        request = urllib.request.Request(
            call.url, body, {**own, **dict(call.headers)}, method=call.method
        )
        tls = urllib.request.HTTPSHandler(context=_tls(call.validate_certs))
        with urllib.request.build_opener(tls, _NoRedirect()).open(
            request, timeout=timeout
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return int(error.code)
    except urllib.error.URLError as error:
        raise run_hook_calls.NoAnswerError(
            f"{call.shown()} could not be reached: {error.reason}"
        ) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise run_hook_calls.NoAnswerError(
            f"{call.shown()} gave no answer: {type(error).__name__}"
        ) from error


@functools.lru_cache(maxsize=2)
def _tls(validate: bool) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    if not validate:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    return tls
