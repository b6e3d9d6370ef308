"""Receivers of what runs tell (privsyn/base/telemetry.py): traces by OpenTelemetry, lineage by OpenLineage."""
