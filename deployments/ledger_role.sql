-- A role that can add to the ledger and change nothing in it, for server, worker and deploy step.
--
--   psql --set=role=privsyn_worker --set=password="$(cat FILE)" --file=deployments/ledger_role.sql DATABASE_URL
--
-- Run it as the ledger's owner, after `privsyn ledger create`, and after every upgrade; twice is once.  The owner is no
-- superuser, as on a managed database: it owns the database and may make roles (CREATEROLE).  A ledger in another schema
-- than public is named with --set=schema=NAME.  The role owns a schema of its own for the history of Prefect's server,
-- which it may change.
\set ON_ERROR_STOP on
\if :{?schema}
\else
  \set schema public
\endif
BEGIN;
SELECT format('CREATE ROLE %I LOGIN', :'role')
WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = :'role') \gexec
-- A role that could take the guards away is not changed into one that cannot: use another name.
SELECT r.rolsuper OR r.rolcreatedb OR r.rolcreaterole OR r.rolreplication OR r.rolbypassrls
  OR pg_has_role(r.oid, t.tableowner::name, 'MEMBER') AS can_do_more
FROM pg_roles r, pg_tables t
WHERE r.rolname = :'role' AND t.schemaname = :'schema' AND t.tablename = 'ledger' \gset
\if :can_do_more
  DO $$ BEGIN RAISE EXCEPTION 'the role can do more than add to the ledger: name another one'; END $$;
\endif
ALTER ROLE :"role" PASSWORD :'password';
-- Prefect's server searches names with it; only who may make things in the database can add it.
CREATE EXTENSION IF NOT EXISTS pg_trgm SCHEMA public;
-- Who gives a schema away must be a member of its new owner; a superuser is one of all.
SELECT NOT rolsuper AS joins FROM pg_roles WHERE rolname = current_user \gset
\if :joins
  GRANT :"role" TO CURRENT_USER;
\endif
SELECT format('CREATE SCHEMA IF NOT EXISTS prefect AUTHORIZATION %I', :'role') \gexec
\if :joins
  REVOKE :"role" FROM CURRENT_USER;
\endif
-- For the server's history, and for pg_trgm wherever it is; the ledger's tables are always named with their schema.
SELECT format('ALTER ROLE %I IN DATABASE %I SET search_path = prefect, %I', :'role', current_database(), n.nspname)
FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'pg_trgm' \gexec
REVOKE CREATE ON SCHEMA :"schema" FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA :"schema" FROM :"role";
GRANT USAGE ON SCHEMA :"schema" TO :"role";
SET LOCAL search_path = :"schema";
GRANT SELECT, INSERT ON datasets, entries, periods, marks, refusals TO :"role";
-- Each of these is one row: how many there are, and the last hash.  A writer locks and moves it.
GRANT SELECT, UPDATE ON ledger, period_chain, mark_chain, refusal_chain TO :"role";
COMMIT;
