"""What several tests need beyond specs and tables: snapshots of today's behaviour, and what earlier versions left."""
