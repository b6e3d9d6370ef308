-- Put the ledger's tables aside, into a schema of their own, so that a backup can be restored in their place.
--
--   psql --set=aside=broken_$(date -u +%Y%m%dt%H%M%Sz) --file=deployments/put_ledger_aside.sql DATABASE_URL
--
-- Run it as the ledger's owner, with server and workers stopped; each time with another name.  A ledger in another schema
-- than public is named with --set=schema=NAME.  Nobody but the owner may enter the new schema.
\set ON_ERROR_STOP on
\if :{?schema}
\else
  \set schema public
\endif
BEGIN;
CREATE SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".entries SET SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".periods SET SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".marks SET SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".refusals SET SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".datasets SET SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".ledger SET SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".period_chain SET SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".mark_chain SET SCHEMA :"aside";
ALTER TABLE IF EXISTS :"schema".refusal_chain SET SCHEMA :"aside";
COMMIT;
