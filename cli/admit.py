"""``slackwater admit``: the objects as the webhook would leave them, and why."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import yaml
from tabulate import tabulate

from cli.options import block_size_option, files_option, output_option
from cli.output import print_result, print_warnings
from slackwater import names
from slackwater.adapters.documents import Document, load_documents
from slackwater.errors import InputError, Problem
from slackwater.objects import mapping, object_key, sequence, string_map, text
from slackwater.policy.profile import KIND, KOORDINATOR_KIND, Profile, parse_profile
from slackwater.qos import Qos, read_qos
from slackwater.quantity import parse_bytes
from webhook.decide import Admit, Context, Decision, Deny, Pass, Settings, Subject, admit, template_path
from webhook.patch import render
from webhook.priority import PriorityClass, parse_priority_class

_DENIED = 1
_CONTEXT_KINDS = ("Namespace", "PriorityClass", KIND, KOORDINATOR_KIND)


@dataclass(frozen=True, slots=True)
class _Case:
    """One object, what was decided, and how to name it."""

    document: Document
    decision: Decision

    @property
    def title(self) -> str:
        return f"{self.document.kind} {object_key(self.document.raw)}"

    @property
    def object(self) -> Any:
        return self.decision.object if isinstance(self.decision, Admit) else self.document.raw


@click.command("admit", short_help="the objects as the webhook would leave them")
@files_option("Objects as a user would apply them; profiles, Namespaces and PriorityClasses may stand among them")
@click.option(
    "--profiles",
    "context_paths",
    multiple=True,
    metavar="PATH",
    help="More profiles, Namespaces and PriorityClasses: a file, a folder or -.",
)
@output_option("json", "yaml", "patch", "table", default="yaml")
@block_size_option()
@click.option(
    "--scheduler-name",
    default=names.SCHEDULER_NAME,
    show_default=True,
    help="Scheduler for pods with blocks that ask for none; empty = leave it alone.",
)
@click.option(
    "--namespace",
    default="default",
    show_default=True,
    help="Namespace of objects that name none, as with kubectl.",
)
@click.pass_context
def command(
    click_context: click.Context,
    paths: tuple[str, ...],
    context_paths: tuple[str, ...],
    form: str,
    block_size: int,
    scheduler_name: str,
    namespace: str,
) -> None:
    """Print each object as the cluster would get it: one as itself, several as a List.

    "-o patch" prints the JSON patch (RFC 6902) of one object, or a list of patches with their objects' names;
    "-o table" what became of each. Profiles, Namespaces and PriorityClasses are taken as the cluster's and not printed.
    Reasons and warnings go to standard error. An object that would be denied is left out, and the exit status is 1.
    """
    documents, known = _sorted_out(load_documents(paths), load_documents(context_paths))
    context, warnings = _read_context(known, Settings(block_size, scheduler_name))
    cases = _decide(documents, context, namespace)
    print_warnings([*warnings, *(f"{case.title}: {warning}" for case in cases for warning in _warnings(case.decision))])
    for case in cases:
        for line in _explained(case.decision):
            click.echo(f"{case.title}: {line}", err=True)
    let_in = [case for case in cases if not isinstance(case.decision, Deny)]
    if form == "table":
        click.echo(_table(cases))
    elif form == "patch":
        _print_patches(let_in, alone=len(cases) == 1)
    elif let_in or len(cases) != 1:
        _print_objects([case.object for case in let_in], form, alone=len(cases) == 1)
    if len(let_in) < len(cases):
        click_context.exit(_DENIED)


# -- reading ----------------------------------------------------------------------------------------------


def _sorted_out(given: Sequence[Document], extra: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """(objects to admit, objects that describe the cluster)."""
    problems = [
        Problem(document.where, f"is a {document.kind or 'thing without kind'}", "give it with -f")
        for document in extra
        if document.kind not in _CONTEXT_KINDS
    ]
    problems += [
        Problem(document.where, f"has no {field}", "write a Kubernetes object with apiVersion and kind")
        for document in given
        for field in ("apiVersion", "kind")
        if not text(document.raw, field)
    ]
    if not given:
        problems.append(Problem("", "the input holds no object", "give a file with at least one"))
    if problems:
        raise InputError(problems)
    objects = [document for document in given if document.kind not in _CONTEXT_KINDS]
    known = [document for document in given if document.kind in _CONTEXT_KINDS]
    return objects, [*known, *extra]


def _read_context(known: Iterable[Document], settings: Settings) -> tuple[Context, list[Problem]]:
    profiles: list[Profile] = []
    classes: dict[str, PriorityClass] = {}
    namespaces: dict[str, dict[str, str]] = {}
    seen: dict[tuple[str, str], str] = {}
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for document in known:
        name = text(document.raw, "metadata", "name")
        first = seen.setdefault((document.kind, name), document.where)
        if first != document.where:
            what = f"{document.kind} {name} stands in {first} already"
            problems.append(Problem(document.where, what, "keep one of them"))
            continue
        try:
            if document.kind == "Namespace":
                namespaces[name] = string_map(document.raw, "metadata", "labels")
            elif document.kind == "PriorityClass":
                classes[name] = parse_priority_class(document.raw)
            else:
                profile, doubts = parse_profile(document.raw)
                profiles.append(profile)
                warnings.extend(
                    Problem(f"{document.where}: {doubt.where}", doubt.what, doubt.remedy) for doubt in doubts
                )
        except InputError as error:
            problems.extend(
                Problem(f"{document.where}: {wrong.where}", wrong.what, wrong.remedy) for wrong in error.problems
            )
    if problems:
        raise InputError(problems)
    return Context(tuple(profiles), classes, namespaces, settings), warnings


def _decide(documents: Iterable[Document], context: Context, namespace: str) -> list[_Case]:
    cases = []
    problems: list[Problem] = []
    for document in documents:
        subject = Subject(document.raw, text(document.raw, "metadata", "namespace") or namespace)
        try:
            cases.append(_Case(document, admit(subject, context)))
        except InputError as error:
            problems.extend(
                Problem(f"{document.where}: {wrong.where}", wrong.what, wrong.remedy) for wrong in error.problems
            )
        except RecursionError:
            problems.append(Problem(document.where, "is nested too deeply", "write a plain Kubernetes object"))
    if problems:
        raise InputError(problems)
    return cases


# -- printing ---------------------------------------------------------------------------------------------


def _warnings(decision: Decision) -> tuple[str, ...]:
    return () if isinstance(decision, Deny) else decision.warnings


def _explained(decision: Decision) -> list[str]:
    match decision:
        case Admit(_, reasons, _):
            return list(reasons)
        case Pass(reason, _):
            return [f"left as it is ({reason})"]
        case Deny(reason, message):
            return [f"denied ({reason}): {message}"]


def _print_patches(cases: Sequence[_Case], *, alone: bool) -> None:
    patches = [
        {
            "kind": case.document.kind,
            "namespace": text(case.document.raw, "metadata", "namespace"),
            "name": text(case.document.raw, "metadata", "name"),
            "patch": render(case.document.raw, case.object),
        }
        for case in cases
    ]
    if patches or not alone:
        print_result(patches[0]["patch"] if alone else patches, "json", str)


def _print_objects(objects: list[Any], form: str, *, alone: bool) -> None:
    result = objects[0] if alone else {"apiVersion": "v1", "kind": "List", "items": objects}
    if form == "json":
        print_result(result, "json", str)
    else:
        text_out = yaml.dump(result, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
        click.echo(text_out, nl=False)


def _table(cases: Iterable[_Case]) -> str:
    headers = ("object", "result", "class", "priority class", "blocks")
    return tabulate([_row(case) for case in cases], headers, tablefmt="plain", disable_numparse=True)


def _row(case: _Case) -> tuple[str, str, str, str, str]:
    decision = case.decision
    if isinstance(decision, Deny):
        return (case.title, f"denied: {decision.reason}", "", "", "")
    template = mapping(case.object, *template_path(case.object))
    qos = read_qos(string_map(template, "metadata", "labels"), string_map(template, "metadata", "annotations")).qos
    limits = [mapping(container, "resources", "limits") for container in sequence(template, "spec", "containers")]
    blocks = sum(parse_bytes(limit.get(names.RESOURCE, 0)) for limit in limits) if qos is Qos.BE else 0
    result = "changed" if isinstance(decision, Admit) else f"unchanged: {decision.reason}"
    return (case.title, result, qos or "", text(template, "spec", "priorityClassName"), str(blocks or ""))


class _Dumper(yaml.SafeDumper):
    """Quotes every string that a Kubernetes tool would read as something else: ``1e3``, ``0o17``, ``1_0``.

    YAML 1.1 as PyYAML knows it calls fewer texts a number than sigs.k8s.io/yaml does.
    """

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  the signature is PyYAML's
        """Objects share parts; anchors would be right, but nobody wants to read them in a manifest."""
        return True


def _string(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    """A string; one of several lines as a literal block, as people write it."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _string)
_Dumper.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9._]+(?:[eE][-+]?[0-9]+)?$|[-+]?0[oxb][0-9a-fA-F_]+$"),
    list("-+.0123456789"),
)
