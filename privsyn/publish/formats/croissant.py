"""``croissant.json``: the release in the Croissant format, version 1.1, for machine-learning tools and data search.

Records are read from the Parquet files; CSV files are listed beside them.  Words (the Responsible-AI terms), provenance
(PROV) and dpv:DifferentialPrivacy of the W3C Data Privacy Vocabulary state that the rows are synthetic and
differentially private.  That vocabulary has no term for epsilon: the words have it, and certificate.json exactly.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from privsyn.data_contracts.publication import About
from privsyn.publish.formats.data_package import list_keywords
from privsyn.publish.formats.tables import TELLS_NOTHING, DescribedRelease, add_unmeasured, get_kind

NAME = "croissant.json"
CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
RECORDS = "rows"
"""Name of the record set; a field is ``rows/COLUMN`` if the column's name is plain, else ``rows/column-N``."""

_PLAIN = re.compile(r"(?!column-[0-9]+$)[A-Za-z0-9_][A-Za-z0-9_.-]*")

PARTS = "synthetic-parts"

_MEDIA = {
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
            "encodingFormat": _MEDIA[PurePosixPath(name).suffix],
            "sha256": file.sha256,
        }
        for name, file in sorted(release.files.items())
        if PurePosixPath(name).suffix in _MEDIA
    ]


def _describe_file_sets(release: DescribedRelease) -> list[dict[str, Any]]:
    """Return the parts of a synthetic table as one file set; empty if it is one file."""
    if len(release.tables("parquet")) == 1:
        return []
    includes = "synthetic/part-*.parquet"
    about = "The parts of the synthetic table; each is listed with its hash too."
    kind = _MEDIA[".parquet"]
    return [{"@type": "cr:FileSet", "@id": PARTS, "description": about, "encodingFormat": kind, "includes": includes}]


def _describe_record_set(release: DescribedRelease) -> dict[str, Any]:
    tables = release.tables("parquet")
    where = {"fileObject": {"@id": tables[0]}} if len(tables) == 1 else {"fileSet": {"@id": PARTS}}
    fields = []
    for number, (name, domain) in enumerate(release.ranges.items(), 1):
        field = {
            "@type": "cr:Field",
            "@id": f"{RECORDS}/{name if _PLAIN.fullmatch(name) else f'column-{number}'}",
            "name": name,
            "description": _describe_meaning(release.spec.get_published_column(name)),
            "dataType": _KINDS[get_kind(domain.type)],
            "source": {**where, "extract": {"column": name}},
        }
        fields.append({key: value for key, value in field.items() if value != ""})
    order = "in random order" if release.spec.panel is None else f"one synthetic {release.spec.unit.one} after another"
    about = f"The synthetic table: {release.rows:,} rows {order}. No row belongs to a person."
    return {"@type": "cr:RecordSet", "@id": RECORDS, "name": RECORDS, "description": about, "field": fields}


def _describe_meaning(column: Any) -> str:
    return add_unmeasured(column.description, column)


def _describe_responsible(release: DescribedRelease) -> dict[str, Any]:
    """Return the Responsible-AI terms that apply."""
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
