"""``slackwater idle``: which idle workloads a policy would suspend, and why the others are kept."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import click
from tabulate import tabulate

from cli.options import files_option, now_option, output_option
from cli.output import print_result, print_warnings
from controller.decide import Row, decide, reaches
from controller.kinds import KINDS, kind_of
from slackwater import names
from slackwater.adapters.documents import Document, load_documents, load_single_document
from slackwater.errors import InputError, Problem
from slackwater.objects import string_map, text
from slackwater.policy.idle import OFF, IdlePolicy, PolicyReading, read_policy


@click.command("idle", short_help="which idle workloads a policy would suspend")
@files_option("Notebooks, TensorBoards, Explorers, and the Namespaces whose labels the policy asks for")
@click.option(
    "--policy",
    "policy_path",
    required=True,
    metavar="PATH",
    help="ConfigMap resource-keeper-policy-config, or a bare policy.yaml.",
)
@output_option()
@now_option("the clock")
def command(paths: tuple[str, ...], policy_path: str, form: str, now: datetime | None) -> None:
    """Print a row for every object that a policy type and its namespaces reach.

    An object is suspended when its condition Idle has been True for longer than idleTimeout. A type that cannot be
    used is a warning and is switched off; a policy text that cannot be used is an error.
    """
    documents = load_documents(paths)
    reading = _read_policy(policy_path)
    warnings = [str(problem) for problem in reading.warnings]
    warnings += [
        f"{problem} (type {name} is switched off)" for name, problems in reading.broken.items() for problem in problems
    ]
    rows, doubts = rows_of(documents, reading.over(OFF), now or datetime.now(UTC))
    print_warnings([*warnings, *doubts])
    print_result([row.as_output() for row in rows], form, _table)


def rows_of(documents: list[Document], policy: IdlePolicy, now: datetime) -> tuple[list[Row], list[str]]:
    """The decisions about all reached objects, in the order of the input, and what was doubtful."""
    labels: dict[str, Mapping[str, str]] = {
        text(document.raw, "metadata", "name"): string_map(document.raw, "metadata", "labels")
        for document in documents
        if document.kind == "Namespace"
    }
    rows: list[Row] = []
    doubts: list[str] = []
    for document in documents:
        kind = kind_of(text(document.raw, "apiVersion"), document.kind)
        if kind is None:
            if document.kind != "Namespace":
                known = ", ".join(f"{one.kind} ({one.group})" for one in KINDS)
                version = text(document.raw, "apiVersion") or "no apiVersion"
                doubts.append(f"{document.where}: {document.kind or 'no kind'} ({version}) is not one of {known}")
            continue
        if not text(document.raw, "metadata", "name"):
            raise InputError([Problem(f"{document.where}: metadata.name", "is missing", "give the object a name")])
        type_policy = policy.types.get(kind.policy_type)
        if type_policy is None:
            continue
        namespace = text(document.raw, "metadata", "namespace") or "default"
        if namespace not in labels and not type_policy.all_namespaces:
            doubts.append(
                f"{document.where}: the labels of namespace {namespace} are not known, so that policy."
                f"{kind.policy_type}.namespaceSelector does not match; add the Namespace to the input"
            )
        if reaches(type_policy, labels.get(namespace)):
            rows.append(decide(kind, type_policy, document.raw, now))
    return rows, doubts


def _read_policy(path: str) -> PolicyReading:
    documents = load_documents([path])
    config_maps = [document for document in documents if document.kind == "ConfigMap"]
    if not config_maps:
        if len(documents) != 1:
            raise InputError([Problem(path, f"holds {len(documents)} documents", "give one policy")])
        return read_policy(documents[0].raw, path)
    named = [one for one in config_maps if text(one.raw, "metadata", "name") == names.IDLE_CONFIG_MAP]
    chosen = named or config_maps
    if len(chosen) > 1:
        raise InputError([Problem(path, f"holds {len(chosen)} ConfigMaps of one name", "give one")])
    data = string_map(chosen[0].raw, "data")
    if names.IDLE_POLICY_KEY not in data:
        raise InputError(
            [Problem(f"{path}: data.{names.IDLE_POLICY_KEY}", "is missing or no text", "write the policy below it")]
        )
    where = f"{path}: data.{names.IDLE_POLICY_KEY}"
    return read_policy(load_single_document(data[names.IDLE_POLICY_KEY], where), where)


def _table(rows: Any) -> str:
    if not rows:
        return "the policy reaches no object"
    return tabulate(
        [
            (row["kind"], f"{row['namespace']}/{row['name']}", row["action"], row["dueAt"], row["message"])
            for row in rows
        ],
        headers=("kind", "object", "action", "due at", "why"),
        tablefmt="plain",
        disable_numparse=True,
    )
