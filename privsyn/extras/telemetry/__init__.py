"""Receivers of the events of runs (privsyn/base/telemetry.py): traces by OpenTelemetry, lineage by OpenLineage."""
