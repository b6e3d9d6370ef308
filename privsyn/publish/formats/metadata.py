"""The metadata of a release: a Frictionless Data Package with a Table Schema, and Croissant.

``datapackage.json`` has version 1 (https://specs.frictionlessdata.io), which readers of version 2 accept too.

``croissant.json`` has version 1.1, for machine-learning tools and data search.
Records are read from the Parquet files; CSV files are listed beside them.  Words (the Responsible-AI terms), provenance
(PROV) and dpv:DifferentialPrivacy of the W3C Data Privacy Vocabulary state that the rows are synthetic and
differentially private.  That vocabulary has no term for epsilon: the words have it, and certificate.json exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from privsyn.data_contracts.publication import About
from privsyn.data_contracts.tables import ValueRange
from privsyn.publish.formats.tables import (
    TELLS_NOTHING,
    CsvStyle,
    DescribedRelease,
    add_unmeasured,
    choose_style,
    describe_linked_column,
    format_meaning,
    get_kind,
    get_published_spec,
    list_linked_ranges,
    name_linked_file,
)

DATA_PACKAGE = "datapackage.json"
SCHEMA = "schema.json"
"""File of the Table Schema, if several files share it."""

LISTED_VALUES = 1_000
"""Longest list of categories that becomes a constraint: checkers compare every cell with every value."""

_MEDIA_OF_PACKAGE = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}

CROISSANT = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
RECORDS = "rows"
"""Name of the record set; a field is ``rows/COLUMN`` if the column's name is plain, else ``rows/column-N``."""

_PLAIN = re.compile(r"(?!column-[0-9]+$)[A-Za-z0-9_][A-Za-z0-9_.-]*")

PARTS = "synthetic-parts"

_MEDIA_OF_CROISSANT = {
    ".parquet": "application/x-parquet",
    ".csv": "text/csv",
    ".json": "application/json",
    ".md": "text/markdown",
}

_KINDS = {
    "boolean": "sc:Boolean",
    "integer": "sc:Integer",
    "number": "sc:Float",
    "date": "sc:Date",
    "datetime": "sc:DateTime",
    "time": "sc:Time",
    "string": "sc:Text",
}

_CROISSANT_TERMS = (
    "arrayShape",
    "citeAs",
    "column",
    "containedIn",
    "equivalentProperty",
    "extract",
    "field",
    "fileObject",
    "fileProperty",
    "fileSet",
    "format",
    "includes",
    "isArray",
    "isLiveDataset",
    "jsonPath",
    "key",
    "md5",
    "parentField",
    "path",
    "recordSet",
    "references",
    "regex",
    "repeated",
    "replace",
    "samplingRate",
    "separator",
    "source",
    "subField",
    "transform",
)

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "dpv": "https://w3id.org/dpv#",
    "prov": "http://www.w3.org/ns/prov#",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _CROISSANT_TERMS},
}
"""The JSON-LD context of Croissant 1.1, with the two vocabularies that this module adds (dpv, prov)."""


def build_data_package(release: DescribedRelease) -> dict[str, Any]:
    """Return the descriptor: every table of the folder with hash and size, the synthetic table with its schema."""
    package: dict[str, Any] = {
        "profile": "data-package",
        "name": release.certificate.run,
        "title": release.title,
        "description": release.description,
        **_describe_publication(release),
        "keywords": list_keywords(release),
        "resources": [*_describe_linked(release), *_describe_synthetic(release), *_describe_marginals(release)],
        "differentialPrivacy": _describe_promise(release),
    }
    return {key: value for key, value in package.items() if value}


def build_table_schema(release: DescribedRelease) -> dict[str, Any]:
    """Return the Table Schema of the synthetic table: name, type, meaning and public domain of every column."""
    columns = {name: release.spec.get_published_column(name) for name in release.ranges}
    return _build_schema(columns, release.ranges, choose_style(release.spec, release.ranges))


def _build_schema(columns: Mapping[str, Any], ranges: Mapping[str, ValueRange], style: CsvStyle) -> dict[str, Any]:
    fields = [_describe_field(name, columns[name], domain, style) for name, domain in ranges.items()]
    return {"fields": fields, "missingValues": [style.null]}


def list_keywords(release: DescribedRelease) -> list[str]:
    """Return the publisher's keywords, then the keywords of every release."""
    return list(dict.fromkeys((*release.about.keywords, "synthetic data", "differential privacy", "PrivSyn")))


def _describe_publication(release: DescribedRelease) -> dict[str, Any]:
    about, licence = release.about, release.about.licence
    path = {"path": release.licence_url}
    contributor = {"title": about.publisher or about.contact, "role": "publisher"}
    if about.contact:
        contributor["path" if "://" in about.contact else "email"] = about.contact
    source = {"title": about.source or about.source_url} | ({"path": about.source_url} if about.source_url else {})
    return {
        "homepage": about.homepage,
        "created": f"{about.published}T00:00:00Z" if about.published else "",
        "licenses": [path if "://" in licence else {"name": licence, **path}] if licence else [],
        "contributors": [contributor] if contributor["title"] else [],
        "sources": [source] if source["title"] else [],
    }


def _describe_promise(release: DescribedRelease) -> dict[str, Any]:
    """Return the promise, for which the standard has no field; readers keep unknown fields."""
    c = release.certificate
    return {
        "epsilon": c.epsilon,
        "delta": c.delta,
        "neighbours": c.neighbours,
        "unitOfProtection": c.unit_of_protection,
        "certificate": "certificate.json",
    }


def _describe_synthetic(release: DescribedRelease) -> list[dict[str, Any]]:
    """Return one resource per file, CSV before Parquet, since checkers test CSV against the schema."""
    schema = SCHEMA if SCHEMA in release.files else build_table_schema(release)
    about = f"The synthetic table, {release.rows:,} rows in random order."
    if release.spec.panel is not None:
        person = release.spec.unit.one
        about = f"The synthetic table, {release.rows:,} rows, {person} by {person} and in their order."
    style = choose_style(release.spec, release.ranges)
    return [
        _describe_table(release, name, kind, about, schema, style)
        for kind in ("csv", "parquet")
        for name in release.tables(kind)
    ]


def _describe_table(
    release: DescribedRelease, name: str, kind: str, about: str, schema: str | dict[str, Any], style: CsvStyle
) -> dict[str, Any]:
    resource = {**_describe_file(release, name, kind), "description": about, "schema": schema}
    if kind == "csv":
        resource |= {"dialect": _describe_dialect(style), "encoding": style.encoding}
        resource["profile"] = "tabular-data-resource"
    return resource


def _describe_linked(release: DescribedRelease) -> list[dict[str, Any]]:
    """Return one resource per file of each linked table, with foreign keys to the table above; empty without."""
    spec, resources = release.spec, list[dict[str, Any]]()
    if not spec.table_names:
        return []
    above, below, *_ = spec.table_names
    person = spec.unit.one
    words = {
        above: f"Synthetic {person}s, with and without rows.",
        below: f"The rows of synthetic {person}s, in order within each {person}.",
    }
    for kind in ("csv", "parquet"):
        for table, ranges in list_linked_ranges(release.plan.request).items():
            name = name_linked_file(table, kind)
            if name not in release.files:
                continue
            style = choose_style(get_published_spec(spec, table), ranges)
            columns = {column: describe_linked_column(spec, table, column) for column in ranges}
            schema = _build_schema(columns, ranges, style)
            row_key = spec.tables[table].key
            schema |= {} if row_key is None else {"primaryKey": row_key}
            if table != above:
                upper, key = spec.get_parent_table(table)
                refers = {"resource": name_resource(name_linked_file(upper, kind)), "fields": key}
                schema["foreignKeys"] = [{"fields": key, "reference": refers}]
                words.setdefault(table, f"Rows of {upper}, in order within each row above.")
            resources.append(_describe_table(release, name, kind, words[table], schema, style))
    return resources


def _describe_dialect(style: CsvStyle) -> dict[str, Any]:
    quoting = {"quoteChar": style.quote, "doubleQuote": True} if style.quote else {}
    delimiter = {"delimiter": style.delimiter} if style.like_source else {}
    return {**delimiter, "lineTerminator": "\r\n", **quoting, "header": True}


def _describe_marginals(release: DescribedRelease) -> list[dict[str, Any]]:
    names = sorted(n for n in release.files if n.startswith("marginals/"))
    about = "Noisy counts that the synthetic table was made from, or the meaning of their numbers; see README.md."
    return [{**_describe_file(release, name, "parquet"), "description": about} for name in names]


def name_resource(file: str, others: Iterable[str] = ()) -> str:
    """Return the resource name of a file; with a dot if a file in a folder above would have the same name."""
    name = re.sub(r"[^a-z0-9]+", "-", file.lower())
    above, _, last = file.rpartition("/")
    taken = any(name_resource(other) == name and other.count("/") < file.count("/") for other in others)
    return f"{name_resource(above)}.{name_resource(last)}" if taken else name


def _describe_file(release: DescribedRelease, name: str, kind: str) -> dict[str, Any]:
    file = release.files[name]
    return {
        "name": name_resource(name, release.files),
        "path": name,
        "format": kind,
        "mediatype": _MEDIA_OF_PACKAGE[kind],
        **({"encoding": "utf-8"} if kind == "csv" else {"type": "file"}),
        "bytes": file.bytes,
        "hash": f"sha256:{file.sha256}",
    }


def _describe_field(name: str, column: Any, domain: ValueRange, style: CsvStyle) -> dict[str, Any]:
    values = domain.values.to_pylist() if domain.values is not None else []
    constraints: dict[str, Any] = {"required": not domain.nullable}
    if values and len(values) <= LISTED_VALUES and not all(isinstance(v, bool) for v in values):
        constraints["enum"] = values
    if domain.low is not None:
        constraints["minimum"], constraints["maximum"] = _describe_bounds(domain, style.formats.get(name, ""))
    field: dict[str, Any] = {
        "name": name,
        "type": get_kind(domain.type),
        "description": add_unmeasured(format_meaning(column), column),
        "constraints": constraints,
    }
    if field["type"] == "boolean":
        field |= {"trueValues": ["true"], "falseValues": ["false"]}
    if field["type"] in ("date", "datetime", "time"):
        field["format"] = style.formats.get(name, "")
    if field["type"] == "number" and style.decimal != ".":
        field["decimalChar"] = style.decimal
    return {key: value for key, value in field.items() if value}


def _describe_bounds(domain: ValueRange, format_: str) -> tuple[Any, Any]:
    """Return the smallest and the largest value as the files write them.

    A float32 bound has two decimal forms, the shortest for 32 bits and for 64 bits; the outer one suits all readers.
    """
    low, high = domain.low, domain.high
    if pa.types.is_float32(domain.type):
        return min(low, _compute_shortest(low)), max(high, _compute_shortest(high))
    if format_ and not pa.types.is_integer(domain.type):
        return low.strftime(format_), high.strftime(format_)
    if pa.types.is_timestamp(domain.type):
        return low.isoformat(), high.isoformat()
    dated = pa.types.is_date(domain.type) or pa.types.is_time(domain.type)
    return (low.isoformat(), high.isoformat()) if dated else (low, high)


def _compute_shortest(value: float) -> float:
    """Return the shortest decimal that gives the same float32."""
    shortest = float(str(np.float32(value)))
    return shortest if math.isfinite(shortest) else value


def build_croissant(release: DescribedRelease) -> dict[str, Any]:
    """Return the metadata as JSON-LD: files with hashes, one record set of the synthetic rows, and the promise."""
    about = release.about
    metadata: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": release.title,
        "description": release.description,
        "version": "1.0.0",
        "url": about.homepage,
        "license": release.licence_url,
        "datePublished": about.published.isoformat() if about.published else "",
        "creator": _describe_publisher(about),
        "publisher": _describe_publisher(about),
        "citeAs": _format_citation(release),
        "keywords": list_keywords(release),
        "spatialCoverage": about.region,
        "isLiveDataset": False,
        "distribution": [*_describe_files(release), *_describe_file_sets(release)],
        "recordSet": [_describe_record_set(release)],
        **_describe_responsible(release),
        **_describe_provenance(release),
    }
    return {key: value for key, value in metadata.items() if value not in ("", {}, [])}


def _describe_publisher(about: About) -> dict[str, Any]:
    if not about.publisher:
        return {}
    contact = {"url" if "://" in about.contact else "email": about.contact} if about.contact else {}
    return {"@type": "sc:Organization", "name": about.publisher, **contact}


def _format_citation(release: DescribedRelease) -> str:
    about = release.about
    parts = (about.publisher, release.title, str(about.published.year) if about.published else "", about.homepage)
    return ". ".join((*(p for p in parts if p), f"Release {release.certificate.run}."))


def _describe_files(release: DescribedRelease) -> list[dict[str, Any]]:
    return [
        {
            "@type": "cr:FileObject",
            "@id": name,
            "name": name,
            "contentUrl": name,
            "contentSize": f"{file.bytes} B",
            "encodingFormat": _MEDIA_OF_CROISSANT[PurePosixPath(name).suffix],
            "sha256": file.sha256,
        }
        for name, file in sorted(release.files.items())
        if PurePosixPath(name).suffix in _MEDIA_OF_CROISSANT
    ]


def _describe_file_sets(release: DescribedRelease) -> list[dict[str, Any]]:
    """Return the parts of a synthetic table as one file set; empty if it is one file."""
    if len(release.tables("parquet")) == 1:
        return []
    includes = "synthetic/part-*.parquet"
    about = "The parts of the synthetic table; each is listed with its hash too."
    kind = _MEDIA_OF_CROISSANT[".parquet"]
    return [{"@type": "cr:FileSet", "@id": PARTS, "description": about, "encodingFormat": kind, "includes": includes}]


def _describe_record_set(release: DescribedRelease) -> dict[str, Any]:
    tables = release.tables("parquet")
    where = {"fileObject": {"@id": tables[0]}} if len(tables) == 1 else {"fileSet": {"@id": PARTS}}
    fields = []
    for number, (name, domain) in enumerate(release.ranges.items(), 1):
        column = release.spec.get_published_column(name)
        field = {
            "@type": "cr:Field",
            "@id": f"{RECORDS}/{name if _PLAIN.fullmatch(name) else f'column-{number}'}",
            "name": name,
            "description": add_unmeasured(column.description, column),
            "dataType": _KINDS[get_kind(domain.type)],
            "source": {**where, "extract": {"column": name}},
        }
        fields.append({key: value for key, value in field.items() if value != ""})
    order = "in random order" if release.spec.panel is None else f"one synthetic {release.spec.unit.one} after another"
    about = f"The synthetic table: {release.rows:,} rows {order}. No row belongs to a person."
    return {"@type": "cr:RecordSet", "@id": RECORDS, "name": RECORDS, "description": about, "field": fields}


def _describe_responsible(release: DescribedRelease) -> dict[str, Any]:
    about = release.about
    return {
        "rai:dataCollectionType": ["Others"],
        "rai:dataCollection": f"Generated. {release.promise}",
        "rai:dataUseCases": [about.intended_use] if about.intended_use else [],
        "rai:dataLimitations": [
            "Small groups are blurred: a count below about three times its noise cannot be distinguished from zero.",
            "Relations of three or more columns are kept only if they follow from the measured counts.",
            "The rows are not a sample for confidence intervals. Take them from `privsyn query`, which adds the noise.",
            *(f"Column {name}: {TELLS_NOTHING}" for name in release.spec.unmeasured_columns),
        ],
        "rai:personalSensitiveInformation": [
            f"None about any person. {release.promise} certificate.json derives this promise from the noise."
        ],
    }


def _describe_provenance(release: DescribedRelease) -> dict[str, Any]:
    c, source = release.certificate, release.about.source
    version = release.versions.get("privsyn-flows", "")
    private: dict[str, Any] = {"@type": "prov:Entity", "prov:label": source or f"private table {c.dataset}"}
    if release.about.source_url:
        private["@id"] = release.about.source_url
    return {
        "dpv:hasTechnicalMeasure": {"@id": "dpv:DifferentialPrivacy"},
        "prov:wasDerivedFrom": private,
        "prov:wasGeneratedBy": {
            "@type": "prov:Activity",
            "prov:label": f"PrivSyn synthesis under ({c.epsilon:g}, {c.delta:g})-differential privacy",
            "prov:wasAssociatedWith": {"@type": "prov:SoftwareAgent", "prov:label": f"privsyn-flows {version}".strip()},
        },
    }
